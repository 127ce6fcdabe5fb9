// A value: the immutable contents of a storage at one point of the program's order.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "pjrt/buffer.h"

namespace tn::runtime {

class LaunchQueue;

// Where a value comes from: the output of the task at `number` of a queue, or a buffer made from
// host memory, numbered among those.
struct Producer {
  LaunchQueue* queue = nullptr;
  uint64_t number = 0;
  uint32_t output = 0;
  bool operator==(const Producer&) const = default;
};

// Why a value never came to be: shown to whoever reads it.
struct Failure {
  std::string message;
  bool out_of_memory = false;
};

// States only move forward: kUndefined stays until written by a new value; kPending becomes kReady
// or kFailed. A ready value's PJRT buffer may still be being computed; PJRT orders later uses
// itself.
class Value final : public c10::intrusive_ptr_target {
 public:
  enum class State : uint32_t { kUndefined, kPending, kReady, kFailed };

  // `queue` is the one whose task will fulfil a pending value.
  Value(State state, c10::ScalarType dtype, int64_t numel, LaunchQueue* queue = nullptr) noexcept;
  ~Value() override;

  c10::ScalarType dtype() const noexcept { return dtype_; }
  int64_t numel() const noexcept { return numel_; }
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  const Producer& producer() const noexcept { return producer_; }
  // By the queue, before its thread sees the value; other threads only look at the queue.
  void set_place(uint64_t task, uint32_t output) noexcept {
    producer_.number = task;
    producer_.output = output;
  }

  // A storage stops referring to the value; `uses` tasks that are about to be submitted still do.
  void left_by_storage(uint64_t uses) noexcept;
  // The number of tasks that its queue will have got once the last storage has left it; 0 before.
  uint64_t last_wanted() const noexcept { return last_wanted_.load(std::memory_order_acquire); }

  // Fulfils a pending value. Called once, by the launch thread or the creator.
  void set_buffer(pjrt::Buffer buffer);
  void set_failure(std::shared_ptr<const Failure> failure);

  // Gives an undefined value a buffer of zeros (contents of `torch.empty` are unspecified, zeros
  // are reproducible). Thread-safe: the first buffer counts.
  void define(pjrt::Buffer buffer);

  // Blocks until the value is no longer pending. Needs no GIL; never takes it.
  State wait() const noexcept;

  // The buffer of a ready value.
  const pjrt::Buffer& buffer() const noexcept { return buffer_; }
  // Takes the buffer out (donation): only for a value nobody else can reach.
  pjrt::Buffer take_buffer() noexcept { return std::move(buffer_); }
  const std::shared_ptr<const Failure>& failure() const noexcept { return failure_; }

  // By the last strong reference: weak ones keep the object, not the device memory.
  void release_resources() override;

 private:
  c10::ScalarType dtype_;
  int64_t numel_;
  std::atomic<State> state_;
  Producer producer_;
  std::atomic<uint64_t> last_wanted_{0};
  pjrt::Buffer buffer_;
  std::shared_ptr<const Failure> failure_;
};

using ValuePtr = c10::intrusive_ptr<Value>;

// Raises the failure as the exception type PyTorch uses (OutOfMemoryError or RuntimeError).
[[noreturn]] void raise(const Failure& failure);

}  // namespace tn::runtime
