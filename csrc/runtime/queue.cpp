#include "runtime/queue.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <chrono>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/fork.h"
#include "runtime/metrics.h"

namespace tn::runtime {
namespace {

constexpr uint32_t kSpins = 4000;  // tens of microseconds: cheaper than a wake-up between two ops
// How long a window that has begun waits for its next op. A thread that shares its core with others
// may well be away for so long.
constexpr auto kPatience = std::chrono::milliseconds(5);

std::string describe(const Task& task, const std::string& reason) {
  std::string text = reason + " (in " + task.program->label;
  if (!task.program->origin.empty()) {
    text += ", first issued at " + task.program->origin;
  }
  return text + ")";
}

size_t bytes_of(const Value& value) {
  return static_cast<size_t>(value.numel()) * c10::elementSize(value.dtype());
}

void wait_for(const pjrt::Event& event) {
  try {
    event.await();
  } catch (const pjrt::Error&) {  // NOLINT: whoever reads the value gets the error
  }
}

// Programs of a stream end in their order: to wait for the last one first is to sleep once.
template <typename Iterator>
void wait_for_all(Iterator begin, Iterator end) {
  while (end != begin) {
    wait_for((--end)->done);
  }
}

// PJRT's code for an exhausted resource (absl's canonical code space).
constexpr int kResourceExhausted = 8;

}  // namespace

LaunchQueue::LaunchQueue(std::shared_ptr<pjrt::Client> client, int ordinal,
                         const MakeLookahead& make_lookahead)
    : client_(std::move(client)),
      ordinal_(ordinal),
      ring_(kCapacity),
      in_flight_(client_->is_cpu() ? kInFlightOnHost : kInFlight),
      lookahead_(make_lookahead(*this, ordinal)) {
  thread_ = std::thread([this] {
    c10::setThreadName("neuron-launch");
    run();
  });
}

LaunchQueue::~LaunchQueue() { shutdown(); }

void LaunchQueue::shutdown() {
  {
    // Not between a submitter's look at it and its task.
    const std::lock_guard<std::mutex> guard(producers_);
    if (stopping_.exchange(true)) {
      return;
    }
  }
  wake();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void LaunchQueue::wake() noexcept {
  std::lock_guard<std::mutex> guard(sleep_mutex_);
  work_.notify_one();
}

void LaunchQueue::submit(Task&& task, c10::function_ref<void()> publish) {
  if (Runtime::instance().mode() == EagerMode::kAdaptive) {
    // Another queue's values may be held back there. It is told here, where windows then end at the
    // same place every time, and not by this queue's thread: it would wait for room in the other
    // queue, whose thread may be waiting for a value of this one.
    for (const ValuePtr& input : task.inputs) {
      LaunchQueue* const other = input->producer().queue;
      if (other != nullptr && other != this) {
        other->cut();
      }
    }
  }
  TORCH_CHECK(push(std::move(task), /*urgent=*/true, publish),
              "the neuron runtime has been shut down (interpreter exit)");
}

void LaunchQueue::cut() {
  if (in_forked_child()) {
    return;
  }
  Task task;
  task.kind = Task::Kind::kCut;
  // The thread never sleeps while it holds something back. After a shutdown nothing is held, and
  // what is ready can be read.
  push(std::move(task), /*urgent=*/false);
}

bool LaunchQueue::push(Task&& task, bool urgent, c10::function_ref<void()> publish) {
  std::lock_guard<std::mutex> guard(producers_);
  if (stopping_.load(std::memory_order_relaxed)) {
    return false;
  }
  const uint64_t slot = head_.load(std::memory_order_relaxed);
  if (slot - tail_.load(std::memory_order_acquire) >= kCapacity) {
    std::unique_lock<std::mutex> lock(sleep_mutex_);
    waiting_for_room_.store(1);
    work_.notify_one();  // it sleeps if all that the queue is full of are cuts
    room_.wait(lock, [&] { return slot - tail_.load(std::memory_order_seq_cst) < kCapacity / 2; });
    waiting_for_room_.store(0);
  }
  for (size_t i = 0; i < task.outputs.size(); ++i) {
    task.outputs[i]->set_place(slot, static_cast<uint32_t>(i));
  }
  if (publish) {
    publish();
  }
  ring_[slot % kCapacity] = std::move(task);
  head_.store(slot + 1, std::memory_order_seq_cst);
  if (urgent && sleeping_.load(std::memory_order_seq_cst) != 0) {
    wake();
  }
  return true;
}

void LaunchQueue::run() {
  uint32_t spins = 0;
  uint64_t slot = 0;
  while (true) {
    if (slot != head_.load(std::memory_order_acquire)) {
      spins = 0;
      lookahead_->take(slot);
      ++slot;
      continue;
    }
    if (stopping_.load(std::memory_order_acquire)) {
      // What was submitted before is seen by now, if not by the look above.
      if (slot == head_.load(std::memory_order_acquire)) {
        lookahead_->pause();
        return;
      }
      continue;
    }
    rest(slot, spins);
  }
}

void LaunchQueue::rest(uint64_t slot, uint32_t& spins) {
  if (++spins < kSpins) {
    __builtin_ia32_pause();
    return;
  }
  spins = 0;
  if (lookahead_->holding()) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (slot == head_.load(std::memory_order_acquire)) {
      if (std::chrono::steady_clock::now() > deadline) {
        lookahead_->pause();
        return;
      }
      std::this_thread::yield();
    }
    return;
  }
  std::unique_lock<std::mutex> lock(sleep_mutex_);
  sleeping_.store(1, std::memory_order_seq_cst);
  work_.wait(lock, [&] {
    return slot != head_.load(std::memory_order_seq_cst) ||
           stopping_.load(std::memory_order_relaxed);
  });
  sleeping_.store(0, std::memory_order_relaxed);
}

void LaunchQueue::release(uint64_t slot) {
  tail_.store(slot, std::memory_order_seq_cst);
  if (waiting_for_room_.load(std::memory_order_seq_cst) != 0) {
    std::lock_guard<std::mutex> guard(sleep_mutex_);
    room_.notify_all();
  }
}

void LaunchQueue::process(Task& task) {
  switch (task.kind) {
    case Task::Kind::kExecute:
      execute(task);
      break;
    case Task::Kind::kRecord:
      record(task);
      break;
    case Task::Kind::kBlock:
      task.event->wait();
      break;
    case Task::Kind::kCall:
      task.call();
      break;
    case Task::Kind::kCut:
      break;
  }
  // Drop the references now, not when the slot is used again: they hold device memory.
  task.inputs.clear();
  task.outputs.clear();
  task.program.reset();
  task.event.reset();
  task.call = nullptr;
}

const pjrt::Buffer& LaunchQueue::buffer_of(Value& value) {
  if (value.state() == Value::State::kUndefined) {
    const std::vector<std::byte> zeros(bytes_of(value), std::byte{0});
    const int64_t dims = value.numel();
    value.define(client_->from_host(zeros.data(), to_pjrt(value.dtype()), &dims, 1, ordinal_));
  }
  return value.buffer();
}

void LaunchQueue::execute(Task& task) {
  std::shared_ptr<const Failure> failure;
  try {
    failure = await_operands(task);
    if (!failure) {
      launch(task);
      return;
    }
  } catch (const pjrt::Error& error) {
    failure = std::make_shared<Failure>(
        Failure{describe(task, error.what()), error.code() == kResourceExhausted});
  } catch (const std::exception& error) {
    failure = std::make_shared<Failure>(Failure{describe(task, error.what()), false});
  }
  for (const ValuePtr& output : task.outputs) {
    if (output->state() == Value::State::kPending) {
      output->set_failure(failure);
    }
  }
}

std::shared_ptr<const Failure> LaunchQueue::await_operands(const Task& task) {
  for (const ValuePtr& input : task.inputs) {
    // This queue's own values are there by now; another's may still have to come.
    if (input->wait() == Value::State::kFailed) {
      return input->failure();
    }
  }
  return nullptr;
}

void LaunchQueue::launch(Task& task) {
  const size_t count = task.inputs.size();
  size_t bytes = 0;
  arguments_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    arguments_[i] = buffer_of(*task.inputs[i]).get();
    bytes += bytes_of(*task.inputs[i]);
  }
  for (const ValuePtr& output : task.outputs) {
    bytes += bytes_of(*output);
  }
  // A parameter is donated if this task holds the last reference to its value.
  kept_.clear();
  for (const int64_t parameter : task.program->donatable) {
    if (task.inputs[static_cast<size_t>(parameter)].use_count() != 1) {
      kept_.push_back(parameter);
    }
  }
  results_.assign(task.outputs.size(), nullptr);
  std::deque<Running>& running = running_[task.stream];
  make_room(running, bytes);
  task.program->executable->execute(arguments_.data(), count, results_.data(), kept_.data(),
                                    kept_.size());
  counters().executions.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < task.outputs.size(); ++i) {
    pjrt::Buffer buffer(client_, results_[i]);
    if (i == 0) {
      pjrt::Event done = buffer.ready_event();
      if (!done.ready()) {
        running.push_back({std::move(done), bytes});
      }
    }
    task.outputs[i]->set_buffer(std::move(buffer));
  }
}

void LaunchQueue::make_room(std::deque<Running>& running, size_t bytes) {
  while (!running.empty() && running.front().done.ready()) {
    running.pop_front();
  }
  for (const Running& program : running) {
    bytes += program.bytes;
  }
  const size_t small = running.size() < kSmallInFlight ? kSmallInFlight : kSmallInFlight / 4;
  size_t over = 0;
  while (running.size() - over >= (bytes > kSmallBytes ? in_flight_ : small)) {
    bytes -= running[over++].bytes;
  }
  const auto end = running.begin() + static_cast<std::ptrdiff_t>(over);
  wait_for_all(running.begin(), end);
  running.erase(running.begin(), end);
}

void LaunchQueue::record(Task& task) {
  // The launch thread itself waits, so that events complete in the order in which they were
  // recorded: callbacks on the programs' completion come in any order.
  drain(task.stream);
  task.event->finish_one();
}

void LaunchQueue::drain(c10::StreamId wanted) {
  for (auto& [stream, running] : running_) {
    if (wanted >= 0 && stream != wanted) {
      continue;
    }
    wait_for_all(running.begin(), running.end());
    running.clear();
  }
}

void LaunchQueue::synchronize(c10::StreamId stream) {
  auto state = std::make_shared<EventState>();
  Task task;
  task.kind = Task::Kind::kRecord;
  task.stream = stream;
  task.event = state;
  submit(std::move(task));
  state->wait();
}

bool LaunchQueue::idle(c10::StreamId stream) {
  auto state = std::make_shared<EventState>();
  Task task;
  task.kind = Task::Kind::kRecord;
  task.stream = stream;
  task.event = state;
  submit(std::move(task));
  return has_come(*state);
}

bool LaunchQueue::has_come(const EventState& state) const {
  // A marker passes the queue in microseconds when nothing is before it; once it has passed, what
  // is still missing is running. A query does not wait for a queue that is held up.
  const uint64_t passed = head_.load(std::memory_order_relaxed);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (!state.done() && tail_.load(std::memory_order_acquire) < passed &&
         std::chrono::steady_clock::now() < patience) {
    std::this_thread::yield();
  }
  return state.done();
}

}  // namespace tn::runtime
