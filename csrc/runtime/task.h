// What the launch queue runs: programs with their operands, and markers between them.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "pjrt/client.h"
#include "runtime/event.h"
#include "runtime/value.h"

namespace tn::runtime {

// A program that can be launched; immutable once made.
struct Program {
  std::shared_ptr<pjrt::Executable> executable;
  std::string label;   // op and shapes, for errors: "aten::add.Tensor(float32[2, 3], ...)"
  std::string origin;  // Python line that first asked for it, may be empty
  c10::SmallVector<int64_t, 4> donatable;  // parameters that alias an output
  // The StableHLO portable artifact it was compiled from, from which a window can be fused; empty
  // where it must run by itself.
  std::string module;
  // Tells programs apart, also from those that are gone.
  uint64_t id = next_id();

 private:
  static uint64_t next_id() noexcept {
    static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
};
using ProgramPtr = std::shared_ptr<const Program>;

struct Task {
  // kCut marks where the user's program reads a value: nothing before it may be held back.
  enum class Kind : uint8_t { kExecute, kRecord, kBlock, kCall, kCut };
  Kind kind = Kind::kExecute;
  bool fusable = false;  // kExecute: may become part of a fused window
  c10::StreamId stream = 0;
  ProgramPtr program;
  c10::SmallVector<ValuePtr, 6> inputs;
  c10::SmallVector<ValuePtr, 2> outputs;
  EventStatePtr event;         // kRecord, kBlock
  std::function<void()> call;  // kCall
};

}  // namespace tn::runtime
