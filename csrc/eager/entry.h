// What a signature resolves to: a program with the plan to feed it and to hand out its results.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/queue.h"

namespace tn::eager {

// A parameter of the program.
struct Operand {
  enum class Kind : uint8_t { kStorage, kScalar, kOffset, kRandom };
  Kind kind = Kind::kStorage;
  uint32_t index = 0;  // of the tensor (kStorage, kOffset) or of the scalar
};

// A result of the program: a new tensor, or the new value of an argument's storage.
struct Output {
  bool fresh = true;
  uint32_t tensor = 0;  // where not fresh: the tensor whose storage it becomes
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t numel = 0;  // of the storage
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int32_t count = -1;  // bounded result: its first dimension is element `count` of the last output
};

// One of the op's return values.
struct Return {
  enum class Kind : uint8_t { kOutput, kArgument, kList, kUndefined, kNumber };
  Kind kind = Kind::kOutput;
  std::vector<uint32_t> indices;  // outputs, the argument's position, or the number itself
};

struct Entry {
  enum class Kind : uint8_t { kProgram, kFallback, kResize, kComposite };
  Kind kind = Kind::kFallback;
  runtime::ProgramPtr program;
  std::vector<Operand> operands;
  std::vector<Output> outputs;
  std::vector<Return> returns;
  uint64_t random_offset = 0;
  bool bounded = false;  // the last output holds the counts of the others
  // kComposite: a Python function of the op's arguments, made of other device ops.
  void* composite = nullptr;
  // kResize: this tensor must take these sizes before the call is looked up again.
  uint32_t resize_tensor = 0;
  std::vector<int64_t> resize_sizes;
};
using EntryPtr = std::shared_ptr<const Entry>;

}  // namespace tn::eager
