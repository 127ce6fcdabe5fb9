// The windows that a device's queue knows, and where stretches end.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "adaptive/window.h"

namespace tn::adaptive {

// How readily windows are made.
struct Tuning {
  uint32_t sightings = 6;     // a stretch seen so often gets a program
  uint32_t min_steps = 4;     // of a window
  uint32_t max_windows = 64;  // of a device
  bool wait = false;          // the queue waits for a window's program (tests)
  uint32_t trials = 4;        // how often a program may lose against its ops; 0: it cannot (tests)
  // Sightings of which the first is longer ago than so many stretches and windows do not count: a
  // program for what comes once in a long while takes memory and is not worth its compilation.
  uint64_t span = 4096;
};
// Any thread may read and change it.
Tuning tuning();
void set_tuning(const Tuning& tuning);

// Where stretches end although nothing in the stream says so: learned from the stream.
class Cuts {
 public:
  // A value was read after these programs; false if that is known.
  bool add(uint64_t context);
  bool contains(uint64_t context) const { return contexts_.contains(context); }
  // Stretches that open like this repeat after so many steps.
  void set_length(uint64_t opening, size_t steps);
  size_t length(uint64_t opening) const;

 private:
  std::unordered_set<uint64_t> contexts_;
  std::unordered_map<uint64_t, size_t> lengths_;
};

// Only the launch thread changes it; `describe` may be called by any.
class Library {
 public:
  explicit Library(int ordinal) noexcept : ordinal_(ordinal) {}

  // Ready windows that begin with this program.
  void find(const runtime::Program& first, std::vector<WindowPtr>& found);
  // A stretch has run op by op, and the task after it has been submitted.
  void learn(Stretch&& stretch, End end);
  // The window needs a program that gives these as well.
  void widen(const WindowPtr& window, const std::vector<Place>& wanted);
  void used(const WindowPtr& window) { window->used = ++clock_; }
  // Drops the windows in whose midst these programs come.
  void retire(uint64_t context);
  std::vector<WindowPtr> windows() const;

 private:
  struct Sightings {
    uint32_t count = 0;
    uint64_t first = 0;                                        // when the first of them was
    std::vector<Place> wanted;                                 // in any of them
    double seconds = std::numeric_limits<double>::infinity();  // the fastest
  };
  void insert(WindowPtr window);
  void request(const WindowPtr& window);

  int ordinal_;
  uint64_t clock_ = 0;
  mutable std::mutex mutex_;
  std::unordered_multimap<uint64_t, WindowPtr> by_first_;
  std::unordered_map<uint64_t, WindowPtr> by_hash_;
  std::unordered_map<uint64_t, Sightings> sightings_;
};

// The length after which a stream of programs repeats, as far as its end tells; 0 if it does not.
// The end that repeats must be at least half of it.
size_t period_of(const std::vector<Step>& steps);

}  // namespace tn::adaptive
