#include "eager/operator.h"

#include <algorithm>
#include <shared_mutex>
#include <unordered_map>

#include "eager/miss.h"

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

}  // namespace

Operator::Operator(const c10::OperatorHandle& handle)
    : handle_(handle), name_(c10::toString(handle.operator_name())), precheck_(precheck_of(name_)) {
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
