// The devices of this process: their configuration, their current index per thread, their queues.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/client.h"
#include "runtime/fork.h"
#include "runtime/queue.h"
#include "runtime/value.h"

namespace tn::runtime {

// What starting the client needs; found lazily, when a tensor first needs the device.
struct ClientConfig {
  std::string plugin_path;
  pjrt::NamedValues options;
};

// How ops run: one program each, the same and waited for, or windows of them as one program.
enum class EagerMode : uint8_t { kStrict, kBlocking, kAdaptive };

class Runtime {
 public:
  static constexpr int kMaxDevices = 64;
  static constexpr int kStreamsPerDevice = 32;

  static Runtime& instance();

  // Light configuration, at import. `find_client` is called once, at first use, and may throw.
  void configure(int device_count, size_t memory_limit, std::function<ClientConfig()> find_client);
  // What gives each queue its lookahead; set before the start.
  void set_lookahead(LaunchQueue::MakeLookahead make) { make_lookahead_ = std::move(make); }

  int device_count() const noexcept { return device_count_; }
  size_t memory_limit() const noexcept { return memory_limit_; }
  void set_memory_limit(size_t bytes) noexcept { memory_limit_ = bytes; }
  bool initialized() const noexcept { return started_.load(std::memory_order_acquire); }
  // Starts the client and the launch queues if that has not happened yet.
  void ensure_started() {
    check_not_forked();
    if (!initialized()) {
      start();
    }
  }
  const std::shared_ptr<pjrt::Client>& client() {
    ensure_started();
    return client_;
  }
  // The plugin's device number behind a neuron device index: devices beyond the plugin's share its
  // last.
  int ordinal(c10::DeviceIndex device) { return device % client()->device_count(); }
  LaunchQueue& queue(c10::DeviceIndex device) {
    ensure_started();
    return *queues_[static_cast<size_t>(device)];
  }

  void set_mode(EagerMode mode) noexcept { mode_ = mode; }
  EagerMode mode() const noexcept { return mode_.load(std::memory_order_relaxed); }
  bool blocking() const noexcept { return mode() == EagerMode::kBlocking; }

  // Queues an execution and, in blocking mode, waits for it and raises its error. For `publish` see
  // LaunchQueue::submit.
  void submit(c10::DeviceIndex device, Task&& task, c10::function_ref<void()> publish = nullptr);

  void synchronize(c10::DeviceIndex device);
  void shutdown();

  // Per-thread current device and streams.
  c10::DeviceIndex current_device() const noexcept;
  // Raises for an index out of range, naming the number of devices.
  void set_current_device(c10::DeviceIndex device);
  void set_current_device_unchecked(c10::DeviceIndex device) noexcept;
  void check_index(c10::DeviceIndex device) const;
  c10::StreamId current_stream(c10::DeviceIndex device) const noexcept;
  void set_current_stream(c10::DeviceIndex device, c10::StreamId stream) noexcept;
  c10::StreamId next_stream() noexcept;

 private:
  Runtime() = default;
  void start();

  int device_count_ = 1;
  std::atomic<size_t> memory_limit_{SIZE_MAX};
  std::function<ClientConfig()> find_client_;
  LaunchQueue::MakeLookahead make_lookahead_;
  std::recursive_mutex start_mutex_;
  std::atomic<bool> started_{false};
  std::atomic<EagerMode> mode_{EagerMode::kStrict};
  std::atomic<uint64_t> stream_counter_{0};
  std::shared_ptr<pjrt::Client> client_;
  std::vector<std::unique_ptr<LaunchQueue>> queues_;
};

// A buffer's worth of host bytes as a ready value on `device`, dense and of one dimension.
ValuePtr value_from_host(c10::DeviceIndex device, const void* data, c10::ScalarType dtype,
                         int64_t numel);

// Blocks until the value is no longer pending, and sees to it that its queue does not hold it back.
Value::State demand(const Value& value);

// Blocks until the value is computed, raising its error. Must be called without the GIL where it
// may take long.
void await_value(const Value& value);

// Copies a whole value to host memory of numel * itemsize bytes. Undefined values read as zeros.
void value_to_host(const Value& value, void* data);

}  // namespace tn::runtime
