// Names one of a function's overloads, for registering it.
#pragma once

namespace tn::eager {

template <typename Signature>
constexpr Signature* overload(Signature* function) {
  return function;
}

}  // namespace tn::eager
