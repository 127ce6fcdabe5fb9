// Device values of scalar operands, cached because the same few numbers come again and again.
#pragma once

#include "eager/signature.h"
#include "runtime/value.h"

namespace tn::eager {

runtime::ValuePtr scalar_value(c10::DeviceIndex device, const ScalarRef& scalar);

// A 0-d int64, for storage offsets.
runtime::ValuePtr index_value(c10::DeviceIndex device, int64_t index);

}  // namespace tn::eager
