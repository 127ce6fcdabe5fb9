#include "eager/operator.h"

#include <algorithm>
#include <shared_mutex>
#include <unordered_map>

#include "eager/miss.h"
#include "runtime/metrics.h"

namespace tn::eager {
namespace {

ArgumentPolicy policy_of(const c10::Argument& argument) {
  ArgumentPolicy policy;
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  using Kind = ArgumentPolicy::Kind;
  if (type->kind() == c10::TypeKind::TensorType) {
    policy.kind = Kind::kTensor;
  } else if (type->kind() == c10::TypeKind::NumberType ||
             type->kind() == c10::TypeKind::FloatType) {
    policy.kind = Kind::kScalar;
  } else if (const auto list = type->cast<c10::ListType>()) {
    c10::TypePtr element = list->getElementType();
    if (const auto optional = element->cast<c10::OptionalType>()) {
      element = optional->getElementType();
    }
    if (element->kind() == c10::TypeKind::TensorType) {
      policy.kind = Kind::kTensorList;
    } else if (element->kind() == c10::TypeKind::NumberType) {
      policy.kind = Kind::kScalarList;
    }
  }
  policy.written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  if (argument.default_value().has_value()) {
    policy.default_value = *argument.default_value();
  }
  return policy;
}

struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Operator>> operators;
};

Registry& registry() {
  static auto* const instance = new Registry();  // NOLINT: outlives all
  return *instance;
}

// What all operators keep together. Programs age by generations, a quarter of the bound each: to
// know the order of all uses would cost every call a write to memory that all threads share.
constexpr uint64_t kGenerations = 4;

struct Kept {
  std::atomic<uint64_t> generation{kGenerations};
  std::atomic<size_t> bound{8192};
  std::atomic<size_t> programs{0};
  std::atomic<size_t> inserted{0};
  std::mutex sweeping;
};

Kept& kept() {
  static auto* const instance = new Kept();  // NOLINT: outlives all
  return *instance;
}

// Makes room for a quarter of the bound, the programs first that were not used for longest.
void sweep() {
  Kept& all = kept();
  const std::unique_lock<std::mutex> guard(all.sweeping, std::try_to_lock);
  if (!guard.owns_lock()) {
    return;
  }
  const size_t enough = all.bound - all.bound / kGenerations;
  const uint64_t now = all.generation;
  for (uint64_t since = now - kGenerations + 1; all.programs > enough && since <= now + 1;
       ++since) {
    size_t dropped = 0;
    for (Operator* op : known_operators()) {
      dropped += op->drop_unused(since);
    }
    all.programs -= dropped;
    runtime::counters().programs_dropped.fetch_add(dropped, std::memory_order_relaxed);
  }
}

}  // namespace

Operator::Operator(const c10::OperatorHandle& handle)
    : handle_(handle),
      name_(c10::toString(handle.operator_name())),
      precheck_(precheck_of(name_)),
      table_(kept().generation) {
  for (const c10::Argument& argument : handle.schema().arguments()) {
    arguments_.push_back(policy_of(argument));
  }
}

void Operator::ensure_policy() {
  if (policy_known_.load(std::memory_order_acquire)) {
    return;
  }
  const std::vector<std::string> operands = ask_operand_arguments(name_);
  const std::lock_guard<std::mutex> guard(policy_mutex_);
  if (policy_known_.load(std::memory_order_relaxed)) {
    return;
  }
  const auto& schema = handle_.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    arguments_[i].operand =
        std::find(operands.begin(), operands.end(), schema[i].name()) != operands.end();
  }
  policy_known_.store(true, std::memory_order_release);
}

void Operator::keep(const Signature& signature, size_t hash, EntryPtr entry) {
  const bool is_program = entry->kind == Entry::Kind::kProgram;
  table_.insert(signature, hash, std::move(entry));
  if (!is_program) {
    return;
  }
  Kept& all = kept();
  if ((all.inserted.fetch_add(1) + 1) % std::max<size_t>(all.bound / kGenerations, 1) == 0) {
    all.generation.fetch_add(1);
  }
  if (all.programs.fetch_add(1) >= all.bound) {
    sweep();
  }
}

size_t Operator::drop_unused(uint64_t since) {
  return table_.drop_unused(since,
                            [](const Entry& entry) { return entry.kind == Entry::Kind::kProgram; });
}

void set_program_bound(size_t programs) { kept().bound = std::max<size_t>(programs, 1); }

void forget_programs() {
  for (Operator* op : known_operators()) {
    op->forget();
  }
  kept().programs = 0;
}

Operator& operator_of(const c10::OperatorHandle& handle) {
  const void* key = &handle.schema();
  {
    std::shared_lock<std::shared_mutex> guard(registry().mutex);
    const auto found = registry().operators.find(key);
    if (found != registry().operators.end()) {
      return *found->second;
    }
  }
  std::unique_lock<std::shared_mutex> guard(registry().mutex);
  auto& slot = registry().operators[key];
  if (!slot) {
    slot = std::make_unique<Operator>(handle);
  }
  return *slot;
}

std::vector<Operator*> known_operators() {
  std::shared_lock<std::shared_mutex> guard(registry().mutex);
  std::vector<Operator*> result;
  for (const auto& [key, op] : registry().operators) {
    result.push_back(op.get());
  }
  return result;
}

}  // namespace tn::eager
