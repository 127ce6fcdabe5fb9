// The device guard: current device, streams and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/event.h"

namespace tn::runtime {
namespace {

// What torch.Event's handle points to.
struct Event {
  EventStatePtr state;  // of the last recording
  bool timing = false;
  c10::DeviceIndex device = 0;
  c10::StreamId stream = 0;
  std::atomic<bool> queued{false};  // the recording's marker
};

c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device), id);
}

c10::DeviceIndex index_of(c10::Device device) {
  const c10::DeviceIndex index =
      device.has_index() ? device.index() : Runtime::instance().current_device();
  Runtime::instance().check_index(index);
  return index;
}

Task event_task(Task::Kind kind, c10::StreamId stream, EventStatePtr state) {
  Task task;
  task.kind = kind;
  task.stream = stream;
  task.event = std::move(state);
  return task;
}

// Puts the recording's marker into the queue. An event that measures no time gets it when somebody
// first asks for it: autograd records one for every gradient, and waits for none of them unless
// streams differ. What was issued in between is then waited for, too.
void queue_marker(Event& event) {
  if (!event.queued.exchange(true)) {
    Runtime::instance()
        .queue(event.device)
        .submit(event_task(Task::Kind::kRecord, event.stream, event.state));
  }
}

struct NeuronGuard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override {
    return {c10::DeviceType::PrivateUse1, Runtime::instance().current_device()};
  }
  void setDevice(c10::Device device) const override {
    Runtime::instance().set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    Runtime::instance().set_current_device_unchecked(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(Runtime::instance().device_count());
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (int type = 0; type < static_cast<int>(c10::ScalarType::NumOptions) && type < 64; ++type) {
      if (is_supported(static_cast<c10::ScalarType>(type))) {
        capability.capability_data.capability_bits |= uint64_t{1} << type;
      }
    }
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = index_of(device);
    return make_stream(index, Runtime::instance().current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return make_stream(index_of(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return make_stream(index_of(device), Runtime::instance().next_stream());
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return make_stream(index_of(device), Runtime::instance().next_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::DeviceIndex index = index_of(stream.device());
    const c10::Stream previous = make_stream(index, Runtime::instance().current_stream(index));
    Runtime::instance().set_current_stream(index, stream.id());
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(
        static_cast<uintptr_t>(stream.id()));  // NOLINT: an opaque number
  }
  bool queryStream(const c10::Stream& stream) const override {
    return !Runtime::instance().initialized() ||
           Runtime::instance().queue(stream.device_index()).idle(stream.id());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (Runtime::instance().initialized()) {
      Runtime::instance().queue(stream.device_index()).synchronize(stream.id());
    }
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    Runtime::instance().check_index(device);
    Runtime::instance().synchronize(device);
  }

  void record(void** handle, const c10::Stream& stream, const c10::DeviceIndex device_index,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device_index == -1 || device_index == stream.device_index(), "Event device index ",
                static_cast<int>(device_index),
                " does not match the recording stream's device index ",
                static_cast<int>(stream.device_index()));
    if (*handle == nullptr) {
      *handle = std::make_unique<Event>().release();  // owned by torch.Event, freed in destroyEvent
    }
    auto& event = *static_cast<Event*>(*handle);
    event.timing = flag == c10::EventFlag::BACKEND_DEFAULT;
    event.state = std::make_shared<EventState>();
    event.device = stream.device_index();
    event.stream = stream.id();
    event.queued = false;
    if (event.timing) {
      queue_marker(event);
    }
  }
  void destroyEvent(void* handle, const c10::DeviceIndex) const noexcept override {
    const std::unique_ptr<Event> owned(static_cast<Event*>(handle));
  }
  void block(void* handle, const c10::Stream& stream) const override {
    if (handle == nullptr) {
      return;  // never recorded: nothing to wait for
    }
    auto& event = *static_cast<Event*>(handle);
    queue_marker(event);
    Runtime::instance()
        .queue(stream.device_index())
        .submit(event_task(Task::Kind::kBlock, stream.id(), event.state));
  }
  bool queryEvent(void* handle) const override {
    if (handle == nullptr) {
      return true;
    }
    auto& event = *static_cast<Event*>(handle);
    const bool asked = event.queued;
    queue_marker(event);
    return asked ? event.state->done()
                 : Runtime::instance().queue(event.device).has_come(*event.state);
  }
  void synchronizeEvent(void* handle) const override {
    if (handle != nullptr) {
      auto& event = *static_cast<Event*>(handle);
      queue_marker(event);
      const EventStatePtr state = event.state;
      state->wait();
    }
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    const auto& start = *static_cast<Event*>(first);
    const auto& end = *static_cast<Event*>(second);
    TORCH_CHECK(start.timing && end.timing,
                "Both events must be created with argument 'enable_timing=True'.");
    TORCH_CHECK(start.state->done() && end.state->done(),
                "Both events must be completed before calculating elapsed time.");
    return std::chrono::duration<double, std::milli>(end.state->completed_at() -
                                                     start.state->completed_at())
        .count();
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {
    // Programs hold references to the buffers they use.
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard)

}  // namespace
}  // namespace tn::runtime
