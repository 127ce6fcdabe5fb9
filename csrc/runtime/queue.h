// The launch queue: one bounded queue and one thread per device. Callers resolve what to run and
// queue it; the thread calls PJRT, so that the two costs overlap.
#pragma once

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "pjrt/client.h"
#include "runtime/lookahead.h"
#include "runtime/task.h"

namespace tn::runtime {

class LaunchQueue final : public TaskRunner {
 public:
  using MakeLookahead = std::function<std::unique_ptr<Lookahead>(TaskRunner&, int ordinal)>;

  LaunchQueue(std::shared_ptr<pjrt::Client> client, int ordinal,
              const MakeLookahead& make_lookahead);
  ~LaunchQueue() override;
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  // Adds a task; blocks while the queue is full (back-pressure). Tasks run in the order of
  // submission. `publish` lets other threads see the outputs; it is called when the task has its
  // place, so that tasks which use them come after it.
  void submit(Task&& task, c10::function_ref<void()> publish = nullptr);

  // How many tasks it has been given.
  uint64_t submitted() const noexcept { return head_.load(std::memory_order_acquire); }

  // Says that a value is about to be waited for: nothing submitted so far is held back any longer.
  void cut();

  // Blocks until all work submitted to `stream` (or to any, if negative) has completed on the
  // device.
  void synchronize(c10::StreamId stream);
  // Whether that is so already.
  bool idle(c10::StreamId stream);
  // Whether a marker submitted just now has completed, for a query: waits for it to pass the queue,
  // not for the work before it.
  bool has_come(const EventState& state) const;

  // Completes what is queued and joins the thread. Later submissions are refused.
  void shutdown();

 private:
  static constexpr size_t kCapacity = 4096;
  // Programs of a stream that may be running at once: more would not run faster, and their results
  // would take memory without bound. Small ones may be many: when those are too many the thread
  // sleeps until most are done, since to be woken for each would take longer than they do.
  static constexpr size_t kInFlight = 8;
  static constexpr size_t kSmallInFlight = 32;
  // What small programs touch all together.
  static constexpr size_t kSmallBytes = size_t{1} << 20;
  // On the host's CPU large programs run one at a time: each uses all cores anyway, and the memory
  // that one frees is still in the caches when the next one asks for it. Two at once spread over
  // memory instead, and take twice as long.
  static constexpr size_t kInFlightOnHost = 1;

  struct Running {
    pjrt::Event done;
    size_t bytes;  // of operands and results
  };

  Task& task(uint64_t slot) override { return ring_[slot % kCapacity]; }
  void process(Task& task) override;
  std::shared_ptr<const Failure> await_operands(const Task& task) override;
  void launch(Task& task) override;
  void drain(c10::StreamId stream) override;
  bool has(uint64_t slot) const override { return slot < submitted(); }
  void release(uint64_t slot) override;

  // False once shut down.
  bool push(Task&& task, bool urgent, c10::function_ref<void()> publish = nullptr);
  void run();
  // Nothing to take: spins, then sleeps.
  void rest(uint64_t slot, uint32_t& spins);
  void execute(Task& task);
  // Waits until a program that touches so many bytes may start.
  void make_room(std::deque<Running>& running, size_t bytes);
  void record(Task& task);
  const pjrt::Buffer& buffer_of(Value& value);
  void wake() noexcept;

  std::shared_ptr<pjrt::Client> client_;
  int ordinal_;
  std::vector<Task> ring_;
  std::mutex producers_;
  std::atomic<uint64_t> head_{0};  // next slot to fill
  std::atomic<uint64_t> tail_{0};  // next slot to run
  std::atomic<uint32_t> sleeping_{0};
  std::atomic<bool> stopping_{false};
  std::mutex sleep_mutex_;
  std::condition_variable work_;
  std::condition_variable room_;
  std::atomic<uint32_t> waiting_for_room_{0};
  size_t in_flight_;  // how many that are not small
  // Launched programs of each stream, oldest first; only the launch thread touches them.
  std::unordered_map<c10::StreamId, std::deque<Running>> running_;
  std::vector<PJRT_Buffer*> arguments_;
  std::vector<int64_t> kept_;
  std::vector<PJRT_Buffer*> results_;
  std::unique_ptr<Lookahead> lookahead_;
  std::thread thread_;
};

}  // namespace tn::runtime
