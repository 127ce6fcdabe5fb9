// Copies between neuron and host, between neuron devices, and within one.
#pragma once

#include <ATen/core/Tensor.h>

namespace tn::eager {

// aten::copy_: dtype conversion and broadcasting as everywhere in PyTorch.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking);

// The tensor's elements as a CPU tensor of the same sizes. Blocks until they are computed.
at::Tensor to_host(const at::Tensor& source);

// A device tensor with the elements of a CPU tensor, same dtype and sizes, contiguous.
at::Tensor from_host(const at::Tensor& source, c10::Device device);

}  // namespace tn::eager
