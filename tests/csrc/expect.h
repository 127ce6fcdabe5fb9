// Checks of the C++ tests: all of them run, `main` says how many failed.
#pragma once

#include <atomic>
#include <cstdio>

namespace tn::testing {

inline std::atomic<int> failures{0};

}  // namespace tn::testing

#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      ++tn::testing::failures;                                                     \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                              \
  } while (false)
