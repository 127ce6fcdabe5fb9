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

void Window::drop(const std::string& why) {
  dropped = why;
  state.store(State::kDropped, std::memory_order_release);
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
  if (window->state.load() == Window::State::kCompiling) {
    if (program) {
      window->program = std::move(program);
      window->state.store(Window::State::kReady, std::memory_order_release);
    } else {
      window->drop(why);
    }
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
