#include "adaptive/window.h"

#include <algorithm>

namespace tn::adaptive {

const char* name_of(End end) noexcept {
  switch (end) {
    case End::kRead:
      return "a value is read";
    case End::kOther:
      return "an event, a compiled graph or an op that runs by itself";
    case End::kLearned:
      return "a value is read here now and then";
    case End::kPeriod:
      return "the ops repeat";
    case End::kFull:
      return "the size limit";
    case End::kStream:
      return "another stream";
    case End::kWindow:
      return "as the window before it";
  }
  return "";
}

bool Window::gives(const Place& place) const {
  return std::binary_search(outputs.begin(), outputs.end(), place);
}

bool Window::want(std::vector<Place> places) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (state.load(std::memory_order_relaxed) == State::kDropped) {
    return false;
  }
  outputs = std::move(places);
  ++compilations_;
  state.store(State::kCompiling, std::memory_order_release);
  return true;
}

void Window::install(runtime::ProgramPtr made) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (state.load(std::memory_order_relaxed) == State::kCompiling) {
    program = std::move(made);
    state.store(State::kReady, std::memory_order_release);
  }
}

void Window::refuse(const std::string& why) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (state.load(std::memory_order_relaxed) == State::kCompiling) {
    drop_locked(why);
  }
}

void Window::drop(const std::string& why) {
  const std::lock_guard<std::mutex> guard(mutex_);
  drop_locked(why);
}

void Window::drop_locked(const std::string& why) {
  if (state.load(std::memory_order_relaxed) != State::kDropped) {
    dropped_ = why;
    state.store(State::kDropped, std::memory_order_release);
  }
}

Window::Summary Window::summary() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return {state.load(std::memory_order_relaxed), outputs.size(), compilations_, dropped_};
}

Requests& Requests::instance() {
  // Never destroyed: threads wait on it until the process ends.
  static auto* const requests = new Requests();  // NOLINT
  return *requests;
}

void Requests::add(WindowPtr window) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (stopped_) {
    window->drop("the process is ending");
    return;
  }
  waiting_.push_back(std::move(window));
  ++unsettled_;
  changed_.notify_all();
}

WindowPtr Requests::next(std::chrono::duration<double> patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return stopped_ || !waiting_.empty(); });
  if (stopped_ || waiting_.empty()) {
    return nullptr;
  }
  WindowPtr window = std::move(waiting_.front());
  waiting_.pop_front();
  return window;
}

void Requests::settle(const WindowPtr& window, runtime::ProgramPtr program,
                      const std::string& why) {
  if (program) {
    window->install(std::move(program));
  } else {
    window->refuse(why);
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  --unsettled_;
  changed_.notify_all();
}

void Requests::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || unsettled_ == 0; });
}

bool Requests::stopped() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return stopped_;
}

void Requests::stop() {
  const std::lock_guard<std::mutex> guard(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace tn::adaptive
