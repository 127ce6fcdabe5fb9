// PrivateUse1 hooks: what PyTorch asks of an accelerator outside of its ops.
#include <ATen/Functions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "eager/resize.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/fork.h"
#include "runtime/generator.h"
#include "runtime/host_allocator.h"

namespace tn::runtime {
namespace {

struct NeuronHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return Runtime::instance().device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return Runtime::instance().initialized() && !in_forked_child();
  }
  void init() const override { Runtime::instance().ensure_started(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(Runtime::instance().device_count());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    Runtime::instance().set_current_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return Runtime::instance().current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = Runtime::instance().current_device();
    Runtime::instance().set_current_device(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? Runtime::instance().current_device() : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(is_device_address(data), "the address is not one of a neuron tensor");
    return {c10::DeviceType::PrivateUse1, Runtime::instance().current_device()};
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    const c10::DeviceIndex index = device < 0 ? Runtime::instance().current_device() : device;
    Runtime::instance().check_index(index);
    return at::make_generator<NeuronGenerator>(index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t newsize) const override {
    eager::resize_storage(storage, newsize);
  }
};

struct Registration {
  Registration() {
    static auto* const hooks = new NeuronHooks();  // NOLINT: PyTorch keeps the pointer for ever
    at::RegisterPrivateUse1HooksInterface(hooks);
  }
} g_registration;

}  // namespace
}  // namespace tn::runtime
