#include "runtime/device.h"

#include <c10/util/Exception.h>

#include <cstring>

#include "runtime/dtype.h"
#include "runtime/fork.h"
#include "runtime/heap.h"
#include "runtime/metrics.h"

namespace tn::runtime {
namespace {

thread_local c10::DeviceIndex t_device = 0;
thread_local std::array<c10::StreamId, Runtime::kMaxDevices> t_streams{};

}  // namespace

Runtime& Runtime::instance() {
  // Never destroyed: tensors may outlive every static object, and the plugin's threads too.
  static Runtime* const runtime = new Runtime();  // NOLINT
  return *runtime;
}

void Runtime::configure(int device_count, size_t memory_limit,
                        std::function<ClientConfig()> find_client) {
  TORCH_CHECK(device_count >= 1 && device_count <= kMaxDevices,
              "the number of neuron devices must be between 1 and ", kMaxDevices, ", got ",
              device_count);
  device_count_ = device_count;
  memory_limit_ = memory_limit;
  find_client_ = std::move(find_client);
}

void Runtime::start() {
  std::lock_guard<std::recursive_mutex> guard(start_mutex_);
  if (initialized()) {
    return;
  }
  TORCH_CHECK(find_client_ != nullptr, "torchneuron is not loaded: import torchneuron");
  const ClientConfig config = find_client_();
  client_ = pjrt::Client::create(pjrt::Api::load(config.plugin_path), config.options);
  if (client_->is_cpu()) {
    keep_freed_memory();
  }
  watch_forks();
  queues_.reserve(static_cast<size_t>(device_count_));
  for (int device = 0; device < device_count_; ++device) {
    queues_.push_back(
        std::make_unique<LaunchQueue>(client_, device % client_->device_count(), make_lookahead_));
  }
  started_.store(true, std::memory_order_release);
}

void Runtime::submit(c10::DeviceIndex device, Task&& task, c10::function_ref<void()> publish) {
  if (!blocking()) {
    queue(device).submit(std::move(task), publish);
    return;
  }
  const c10::SmallVector<ValuePtr, 2> outputs(task.outputs);
  queue(device).submit(std::move(task), publish);
  for (const ValuePtr& output : outputs) {
    await_value(*output);
  }
}

void Runtime::synchronize(c10::DeviceIndex device) {
  if (initialized() && !in_forked_child()) {
    queue(device).synchronize(-1);
  }
}

void Runtime::shutdown() {
  if (initialized() && !in_forked_child()) {
    for (auto& queue : queues_) {
      queue->shutdown();
    }
  }
}

c10::DeviceIndex Runtime::current_device() const noexcept { return t_device; }

void Runtime::check_index(c10::DeviceIndex device) const {
  TORCH_CHECK(device >= 0 && device < device_count_, "Expected device_index to be in [0, ",
              device_count_, ") for neuron, got ", static_cast<int>(device), ": this process has ",
              device_count_, " neuron device(s)");
}

void Runtime::set_current_device(c10::DeviceIndex device) {
  check_index(device);
  t_device = device;
}

void Runtime::set_current_device_unchecked(c10::DeviceIndex device) noexcept { t_device = device; }

c10::StreamId Runtime::current_stream(c10::DeviceIndex device) const noexcept {
  return t_streams[static_cast<size_t>(device)];
}

void Runtime::set_current_stream(c10::DeviceIndex device, c10::StreamId stream) noexcept {
  t_streams[static_cast<size_t>(device)] = stream;
}

c10::StreamId Runtime::next_stream() noexcept {
  return static_cast<c10::StreamId>(1 + stream_counter_.fetch_add(1) % kStreamsPerDevice);
}

ValuePtr value_from_host(c10::DeviceIndex device, const void* data, c10::ScalarType dtype,
                         int64_t numel) {
  Runtime& runtime = Runtime::instance();
  const int64_t dims = numel;
  auto value = c10::make_intrusive<Value>(Value::State::kPending, dtype, numel);
  value->set_buffer(
      runtime.client()->from_host(data, to_pjrt(dtype), &dims, 1, runtime.ordinal(device)));
  counters().bytes_h2d.fetch_add(static_cast<uint64_t>(numel) * c10::elementSize(dtype),
                                 std::memory_order_relaxed);
  return value;
}

Value::State demand(const Value& value) {
  LaunchQueue* const queue = value.producer().queue;
  // Also where the value is there already: whether a window ends here must not depend on timing.
  if (queue != nullptr && (Runtime::instance().mode() == EagerMode::kAdaptive ||
                           value.state() == Value::State::kPending)) {
    queue->cut();
  }
  return value.wait();
}

void await_value(const Value& value) {
  switch (demand(value)) {
    case Value::State::kFailed:
      raise(*value.failure());
    case Value::State::kReady:
      value.buffer().ready_event().await();
      break;
    default:
      break;
  }
}

void value_to_host(const Value& value, void* data) {
  const size_t bytes = static_cast<size_t>(value.numel()) * c10::elementSize(value.dtype());
  switch (demand(value)) {
    case Value::State::kFailed:
      raise(*value.failure());
    case Value::State::kReady:
      value.buffer().copy_to_host(data, bytes).await();
      break;
    default:
      std::memset(data, 0, bytes);
      break;
  }
  counters().bytes_d2h.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace tn::runtime
