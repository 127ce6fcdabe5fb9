#include "runtime/generator.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <mutex>

#include "runtime/device.h"

namespace tn::runtime {

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void NeuronGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

void NeuronGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK_VALUE(offset % 4 == 0, "the Philox offset must be a multiple of 4, got ", offset);
  offset_ = offset;
}

uint64_t NeuronGenerator::seed() {
  const uint64_t fresh = c10::detail::getNonDeterministicRandom();
  set_current_seed(fresh);
  return fresh;
}

void NeuronGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.layout() == at::kStrided && state.device_type() == at::kCPU &&
                       state.dtype() == at::kByte,
                   "RNG state must be a torch.ByteTensor on the CPU");
  TORCH_CHECK(state.numel() == kStateBytes && state.is_contiguous(), "RNG state must hold ",
              kStateBytes, " bytes (seed and offset), got ", state.numel());
  uint64_t parts[2];
  std::memcpy(parts, state.data(), kStateBytes);
  TORCH_CHECK_VALUE(parts[1] % 4 == 0, "the Philox offset must be a multiple of 4, got ", parts[1]);
  seed_ = parts[0];
  offset_ = parts[1];
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  const at::Tensor state = at::empty({kStateBytes}, at::TensorOptions(at::kCPU).dtype(at::kByte));
  const uint64_t parts[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), parts, kStateBytes);
  return state.getIntrusivePtr();
}

std::pair<uint64_t, uint64_t> NeuronGenerator::reserve(uint64_t count) {
  const uint64_t start = offset_;
  offset_ += (count + 3) / 4 * 4;
  return {seed_, start};
}

NeuronGenerator* NeuronGenerator::clone_impl() const {
  auto copy = std::make_unique<NeuronGenerator>(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy.release();
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  if (device < 0) {
    device = Runtime::instance().current_device();
  }
  Runtime::instance().check_index(device);
  static auto* const generators = [] {  // NOLINT: outlives all
    auto* made = new std::array<at::Generator, Runtime::kMaxDevices>();
    for (int index = 0; index < Runtime::kMaxDevices; ++index) {
      (*made)[static_cast<size_t>(index)] =
          at::make_generator<NeuronGenerator>(static_cast<c10::DeviceIndex>(index));
      (*made)[static_cast<size_t>(index)].seed();
    }
    return made;
  }();
  return (*generators)[static_cast<size_t>(device)];
}

}  // namespace tn::runtime
