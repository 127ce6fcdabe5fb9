// The boxed kernel that serves every op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "eager/operator.h"

namespace tn::eager {

// Runs an op on the arguments at the end of the stack and leaves its results there.
void run(Operator& op, torch::jit::Stack& stack);

// The dispatcher's calling convention.
void boxed_kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

// Queues the program of a signature and gives its results: a tensor for each output that is a new
// one, an undefined tensor for each that is the new value of an argument's storage. `name` is for
// errors. The signature's references to values are given up.
void launch(const Entry& entry, const char* name, Signature& signature,
            c10::SmallVectorImpl<at::Tensor>& fresh);

// A new dense neuron tensor whose storage will hold `value`.
at::Tensor make_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                       c10::DeviceIndex device, runtime::ValuePtr value, int64_t storage_numel);

}  // namespace tn::eager
