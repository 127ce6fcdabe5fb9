// Whether a window's program is faster than its ops one by one: measured when the program is new.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace tn::adaptive {

// Compares the fastest runs, since all that disturbs a run makes it longer. How long the ops take
// in passing is known from before; only a program that is slower than that is compared with runs of
// the ops that are waited for, as the program's are.
class Trial {
 public:
  using Seconds = std::chrono::duration<double>;

  // The ops took so long, in passing.
  void estimate(double seconds) noexcept { single_.store(seconds, std::memory_order_relaxed); }
  // A new program is to be measured; it may lose so often. 0: it is taken as it is.
  void begin(uint32_t losses) noexcept {
    fused_.store(kUnknown, std::memory_order_relaxed);
    fused_runs_ = 0;
    left_ = losses;
  }
  bool open() const noexcept { return left_ > 0; }
  // Whether the next run is to be op by op, to time that.
  bool wants_single() const noexcept { return open() && fused_runs_ >= kFirstRuns && lost(); }
  bool lost() const noexcept { return fused() > kTolerance * single(); }

  void add_single(Seconds time) noexcept {
    single_.store(timed_ ? std::min(single(), time.count()) : time.count(),
                  std::memory_order_relaxed);
    timed_ = true;
    fused_runs_ = kFirstRuns - 1;  // now a fused one again
  }
  // Closes the trial once it is decided.
  void add_fused(Seconds time) noexcept {
    fused_.store(std::min(fused(), time.count()), std::memory_order_relaxed);
    if (++fused_runs_ >= kFirstRuns) {
      if (!lost()) {
        left_ = 0;
      } else if (timed_) {
        --left_;
      }
    }
  }

  // Seconds; infinite if not measured. Any thread may ask.
  double fused() const noexcept { return fused_.load(std::memory_order_relaxed); }
  double single() const noexcept { return single_.load(std::memory_order_relaxed); }

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  static constexpr double kTolerance = 1.05;
  // The first run of a program is not typical.
  static constexpr uint32_t kFirstRuns = 2;
  std::atomic<double> single_ = kUnknown;
  std::atomic<double> fused_ = kUnknown;
  bool timed_ = false;  // single_ is of runs that were waited for
  uint32_t fused_runs_ = 0;
  uint32_t left_ = 0;
};

}  // namespace tn::adaptive
