#include "runtime/fork.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>

namespace tn::runtime {
namespace {

std::atomic<bool> g_forked{false};

}  // namespace

void watch_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { g_forked.store(true, std::memory_order_relaxed); });
  (void)registered;
}

bool in_forked_child() noexcept { return g_forked.load(std::memory_order_relaxed); }

void check_not_forked() {
  TORCH_CHECK(!in_forked_child(),
              "Cannot use neuron in a forked subprocess. To use neuron with multiprocessing, you "
              "must use the 'spawn' start method");
}

}  // namespace tn::runtime
