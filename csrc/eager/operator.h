// Per-operator state: its argument policy and its table of signatures.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "eager/entry.h"
#include "eager/signature.h"

namespace tn::eager {

class Operator {
 public:
  explicit Operator(const c10::OperatorHandle& handle);
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  // "aten::add.Tensor"
  const std::string& name() const noexcept { return name_; }
  const std::vector<ArgumentPolicy>& arguments() const noexcept { return arguments_; }
  const c10::OperatorHandle& handle() const noexcept { return handle_; }

  // Asks Python once which scalar arguments may be operands.
  void ensure_policy();

  EntryPtr find(const Signature& signature, size_t hash) const;
  void insert(const Signature& signature, size_t hash, EntryPtr entry);
  // Forgets all programs (tests, changes of settings).
  void clear();

  std::atomic<uint64_t> fallbacks{0};

 private:
  struct Slot {
    std::vector<uint64_t> words;
    EntryPtr entry;
  };

  c10::OperatorHandle handle_;
  std::string name_;
  std::vector<ArgumentPolicy> arguments_;
  std::atomic<bool> policy_known_{false};
  mutable std::shared_mutex mutex_;
  std::unordered_multimap<size_t, Slot> table_;
};

// The state of an op, made on first use; lives as long as the process.
Operator& operator_of(const c10::OperatorHandle& handle);

// All operators used so far.
std::vector<Operator*> known_operators();

}  // namespace tn::eager
