// What a call of a compiled graph resolves to: a program, and how its results are made of outputs.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "eager/entry.h"

namespace tn::compile {

// One of the graph's results.
struct Result {
  enum class Kind : uint8_t { kOutput, kArgument, kConstant, kMultiple };
  Kind kind = Kind::kConstant;
  uint32_t index = 0;    // of the program's output, or the argument's position
  c10::IValue constant;  // kConstant: a number or None
  int64_t factor = 1;    // kMultiple: so many times the argument, a size without a number

  // A view on the output or argument instead of itself; the offset counts from that of its base.
  bool view = false;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;

  bool on_host = false;  // the graph says that it is a CPU tensor
};

// An argument on the CPU that the graph writes: its new contents are an output.
struct HostWrite {
  uint32_t argument = 0;
  uint32_t output = 0;
};

struct Plan {
  bool eager = false;  // no program: the graph runs op by op
  eager::Entry entry;
  std::vector<Result> results;
  std::vector<HostWrite> host_writes;
};
using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace tn::compile
