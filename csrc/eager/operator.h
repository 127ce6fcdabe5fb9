// Per-operator state: its argument policy and its table of signatures.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "eager/entry.h"
#include "eager/precheck.h"
#include "eager/signature.h"
#include "eager/table.h"

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

  // What checks the call's numbers, or null.
  Precheck precheck() const noexcept { return precheck_; }

  // Asks Python once which scalar arguments may be operands.
  void ensure_policy();

  // The programs by signature.
  SignatureTable<Entry>& table() noexcept { return table_; }

  std::atomic<uint64_t> fallbacks{0};

 private:
  c10::OperatorHandle handle_;
  std::string name_;
  Precheck precheck_;
  std::vector<ArgumentPolicy> arguments_;
  std::atomic<bool> policy_known_{false};
  std::mutex policy_mutex_;
  SignatureTable<Entry> table_;
};

// The state of an op, made on first use; lives as long as the process.
Operator& operator_of(const c10::OperatorHandle& handle);

// All operators used so far.
std::vector<Operator*> known_operators();

}  // namespace tn::eager
