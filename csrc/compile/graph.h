// A compiled graph: one callable, one program for each signature of its arguments.
#pragma once

#include <ATen/core/stack.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compile/plan.h"
#include "eager/signature.h"
#include "eager/table.h"

namespace tn::compile {

// Thread-safe. Calls need no GIL; what they are given for misses may take it.
class Graph {
 public:
  // `resolve` finds the plan of a signature; `run_eagerly` runs the graph op by op.
  using Resolve = std::function<PlanPtr(const torch::jit::Stack&, const eager::Signature&)>;
  using RunEagerly = std::function<std::vector<c10::IValue>(const torch::jit::Stack&)>;

  // `number_operands` tells for each argument whether a number there is an operand of the programs
  // (else each value has a program of its own); `programs` bounds how many are kept.
  Graph(std::string name, c10::DeviceIndex device, const std::vector<bool>& number_operands,
        size_t programs, Resolve resolve, RunEagerly run_eagerly);

  // The results for one call; tensors, numbers, sizes without a number, None. The arguments are
  // left as they are, so that they may borrow their tensors. Raises RuntimeError for a wrong number
  // of arguments or arguments of several devices, and what resolving raises.
  std::vector<c10::IValue> run(const torch::jit::Stack& arguments);

  size_t argument_count() const noexcept { return policies_.size(); }
  size_t program_count() const { return table_.size(); }
  uint64_t calls() const noexcept { return calls_.load(std::memory_order_relaxed); }

 private:
  PlanPtr plan_for(const torch::jit::Stack& stack, const eager::Signature& signature);

  std::string name_;
  c10::DeviceIndex device_;
  std::vector<eager::ArgumentPolicy> policies_;
  eager::SignatureTable<Plan> table_;
  Resolve resolve_;
  RunEagerly run_eagerly_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<size_t> words_{0};  // of the longest signature so far
};

}  // namespace tn::compile
