// What happens to calls that are not one program: CPU fallback, and host tensors among the
// operands.
#pragma once

#include "eager/operator.h"

namespace tn::eager {

// Runs the op by its kernel for the key `host` on the CPU and brings the results back; counted per
// op.
void run_on_cpu(Operator& op, torch::jit::Stack& stack,
                c10::DispatchKey host = c10::DispatchKey::CPU);

// The boxed kernel of the ops of compressed sparse tensors that neither PyTorch nor this backend
// has as a composition of dense ops: the CPU runs them, counted like any other.
void compressed_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

// Moves CPU operands that PyTorch allows beside device tensors (index tensors) to the device;
// raises "Expected all tensors to be on the same device" for any other.
void adopt_host_tensors(Operator& op, torch::jit::Stack& stack, const Signature& signature);

}  // namespace tn::eager
