#include "adaptive/engine.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "runtime/metrics.h"

namespace tn::adaptive {
namespace {

using runtime::Task;
using runtime::Value;
using runtime::ValuePtr;

// The queue must be able to hold a whole window and still have room.
constexpr size_t kMaxSteps = 2000;
// A stretch is searched for a period whenever it has grown by so much.
constexpr size_t kLookEvery = 500;
// A period shorter than this is taken several times.
constexpr size_t kMinPeriod = 32;

// How long the user's thread may take, after it has issued a window's last op, to drop the values
// that it does not keep. It has when it issues the next.
constexpr auto kPatience = std::chrono::milliseconds(2);
// Values that are kept once in a while do not change a window: it runs op by op then. Twice within
// so many runs is often.
constexpr uint32_t kStrike = 32;

std::mutex engines_mutex;
std::vector<const Engine*>& engines() {
  static auto* const all = new std::vector<const Engine*>();  // NOLINT
  return *all;
}

}  // namespace

Engine::Engine(runtime::TaskRunner& runner, int ordinal) : runner_(runner), library_(ordinal) {
  const std::lock_guard<std::mutex> guard(engines_mutex);
  engines().push_back(this);
}

Engine::~Engine() {
  const std::lock_guard<std::mutex> guard(engines_mutex);
  std::erase(engines(), this);
}

std::vector<const Engine*> Engine::all() {
  const std::lock_guard<std::mutex> guard(engines_mutex);
  return engines();
}

void Engine::take(uint64_t slot) {
  learn();
  Task& task = runner_.task(slot);
  if (task.kind != Task::Kind::kExecute || !task.fusable) {
    settle();
    const bool read = task.kind == Task::Kind::kCut || task.kind == Task::Kind::kRecord;
    close(read ? End::kRead : End::kOther);
    runner_.process(task);
    runner_.release(slot + 1);
    return;
  }
  if (recorder_.empty()) {
    const bool held = holding();
    if (hold(slot)) {
      return;
    }
    if (held) {
      settle();
      if (recorder_.empty() && hold(slot)) {
        return;
      }
    }
  }
  run_single(slot);
}

void Engine::pause() {
  learn();
  settle();
}

bool Engine::hold(uint64_t slot) {
  const Task& task = runner_.task(slot);
  if (held_ == 0) {
    begin_ = slot;
    complete_ = nullptr;
    library_.find(*task.program, candidates_);
  }
  std::erase_if(candidates_, [&](const WindowPtr& window) { return !fits(*window, task, slot); });
  if (candidates_.empty()) {
    return false;
  }
  ++held_;
  std::erase_if(candidates_, [&](const WindowPtr& window) {
    if (window->size() != held_) {
      return false;
    }
    complete_ = window;
    return true;
  });
  if (candidates_.empty()) {
    settle();
  }
  return true;
}

bool Engine::fits(const Window& window, const Task& task, uint64_t slot) {
  const Step& step = window.pattern.steps[slot - begin_];
  if (step.program != task.program || task.stream != runner_.task(begin_).stream) {
    return false;
  }
  const runtime::LaunchQueue* const mine = task.outputs[0]->producer().queue;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const Source& source = step.inputs[i];
    const runtime::Producer& producer = task.inputs[i]->producer();
    const bool inside = producer.queue == mine && producer.number >= begin_;
    if (inside == source.outside()) {
      return false;
    }
    if (inside) {
      if (producer.number - begin_ != static_cast<uint64_t>(source.step) ||
          producer.output != source.index) {
        return false;
      }
      continue;
    }
    const Pattern::Outside& first = window.pattern.outside[source.index];
    if (runner_.task(begin_ + first.step).inputs[first.input] != task.inputs[i]) {
      return false;
    }
  }
  return true;
}

void Engine::settle() {
  while (held_ > 0) {
    const uint64_t begin = begin_;
    const size_t held = held_;
    const WindowPtr window = std::move(complete_);
    held_ = 0;
    complete_ = nullptr;
    candidates_.clear();
    size_t done = 0;
    if (window) {
      run_window(window, begin);
      done = window->size();
    } else {
      run_single(begin);
      done = 1;
    }
    for (; done < held; ++done) {
      take(begin + done);
    }
  }
}

std::vector<Place> Engine::missing(const Window& window, uint64_t begin) {
  const auto& steps = window.pattern.steps;
  std::vector<Place> found;
  for (uint32_t step = 0; step < steps.size(); ++step) {
    const Task& task = runner_.task(begin + step);
    for (uint32_t output = 0; output < task.outputs.size(); ++output) {
      // The task itself and the tasks after it refer to it.
      if (task.outputs[output].use_count() > 1 + steps[step].uses[output] &&
          !window.gives({step, output})) {
        found.push_back({step, output});
      }
    }
  }
  return found;
}

std::vector<Place> Engine::missing_for_long(const Window& window, uint64_t begin) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const bool last =
        runner_.has(begin + window.size()) || std::chrono::steady_clock::now() > deadline;
    std::vector<Place> found = missing(window, begin);
    if (last || found.empty()) {
      return found;
    }
    std::this_thread::yield();
  }
}

void Engine::run_window(const WindowPtr& window, uint64_t begin) {
  library_.used(window);
  const std::vector<Place> wanted = missing_for_long(*window, begin);
  const bool single = window->trial.wants_single();
  if (wanted.empty() && !single && run_fused(window, begin)) {
    return;
  }
  run_singles(*window, begin, single);
  if (!wanted.empty() && (window->strikes += kStrike) > kStrike) {
    library_.widen(window, wanted);
  }
}

bool Engine::run_fused(const WindowPtr& window, uint64_t begin) {
  const c10::StreamId stream = runner_.task(begin).stream;
  const bool timed = window->trial.open();
  if (timed) {
    runner_.drain(stream);
  }
  const auto started = std::chrono::steady_clock::now();
  if (!launch(*window, begin)) {
    return false;
  }
  if (timed) {
    runner_.drain(stream);
    window->trial.add_fused(std::chrono::steady_clock::now() - started);
    if (!window->trial.open() && window->trial.lost()) {
      window->drop("its program is slower than its ops");
    }
  }
  window->strikes -= window->strikes > 0 ? 1 : 0;
  window->fused_runs.fetch_add(1, std::memory_order_relaxed);
  runtime::counters().windows_run.fetch_add(1, std::memory_order_relaxed);
  runtime::counters().ops_in_windows.fetch_add(window->size(), std::memory_order_relaxed);
  runner_.release(begin + window->size());
  return true;
}

void Engine::run_singles(Window& window, uint64_t begin, bool timed) {
  const c10::StreamId stream = runner_.task(begin).stream;
  if (timed) {
    runner_.drain(stream);
  }
  const auto started = std::chrono::steady_clock::now();
  for (size_t i = 0; i < window.size(); ++i) {
    Task& task = runner_.task(begin + i);
    runner_.process(task);
    runner_.release(begin + i + 1);
  }
  if (timed) {
    runner_.drain(stream);
    window.trial.add_single(std::chrono::steady_clock::now() - started);
  }
  window.single_runs.fetch_add(1, std::memory_order_relaxed);
}

bool Engine::launch(const Window& window, uint64_t begin) {
  const Pattern& pattern = window.pattern;
  Task fused;
  fused.stream = runner_.task(begin).stream;
  fused.program = window.program;
  for (const Pattern::Outside& first : pattern.outside) {
    fused.inputs.push_back(runner_.task(begin + first.step).inputs[first.input]);
  }
  if (runner_.await_operands(fused)) {
    return false;  // each op says what the failure means for it
  }
  for (const Place& place : window.outputs) {
    fused.outputs.push_back(runner_.task(begin + place.step).outputs[place.output]);
  }
  // The window's own references go first, so that the queue sees who else has any: a value that
  // nobody else refers to is donated.
  for (size_t step = 0; step < pattern.steps.size(); ++step) {
    runner_.task(begin + step).inputs.clear();
  }
  bool launched = true;
  try {
    runner_.launch(fused);
  } catch (const std::exception&) {  // NOLINT: the ops themselves say what is wrong
    launched = false;
  }
  for (size_t step = 0; step < pattern.steps.size(); ++step) {
    Task& task = runner_.task(begin + step);
    if (launched) {
      task.outputs.clear();
      task.program.reset();
      continue;
    }
    for (const Source& source : pattern.steps[step].inputs) {
      task.inputs.push_back(
          source.outside()
              ? fused.inputs[source.index]
              : runner_.task(begin + static_cast<uint64_t>(source.step)).outputs[source.index]);
    }
  }
  return launched;
}

void Engine::run_single(uint64_t slot) {
  Task& task = runner_.task(slot);
  if (!recorder_.empty() && recorder_.stream() != task.stream) {
    close(End::kStream);
  }
  recorder_.add(task, slot);
  runner_.process(task);
  runner_.release(slot + 1);
  const size_t size = recorder_.size();
  if (size == kContext && close_at_ == 0) {
    close_at_ = cuts_.length(recorder_.opening());
  }
  if (size == close_at_) {
    close(End::kPeriod);
  } else if (size >= kContext && cuts_.contains(recorder_.context())) {
    close(End::kLearned);
  } else if (size == kMaxSteps) {
    close(End::kFull);
  } else if (close_at_ == 0 && size % kLookEvery == 0) {
    look_for_period();
  }
}

void Engine::look_for_period() {
  const auto& steps = recorder_.pattern().steps;
  const size_t period = period_of(steps);
  if (period == 0) {
    return;
  }
  // Stretches shall begin where this one did, as far as what it repeats lets see.
  const size_t length = period * ((kMinPeriod + period - 1) / period);
  size_t begin = steps.size() - steps.size() % period;
  while (begin + kContext > steps.size()) {
    begin -= period;
  }
  cuts_.set_length(hash_programs(steps, begin, begin + kContext), length);
  junk_ = true;
  close_at_ = steps.size() - steps.size() % period + period;
}

void Engine::close(End end) {
  close_at_ = 0;
  if (recorder_.empty()) {
    junk_ = false;
    return;
  }
  if (end == End::kRead && recorder_.size() >= kContext) {
    const uint64_t context = recorder_.context();
    if (cuts_.add(context)) {
      library_.retire(context);
    }
  }
  if (junk_) {
    junk_ = false;
    recorder_.clear();
    return;
  }
  learn();
  closed_ = recorder_.take();
  closed_end_ = end;
}

void Engine::learn() {
  if (closed_) {
    library_.learn(std::move(*closed_), closed_end_);
    closed_.reset();
  }
}

}  // namespace tn::adaptive
