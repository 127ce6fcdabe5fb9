#include "adaptive/library.h"

#include <algorithm>

namespace tn::adaptive {
namespace {

constexpr size_t kMaxSightings = 4096;
constexpr size_t kMaxCuts = 256;
// A window whose outputs keep changing runs op by op when its program does not give them.
constexpr uint32_t kMaxCompilations = 5;

std::atomic<uint64_t> last_number{0};

std::vector<Place> merge(const std::vector<Place>& left, const std::vector<Place>& right) {
  std::vector<Place> both;
  std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
  return both;
}

std::mutex tuning_mutex;
Tuning current_tuning;

}  // namespace

Tuning tuning() {
  const std::lock_guard<std::mutex> guard(tuning_mutex);
  return current_tuning;
}

void set_tuning(const Tuning& tuning) {
  const std::lock_guard<std::mutex> guard(tuning_mutex);
  current_tuning = tuning;
}

bool Cuts::add(uint64_t context) {
  if (contexts_.size() >= kMaxCuts) {
    contexts_.clear();
  }
  return contexts_.insert(context).second;
}

void Cuts::set_length(uint64_t opening, size_t steps) {
  if (lengths_.size() >= kMaxCuts) {
    lengths_.clear();
  }
  lengths_[opening] = steps;
}

size_t Cuts::length(uint64_t opening) const {
  const auto found = lengths_.find(opening);
  return found == lengths_.end() ? 0 : found->second;
}

void Library::find(const runtime::Program& first, std::vector<WindowPtr>& found) {
  found.clear();
  const auto [begin, end] = by_first_.equal_range(first.id);
  for (auto it = begin; it != end; ++it) {
    if (it->second->state.load(std::memory_order_acquire) == Window::State::kReady) {
      found.push_back(it->second);
    }
  }
}

void Library::learn(Stretch&& stretch, End end) {
  const Tuning chosen = tuning();
  if (stretch.pattern.steps.size() < chosen.min_steps) {
    return;
  }
  const uint64_t hash = stretch.pattern.hash();
  const auto known = by_hash_.find(hash);
  if (known != by_hash_.end()) {
    known->second->single_runs.fetch_add(1, std::memory_order_relaxed);
    used(known->second);
    return;
  }
  if (sightings_.size() >= kMaxSightings) {
    sightings_.clear();
  }
  ++clock_;
  Sightings& seen = sightings_[hash];
  if (seen.count == 0 || clock_ - seen.first > chosen.span) {
    seen = Sightings{};
    seen.first = clock_;
  }
  seen.wanted = merge(seen.wanted, stretch.wanted());
  seen.seconds = std::min(seen.seconds, stretch.seconds);
  if (++seen.count < chosen.sightings) {
    return;
  }
  auto window = std::make_shared<Window>();
  window->number = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  window->ordinal = ordinal_;
  window->pattern = std::move(stretch.pattern);
  window->hash = hash;
  window->end = end;
  window->want(std::move(seen.wanted));
  window->trial.estimate(seen.seconds);
  sightings_.erase(hash);
  insert(window);
  request(window);
}

void Library::widen(const WindowPtr& window, const std::vector<Place>& wanted) {
  if (window->compilations() < kMaxCompilations && window->want(merge(window->outputs, wanted))) {
    request(window);
  }
}

void Library::request(const WindowPtr& window) {
  window->strikes = 0;
  const Tuning chosen = tuning();
  window->trial.begin(chosen.trials);
  Requests::instance().add(window);
  if (chosen.wait) {
    Requests::instance().wait();
  }
}

void Library::insert(WindowPtr window) {
  const std::lock_guard<std::mutex> guard(mutex_);
  used(window);
  if (by_hash_.size() >= tuning().max_windows) {
    const auto oldest = std::min_element(
        by_hash_.begin(), by_hash_.end(),
        [](const auto& left, const auto& right) { return left.second->used < right.second->used; });
    const WindowPtr gone = oldest->second;
    gone->drop("not used for long");
    by_hash_.erase(oldest);
    const auto [begin, end] = by_first_.equal_range(gone->pattern.steps[0].program->id);
    by_first_.erase(
        std::find_if(begin, end, [&](const auto& item) { return item.second == gone; }));
  }
  by_first_.emplace(window->pattern.steps[0].program->id, window);
  by_hash_.emplace(window->hash, std::move(window));
}

void Library::retire(uint64_t context) {
  for (const auto& [hash, window] : by_hash_) {
    const auto& steps = window->pattern.steps;
    for (size_t end = kContext; end < steps.size(); ++end) {
      if (hash_programs(steps, end - kContext, end) == context) {
        window->drop("a value is read in its midst now and then");
        break;
      }
    }
  }
}

std::vector<WindowPtr> Library::windows() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::vector<WindowPtr> all;
  for (const auto& [hash, window] : by_hash_) {
    all.push_back(window);
  }
  std::sort(all.begin(), all.end(), [](const WindowPtr& left, const WindowPtr& right) {
    return left->number < right->number;
  });
  return all;
}

size_t period_of(const std::vector<Step>& steps) {
  const size_t count = steps.size();
  const auto from_end = [&](size_t i) { return steps[count - 1 - i].program->id; };
  // The Z function of the reversed stream: how far it agrees with itself moved by i.
  std::vector<size_t> agrees(count, 0);
  for (size_t i = 1, left = 0, right = 0; i < count; ++i) {
    size_t length = i < right ? std::min(right - i, agrees[i - left]) : 0;
    while (i + length < count && from_end(length) == from_end(i + length)) {
      ++length;
    }
    agrees[i] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    // The last `i + length` programs repeat every i.
    if (length >= i && 2 * (i + length) >= count) {
      return i;
    }
  }
  return 0;
}

}  // namespace tn::adaptive
