// The shape of a stretch of the task stream: which programs, and which value goes where.
#pragma once

#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/task.h"

namespace tn::adaptive {

// Where a step's operand comes from: an earlier step's output, or from outside the stretch.
struct Source {
  int32_t step = -1;   // negative: from outside
  uint32_t index = 0;  // the step's output, or the number of the outside value
  bool outside() const noexcept { return step < 0; }
  bool operator==(const Source&) const = default;
};

struct Step {
  runtime::ProgramPtr program;
  c10::SmallVector<Source, 6> inputs;
  // How often each output is an operand within the stretch.
  c10::SmallVector<uint32_t, 2> uses;
};

struct Pattern {
  std::vector<Step> steps;
  // The first place of each value from outside, as (step, input), and how often it is an operand.
  struct Outside {
    uint32_t step;
    uint32_t input;
    uint32_t uses;
  };
  std::vector<Outside> outside;

  bool operator==(const Pattern& other) const;
  uint64_t hash() const noexcept;
};

// As many programs tell where in its code the user's program is.
constexpr size_t kContext = 8;

// Stands for the programs of steps [begin, end).
uint64_t hash_programs(const std::vector<Step>& steps, size_t begin, size_t end) noexcept;

// Output `output` of step `step`.
struct Place {
  uint32_t step;
  uint32_t output;
  auto operator<=>(const Place&) const = default;
};

// A stretch that has run op by op.
struct Stretch {
  Pattern pattern;
  std::vector<std::vector<c10::weak_intrusive_ptr<runtime::Value>>> outputs;
  uint64_t end = 0;      // its end in the queue
  double seconds = 0.0;  // from the first step's start to the last one's
  // The outputs that somebody wanted after the last step. Known once the task after it has been
  // submitted: what the user's thread drops before that is not wanted.
  std::vector<Place> wanted() const;
};

// Writes down a stretch of tasks as they run.
class Recorder {
 public:
  // Called before the task runs, with its place in the queue.
  void add(const runtime::Task& task, uint64_t slot);

  size_t size() const noexcept { return pattern_.steps.size(); }
  bool empty() const noexcept { return pattern_.steps.empty(); }
  const Pattern& pattern() const noexcept { return pattern_; }
  // Stands for the last few programs: where in its code the user's program is.
  uint64_t context() const noexcept;
  // Stands for the first few; 0 while there are fewer.
  uint64_t opening() const noexcept;
  c10::StreamId stream() const noexcept { return stream_; }
  // The stretch, of which the last step has run; the recorder is empty then.
  Stretch take();
  void clear();

 private:
  struct HashProducer {
    size_t operator()(const runtime::Producer& producer) const noexcept;
  };
  // The step that ran at a place in the queue; -1 if none of this stretch did.
  int32_t step_at(uint64_t slot) const noexcept;
  uint32_t outside(const runtime::Producer& producer, uint32_t step, uint32_t input);

  Pattern pattern_;
  // The place in the queue of each step: not all tasks of a queue are steps.
  std::vector<uint64_t> slots_;
  c10::StreamId stream_ = 0;
  const runtime::LaunchQueue* queue_ = nullptr;
  std::unordered_map<runtime::Producer, uint32_t, HashProducer> outside_;
  std::vector<std::vector<c10::weak_intrusive_ptr<runtime::Value>>> outputs_;
  std::chrono::steady_clock::time_point started_;
};

// A hash that grows by one program at a time.
inline uint64_t mix(uint64_t state, uint64_t word) noexcept {
  state = (state ^ word) * 0xFF51AFD7ED558CCDULL;
  return state ^ (state >> 32);
}

}  // namespace tn::adaptive
