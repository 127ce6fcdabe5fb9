// Pinned host memory.
#pragma once

#include <c10/core/Allocator.h>

namespace tn::runtime {

c10::Allocator* pinned_allocator();

// Whether an address lies in a pinned block.
bool is_pinned(const void* address);

}  // namespace tn::runtime
