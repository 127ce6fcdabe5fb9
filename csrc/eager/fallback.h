// What happens to calls that are not one program: CPU fallback, and host tensors among the
// operands.
#pragma once

#include "eager/operator.h"

namespace tn::eager {

// Runs the op on the CPU and brings the results back; counted per op.
void run_on_cpu(Operator& op, torch::jit::Stack& stack);

// Moves CPU operands that PyTorch allows beside device tensors (index tensors) to the device;
// raises "Expected all tensors to be on the same device" for any other.
void adopt_host_tensors(Operator& op, torch::jit::Stack& stack, const Signature& signature);

}  // namespace tn::eager
