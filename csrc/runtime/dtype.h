// Mapping between torch scalar types and PJRT buffer types.
#pragma once

#include <c10/core/ScalarType.h>
#include <pjrt_c_api.h>

namespace tn::runtime {

// Throws TypeError for a dtype that no PJRT buffer can hold (quantised types, for one).
PJRT_Buffer_Type to_pjrt(c10::ScalarType type);

// Whether the device can hold tensors of this dtype.
bool is_supported(c10::ScalarType type) noexcept;

}  // namespace tn::runtime
