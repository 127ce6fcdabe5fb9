#include "runtime/heap.h"

#include <cstdlib>
#include <initializer_list>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tn::runtime {

void keep_freed_memory() {
#ifdef __GLIBC__
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(name) != nullptr) {
      return;
    }
  }
  // By itself glibc raises them only as far as the largest block it has freed so far. 32 MiB is the
  // most it takes for the first.
  constexpr int kMapAbove = 32 << 20;
  constexpr int kTrimAbove = 2 * kMapAbove;
  mallopt(M_MMAP_THRESHOLD, kMapAbove);
  mallopt(M_TRIM_THRESHOLD, kTrimAbove);
#endif
}

}  // namespace tn::runtime
