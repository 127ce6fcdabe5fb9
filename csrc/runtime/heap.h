// The process's heap, where the host CPU's client takes the memory of its buffers from.
#pragma once

namespace tn::runtime {

// Makes the C library keep the memory of large freed blocks for the next ones instead of giving it
// back to the kernel, which clears every page anew: that costs more than most operators on them.
// Does nothing where the user has tuned the heap, or where the C library has no such setting.
void keep_freed_memory();

}  // namespace tn::runtime
