#pragma once

namespace tn::eager {

// Registers the boxed kernel for every aten op that needs a kernel of the device's. Called once.
void register_kernels();

}  // namespace tn::eager
