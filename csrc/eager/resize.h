// Changing a storage's size.
#pragma once

#include <c10/core/Storage.h>

namespace tn::eager {

// Gives the storage `nbytes`, keeping the bytes that fit. Aliases see the change.
void resize_storage(const c10::Storage& storage, size_t nbytes);

}  // namespace tn::eager
