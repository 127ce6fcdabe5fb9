// What may look at a queue's tasks before they run, and run several as one.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/task.h"

namespace tn::runtime {

// The tasks of a launch queue as its lookahead sees them; used by the launch thread only.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  virtual Task& task(uint64_t slot) = 0;
  // Runs a task, makes its failure that of its outputs, and drops its references.
  virtual void process(Task& task) = 0;
  // Waits until a task's operands are there; null, or the failure of one of them.
  virtual std::shared_ptr<const Failure> await_operands(const Task& task) = 0;
  // Starts a program whose operands are there. Throws pjrt::Error or another exception; then no
  // output has been touched.
  virtual void launch(Task& task) = 0;
  // Waits for the programs of a stream that have been started.
  virtual void drain(c10::StreamId stream) = 0;
  // Whether the task of this place has been submitted.
  virtual bool has(uint64_t slot) const = 0;
  // Tasks before `slot` are done with: their places can be filled again.
  virtual void release(uint64_t slot) = 0;
};

class Lookahead {
 public:
  virtual ~Lookahead() = default;
  // Gets each task once, in order: runs it, or holds it back until one of the next calls.
  virtual void take(uint64_t slot) = 0;
  virtual bool holding() const = 0;
  // No task has come for a while: runs what is held.
  virtual void pause() = 0;
};

}  // namespace tn::runtime
