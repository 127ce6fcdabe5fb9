// Counters of the hot path, read by torch.neuron.metrics(). They only grow.
#pragma once

#include <atomic>
#include <cstdint>

namespace tn::runtime {

struct Counters {
  std::atomic<uint64_t> executions{0};
  std::atomic<uint64_t> signature_hits{0};
  std::atomic<uint64_t> programs_dropped{0};  // to make room for new ones
  std::atomic<uint64_t> windows_run{0};       // as one program each
  std::atomic<uint64_t> ops_in_windows{0};
  std::atomic<uint64_t> bytes_h2d{0};
  std::atomic<uint64_t> bytes_d2h{0};
};

inline Counters& counters() noexcept {
  static Counters instance;
  return instance;
}

}  // namespace tn::runtime
