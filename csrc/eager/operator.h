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
  EntryPtr find(const Signature& signature, size_t hash) const {
    return table_.find(signature, hash);
  }

  // Keeps what the signature resolved to. Of all operators' programs a bounded number stays: those
  // that were not used for longest make room.
  void keep(const Signature& signature, size_t hash, EntryPtr entry);

  // Forgets the programs last used before a generation, or everything; gives how many.
  size_t drop_unused(uint64_t since);
  void forget() { table_.clear(); }

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

// How many programs all operators keep together, at least one.
void set_program_bound(size_t programs);

// Forgets what all operators have kept.
void forget_programs();

}  // namespace tn::eager
