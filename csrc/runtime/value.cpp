#include "runtime/value.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "runtime/fork.h"
#include "runtime/queue.h"

namespace tn::runtime {

namespace {

std::atomic<uint64_t> made_on_host{0};

// Queues that first use an undefined value at once. That is seldom: one lock for all values.
std::mutex defining;

}  // namespace

Value::Value(State state, c10::ScalarType dtype, int64_t numel, LaunchQueue* queue) noexcept
    : dtype_(dtype),
      numel_(numel),
      state_(state),
      producer_{queue, made_on_host.fetch_add(1, std::memory_order_relaxed), 0} {}

Value::~Value() {
  // A forked child inherits handles of a client whose threads do not exist there: leave them alone.
  if (in_forked_child()) {
    buffer_.release();
  }
}

void Value::release_resources() {
  pjrt::Buffer buffer = std::move(buffer_);
  if (in_forked_child()) {
    buffer.release();
  }
  failure_.reset();
}

void Value::left_by_storage(uint64_t uses) noexcept {
  if (producer_.queue != nullptr) {
    last_wanted_.store(producer_.queue->submitted() + uses, std::memory_order_release);
  }
}

void Value::set_buffer(pjrt::Buffer buffer) {
  buffer_ = std::move(buffer);
  state_.store(State::kReady, std::memory_order_release);
  state_.notify_all();
}

void Value::set_failure(std::shared_ptr<const Failure> failure) {
  failure_ = std::move(failure);
  state_.store(State::kFailed, std::memory_order_release);
  state_.notify_all();
}

void Value::define(pjrt::Buffer buffer) {
  const std::lock_guard<std::mutex> guard(defining);
  if (state() == State::kUndefined) {
    buffer_ = std::move(buffer);
    state_.store(State::kReady, std::memory_order_release);
  }
}

Value::State Value::wait() const noexcept {
  State now = state();
  for (int spin = 0; now == State::kPending && spin < 2000; ++spin) {
    __builtin_ia32_pause();
    now = state();
  }
  while (now == State::kPending) {
    state_.wait(State::kPending, std::memory_order_acquire);
    now = state();
  }
  return now;
}

void raise(const Failure& failure) {
  TORCH_CHECK_WITH(OutOfMemoryError, !failure.out_of_memory, failure.message);
  TORCH_CHECK(false, failure.message);
}

}  // namespace tn::runtime
