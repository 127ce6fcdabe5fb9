// The random generator of a device: Philox, its state a seed and an offset.
#pragma once

#include <ATen/core/Generator.h>

#include <utility>

namespace tn::runtime {

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device);

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // State tensor: 16 bytes on the CPU, uint64 seed then int64 offset (a multiple of 4).
  static constexpr int64_t kStateBytes = 16;

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Reserves `count` offsets for a program: the state to start from. Caller holds mutex_.
  std::pair<uint64_t, uint64_t> reserve(uint64_t count);

 private:
  NeuronGenerator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

// The default generator of a device; it lives as long as the process.
const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace tn::runtime
