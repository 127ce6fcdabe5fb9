// The state of a recorded event: when the work before it in its stream has completed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace tn::runtime {

class EventState {
 public:
  // One reference for the recording itself plus one per piece of outstanding work.
  void add_pending() noexcept { pending_.fetch_add(1, std::memory_order_relaxed); }
  void finish_one() {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard<std::mutex> guard(mutex_);
      completed_at_ = std::chrono::steady_clock::now();
      done_ = true;
      ready_.notify_all();
    }
  }
  bool done() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return done_;
  }
  void wait() const {
    std::unique_lock<std::mutex> lock(mutex_);
    ready_.wait(lock, [this] { return done_; });
  }
  // Only meaningful once done.
  std::chrono::steady_clock::time_point completed_at() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return completed_at_;
  }

 private:
  std::atomic<int64_t> pending_{1};
  mutable std::mutex mutex_;
  mutable std::condition_variable ready_;
  bool done_ = false;
  std::chrono::steady_clock::time_point completed_at_;
};
using EventStatePtr = std::shared_ptr<EventState>;

}  // namespace tn::runtime
