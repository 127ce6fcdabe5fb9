// Tests of csrc/runtime and csrc/adaptive below Python with many threads, for the sanitizers
// (`make sanitize`). Without them it is a test of values.
//
// usage: queue_test <plugin>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "adaptive/engine.h"
#include "expect.h"
#include "programs.h"
#include "runtime/device.h"
#include "runtime/metrics.h"
#include "runtime/storage.h"

namespace {

using namespace tn::runtime;
using namespace tn::testing;
using tn::adaptive::Engine;
using tn::adaptive::Requests;
using tn::adaptive::Window;
using tn::adaptive::WindowPtr;
using State = Value::State;

// Neuron devices 0 and 2 are the plugin's device 0: they can share values.
constexpr int kDevices = 3;
constexpr int kOrdinals = 2;
constexpr int kCapacity = 4096;  // of a launch queue

std::array<std::array<ProgramPtr, kKinds.size()>, kOrdinals> programs;

struct Tensor {
  ValuePtr value;
  Numbers expected;
};

// Where and how a thread issues its ops.
struct Lane {
  c10::DeviceIndex device = 0;
  c10::StreamId stream = 0;
  bool fusable = false;

  LaunchQueue& queue() const { return Runtime::instance().queue(device); }
  int ordinal() const { return device % kOrdinals; }

  Tensor tensor(uint32_t first) const {
    const Numbers numbers = {first, first + 1, first * 3, first ^ 0xFF};
    return {value_from_host(device, numbers.data(), c10::ScalarType::UInt32, numbers.size()),
            numbers};
  }

  // Takes the operands, as a call does whose caller keeps copies of what it still wants. The first
  // result becomes what `written` refers to.
  std::vector<Tensor> run(Kind kind, std::vector<Tensor> operands,
                          StorageHandle* written = nullptr) const {
    Task task;
    task.stream = stream;
    task.fusable = fusable;
    task.program = programs[static_cast<size_t>(ordinal())][static_cast<size_t>(kind)];
    std::vector<Numbers> numbers;
    for (Tensor& operand : operands) {
      task.inputs.push_back(std::move(operand.value));
      numbers.push_back(operand.expected);
    }
    std::vector<Tensor> results;
    for (const Numbers& expected : compute(kind, numbers)) {
      task.outputs.push_back(c10::make_intrusive<Value>(State::kPending, c10::ScalarType::UInt32,
                                                        expected.size(), &queue()));
      results.push_back({task.outputs.back(), expected});
    }
    Runtime::instance().submit(device, std::move(task), [&] {
      if (written != nullptr) {
        written->exchange(task.outputs[0]);
      }
    });
    return results;
  }
  Tensor increment(Tensor x) const { return run(Kind::kIncrement, {std::move(x)})[0]; }
  Tensor add(Tensor x, Tensor y) const { return run(Kind::kAdd, {std::move(x), std::move(y)})[0]; }
  void update(Tensor& x, Tensor y) const {
    Tensor before = std::move(x);
    x = run(Kind::kUpdate, {std::move(before), std::move(y)})[0];
  }
  void submit(Task::Kind kind, EventStatePtr event) const {
    Task task;
    task.kind = kind;
    task.stream = stream;
    task.event = std::move(event);
    queue().submit(std::move(task));
  }
  EventStatePtr record() const {
    auto event = std::make_shared<EventState>();
    submit(Task::Kind::kRecord, event);
    return event;
  }
  // Holds the queue up until the gate is opened.
  void block(const std::shared_future<void>& gate) const {
    Task task;
    task.kind = Task::Kind::kCall;
    task.call = [gate] { gate.wait(); };
    queue().submit(std::move(task));
  }
};

struct Gate {
  std::promise<void> promise;
  std::shared_future<void> future = promise.get_future().share();
  void open() { promise.set_value(); }
};

void check(const Tensor& tensor) {
  Numbers numbers{};
  value_to_host(*tensor.value, numbers.data());
  EXPECT(numbers == tensor.expected);
}

template <class F>
void in_threads(int count, F function) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&function, i] { function(i); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The message of the exception that reading the tensor throws, or "" if it throws none.
std::string error_of(const Tensor& tensor) {
  try {
    await_value(*tensor.value);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// ---- the queue

void test_back_pressure() {
  Gate gate;
  Lane{}.block(gate.future);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  in_threads(4, [](int number) {
    const Lane lane{0, number % 2};
    Tensor x = lane.tensor(static_cast<uint32_t>(number));
    for (int i = 0; i < 2500; ++i) {
      x = lane.increment(std::move(x));
      if (i % 500 == 499) {
        check(x);
      }
    }
    EXPECT(x.expected[0] == static_cast<uint32_t>(number) + 2500);
    check(x);
  });
  opener.join();
}

void test_events_and_streams() {
  in_threads(4, [](int number) {
    const Lane first{0, number};
    const Lane second{static_cast<c10::DeviceIndex>(number % 2 == 0 ? 2 : 0), number + 8};
    Tensor x = first.tensor(7);
    for (int i = 0; i < 60; ++i) {
      x = first.increment(std::move(x));
      const EventStatePtr event = first.record();
      second.submit(Task::Kind::kBlock, event);
      x = second.add(x, x);
      if (i % 8 == 0) {
        event->wait();
        EXPECT(event->done() && event->completed_at().time_since_epoch().count() > 0);
      }
      if (i % 16 == 0) {
        second.queue().synchronize(number + 8);
        second.queue().idle(number + 8);  // not if others' tasks are in the way
        EXPECT(x.value->state() == State::kReady);
      }
    }
    Runtime::instance().synchronize(second.device);
    check(x);
  });
}

// Both queues make programs of the same values, one of which nobody has written.
void test_values_of_two_queues() {
  for (int round = 0; round < 60; ++round) {
    Gate gate;
    Lane{0}.block(gate.future);
    Lane{2}.block(gate.future);
    const Tensor undefined = {
        c10::make_intrusive<Value>(State::kUndefined, c10::ScalarType::UInt32, 4), Numbers{}};
    const Tensor shared[] = {Lane{0}.increment(undefined), Lane{2}.increment(undefined)};
    gate.open();
    in_threads(2, [&](int number) {
      const Lane lane{static_cast<c10::DeviceIndex>(2 * number)};
      Tensor sum = lane.add(shared[0], shared[1]);
      for (int i = 0; i < 20; ++i) {
        sum = lane.add(std::move(sum), number == 0 ? shared[1] : shared[0]);
        sum = lane.add(std::move(sum), undefined);
      }
      check(sum);
    });
    check(undefined);
  }
}

// Two queues wait for each other's values while one of them is full.
void test_full_queue_and_another_one() {
  const Lane a{0};
  const Lane b{2};
  Gate gate_a;
  a.block(gate_a.future);
  Tensor from_b = b.increment(b.tensor(1));
  Gate gate_b;
  b.block(gate_b.future);
  const Tensor early = a.increment(from_b);
  const Tensor from_a = a.increment(a.tensor(2));
  Tensor x = b.add(from_a, from_b);
  std::atomic<int> issued{0};
  std::thread filler([&] {
    for (; issued < 2 * kCapacity; ++issued) {
      x = b.increment(std::move(x));
    }
  });
  while (issued < kCapacity - 10) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  gate_a.open();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  gate_b.open();
  filler.join();
  check(x);
  check(early);
}

// More reads of a value that is there than a queue has places, while its thread sleeps.
void test_reads_of_a_quiet_queue() {
  const Tensor x = Lane{}.increment(Lane{}.tensor(3));
  check(x);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  in_threads(2, [&](int) {
    for (int i = 0; i < kCapacity; ++i) {
      EXPECT(demand(*x.value) == State::kReady);
    }
  });
}

void test_failures() {
  in_threads(3, [](int number) {
    const Lane lane{static_cast<c10::DeviceIndex>(number)};
    const std::array<uint32_t, 2> short_numbers = {1, 2};
    const Tensor wrong = {value_from_host(lane.device, short_numbers.data(),
                                          c10::ScalarType::UInt32, short_numbers.size()),
                          Numbers{}};
    const Tensor good = lane.increment(lane.tensor(5));
    Tensor x = lane.increment(wrong);
    const std::string first = error_of(x);
    EXPECT(first.find("in increment") != std::string::npos);
    for (int i = 0; i < 20; ++i) {
      x = i % 2 == 0 ? lane.add(good, std::move(x)) : lane.run(Kind::kBoth, {x, good})[1];
    }
    EXPECT(error_of(x) == first);
    const Lane other{static_cast<c10::DeviceIndex>(number == 0 ? 2 : number)};
    EXPECT(error_of(other.increment(x)) == first);
    check(lane.increment(good));
  });
}

// A queue that is shut down runs all that it has taken, and takes nothing more.
void test_shutdown() {
  const auto& client = Runtime::instance().client();
  for (int round = 0; round < 200; ++round) {
    LaunchQueue queue(client, 0, [](TaskRunner& runner, int ordinal) {
      return std::make_unique<Engine>(runner, ordinal);
    });
    std::atomic<int> ran{0};
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 2; ++number) {
      threads.emplace_back([&] {
        try {
          while (true) {
            Task task;
            task.kind = Task::Kind::kCall;
            task.call = [&ran] { ++ran; };
            queue.submit(std::move(task));
            ++taken;
          }
        } catch (const c10::Error&) {  // NOLINT: the queue has been shut down
        }
        queue.cut();
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(round * 5));
    queue.shutdown();
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT(ran == taken);
  }
}

// Threads that write the same storage in place, at first into a full queue, while others read it.
void test_storages() {
  StorageHandle handle(0, sizeof(Numbers), 0);
  Gate gate;
  Lane{}.block(gate.future);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  in_threads(5, [&](int number) {
    for (int i = 0; i < (number < 4 ? kCapacity / 2 : 200); ++i) {
      const ValuePtr before = handle.value_or_undefined(c10::ScalarType::UInt32);
      if (number < 4) {
        Lane{}.run(Kind::kIncrement, {{before, Numbers{}}}, &handle);
      } else {
        Numbers numbers{};
        value_to_host(*before, numbers.data());
        EXPECT(numbers[0] == numbers[3] && numbers[0] <= 2 * kCapacity);
      }
    }
  });
  opener.join();
}

// ---- adaptive mode

// Serves what the engines ask for until there will be no more.
void serve(const tn::pjrt::Client& client) {
  int count = 0;
  while (!Requests::instance().stopped()) {
    const WindowPtr window = Requests::instance().next(std::chrono::milliseconds(20));
    if (!window) {
      continue;
    }
    ProgramPtr program;
    if (++count % 5 != 0) {
      try {
        program = make_fused(client, window->pattern, window->outputs, window->ordinal);
      } catch (const tn::pjrt::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ++failures;
      }
    }
    Requests::instance().settle(window, std::move(program), "none for this one");
  }
}

// What the report of windows reads, and settings that change.
void look(const std::atomic<bool>& done) {
  size_t seen = 0;
  while (!done) {
    for (const Engine* engine : Engine::all()) {
      for (const WindowPtr& window : engine->library().windows()) {
        const Window::Summary now = window->summary();
        seen += now.outputs + now.compilations + window->fused_runs + now.dropped.size();
        seen += window->trial.fused() < window->trial.single() ? 1 : 0;
      }
    }
    tn::adaptive::Tuning tuning = tn::adaptive::tuning();
    tuning.max_windows = static_cast<uint32_t>(2 + seen % 8);
    tn::adaptive::set_tuning(tuning);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A training loop: weights that are updated in place, losses read now and then, some values kept.
void train(const Lane& lane, int number, int iterations) {
  std::minstd_rand random(static_cast<uint32_t>(number) + 1);
  std::vector<Tensor> weights;
  for (uint32_t i = 0; i < 4; ++i) {
    weights.push_back(lane.tensor(i + 10));
  }
  std::deque<Tensor> kept;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    Tensor x = lane.tensor(static_cast<uint32_t>(iteration));
    for (Tensor& weight : weights) {
      std::vector<Tensor> both = lane.run(Kind::kBoth, {std::move(x), weight});
      Tensor gradient = lane.increment(both[1]);
      x = lane.add(std::move(both[0]), gradient);
      lane.update(weight, std::move(gradient));
    }
    if (iteration % 10 == 0 || iteration == iterations / 2 + number) {
      check(x);
    }
    if (random() % 16 == 0) {
      kept.push_back(lane.add(x, weights[random() % weights.size()]));
      kept.push_back(weights[0]);
    }
    if (kept.size() > 8) {
      check(kept.front());
      kept.pop_front();
    }
    if (iteration % 64 == 63) {
      lane.record()->wait();
    }
  }
  for (const Tensor& tensor : kept) {
    check(tensor);
  }
  for (const Tensor& weight : weights) {
    check(weight);
  }
}

void test_windows(bool wait, uint32_t trials, int iterations) {
  tn::adaptive::set_tuning({3, 4, 64, wait, trials});
  const uint64_t before = counters().windows_run;
  // One thread a device, and a second one whose ops come in between.
  in_threads(kDevices + 1, [&](int number) {
    train(Lane{static_cast<c10::DeviceIndex>(number % kDevices), 0, true}, number, iterations);
  });
  const uint64_t fused = counters().windows_run - before;
  std::printf("queue_test: %llu windows ran as one program\n",
              static_cast<unsigned long long>(fused));
  EXPECT(fused > 0);
}

void test_adaptive() {
  std::atomic<bool> done{false};
  std::thread server([] { serve(*Runtime::instance().client()); });
  std::thread looker([&] { look(done); });
  test_windows(/*wait=*/true, /*trials=*/0, 100);
  test_windows(/*wait=*/false, /*trials=*/4, 400);
  test_failures();
  test_values_of_two_queues();
  Requests::instance().stop();
  in_threads(kDevices, [](int number) {
    train(Lane{static_cast<c10::DeviceIndex>(number), 0, true}, number + 50, 50);
  });
  done = true;
  server.join();
  looker.join();
}

constexpr std::pair<const char*, void (*)()> kTests[] = {
    {"back-pressure", test_back_pressure},
    {"events and streams", test_events_and_streams},
    {"values of two queues", test_values_of_two_queues},
    {"a full queue and another one", test_full_queue_and_another_one},
    {"reads of a quiet queue", test_reads_of_a_quiet_queue},
    {"failures", test_failures},
    {"storages", test_storages},
};

void load(const char* plugin) {
  Runtime& runtime = Runtime::instance();
  runtime.set_lookahead([](TaskRunner& runner, int ordinal) -> std::unique_ptr<Lookahead> {
    return std::make_unique<Engine>(runner, ordinal);
  });
  runtime.configure(kDevices, SIZE_MAX, [plugin] {
    return ClientConfig{plugin, {{"cpu_device_count", int64_t{kOrdinals}}}};
  });
  // The first use comes from several threads at once.
  in_threads(4, [&](int) { runtime.ensure_started(); });
  for (int ordinal = 0; ordinal < kOrdinals; ++ordinal) {
    for (const Kind kind : kKinds) {
      programs[static_cast<size_t>(ordinal)][static_cast<size_t>(kind)] =
          make_program(*runtime.client(), kind, ordinal);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: queue_test <plugin>\n");
    return 2;
  }
  ::alarm(500);  // threads that wait for each other would do so for ever
  load(argv[1]);
  for (const EagerMode mode : {EagerMode::kStrict, EagerMode::kAdaptive}) {
    Runtime::instance().set_mode(mode);
    for (const auto& [name, test] : kTests) {
      std::fprintf(stderr, "queue_test: %s\n", name);  // says which one hangs
      test();
    }
  }
  std::fprintf(stderr, "queue_test: shutdown\n");
  test_shutdown();
  std::fprintf(stderr, "queue_test: windows\n");
  test_adaptive();
  const Tensor last = Lane{}.increment(Lane{}.tensor(1));
  Runtime::instance().shutdown();
  check(last);
  EXPECT(error_of(last).empty());
  try {
    Lane{}.increment(last);
    EXPECT(false);
  } catch (const c10::Error& error) {
    EXPECT(std::string(error.what()).find("shut down") != std::string::npos);
  }
  std::printf("queue_test: %d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}
