// A stretch of tasks that comes again and again, and the one program that runs instead.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "adaptive/pattern.h"
#include "adaptive/trial.h"

namespace tn::adaptive {

// Where a stretch ends, and why.
enum class End : uint8_t { kRead, kOther, kLearned, kPeriod, kFull, kStream, kWindow };
const char* name_of(End end) noexcept;

struct Window {
  enum class State : uint8_t { kCompiling, kReady, kDropped };

  uint64_t number = 0;
  int ordinal = 0;  // of the plugin's device that the program is for
  Pattern pattern;
  uint64_t hash = 0;
  End end = End::kOther;

  // Which outputs the program gives, in order. Changed by the launch thread only, and only while
  // there is no program: that thread and the compiling one may read it as it is.
  std::vector<Place> outputs;
  // Set by the compiling thread before the state says so. Its donatable parameters are numbers of
  // values from outside.
  runtime::ProgramPtr program;
  std::atomic<State> state{State::kCompiling};

  std::atomic<uint64_t> fused_runs{0};
  std::atomic<uint64_t> single_runs{0};  // recognised, but run op by op
  uint32_t strikes = 0;  // grows when more was wanted than the program gives, shrinks with each run
  Trial trial;
  uint64_t used = 0;  // when, in the library's count

  size_t size() const noexcept { return pattern.steps.size(); }
  bool gives(const Place& place) const;
  // The launch thread wants a program with these outputs; false if it has been dropped.
  bool want(std::vector<Place> places);
  // The program that is wanted is there, or will never be; nothing happens if it was dropped
  // meanwhile.
  void install(runtime::ProgramPtr made);
  void refuse(const std::string& why);
  // For good. The first reason is kept.
  void drop(const std::string& why);

  // For any thread.
  struct Summary {
    State state;
    size_t outputs;
    uint32_t compilations;
    std::string dropped;  // why
  };
  Summary summary() const;
  uint32_t compilations() const noexcept { return compilations_; }

 private:
  void drop_locked(const std::string& why);

  mutable std::mutex mutex_;   // what a summary shows, and changes of the state
  uint32_t compilations_ = 0;  // changed by the launch thread only
  std::string dropped_;
};
using WindowPtr = std::shared_ptr<Window>;

// Windows that wait for their program. The launch threads add to it, Python's compiling thread
// takes from it.
class Requests {
 public:
  static Requests& instance();
  void add(WindowPtr window);
  // Blocks until there is one; null after so long without, and once stopped.
  WindowPtr next(std::chrono::duration<double> patience);
  // The program of a window has come, or never will.
  void settle(const WindowPtr& window, runtime::ProgramPtr program, const std::string& why);
  // Blocks until all that were added are settled.
  void wait();
  void stop();
  bool stopped() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WindowPtr> waiting_;
  size_t unsettled_ = 0;
  bool stopped_ = false;
};

}  // namespace tn::adaptive
