// Arguments whose memory holds the conjugate or the negative of their value.
#pragma once

#include <ATen/core/stack.h>

#include "eager/operator.h"

namespace tn::eager {

// Runs the op with arguments whose memory holds their value in place of those in
// `signature.lazy_tensors`. What it writes to them is written through their conjugation.
//
// PyTorch resolves such arguments before most kernels. For products of matrices and a few others it
// leaves that to the kernel, since BLAS takes flags for it.
void run_resolved(Operator& op, torch::jit::Stack& stack, const Signature& signature);

}  // namespace tn::eager
