// Whether a window's program is faster than its ops one by one: measured when the program is new.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace tn::adaptive {

// Compares the fastest run of each kind, since all that disturbs a run makes it longer. The ops
// were timed once before the program was made; they are timed again only while the program looks
// slower.
class Trial {
 public:
  using Seconds = std::chrono::duration<double>;

  // A new program is to be measured, in so many pairs of runs at most; 0: it is taken as it is.
  void begin(uint32_t pairs) noexcept {
    fused_.store(kUnknown, std::memory_order_relaxed);
    fused_runs_ = 0;
    left_ = pairs;
  }
  bool open() const noexcept { return left_ > 0; }
  // Whether the next run is to be op by op, to time that.
  bool wants_single() const noexcept { return open() && fused_runs_ >= 2 && lost(); }
  bool lost() const noexcept { return fused() > kTolerance * single(); }

  void add_single(Seconds time) noexcept {
    single_.store(std::min(single(), time.count()), std::memory_order_relaxed);
    fused_runs_ = 1;  // now a fused one again
  }
  // Closes the trial once it is decided. The first run of a program is not typical.
  void add_fused(Seconds time) noexcept {
    fused_.store(std::min(fused(), time.count()), std::memory_order_relaxed);
    if (++fused_runs_ >= 2) {
      left_ = lost() ? left_ - 1 : 0;
    }
  }

  // Seconds; infinite if not measured. Any thread may ask.
  double fused() const noexcept { return fused_.load(std::memory_order_relaxed); }
  double single() const noexcept { return single_.load(std::memory_order_relaxed); }

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  static constexpr double kTolerance = 1.05;
  std::atomic<double> single_ = kUnknown;
  std::atomic<double> fused_ = kUnknown;
  uint32_t fused_runs_ = 0;
  uint32_t left_ = 0;
};

}  // namespace tn::adaptive
