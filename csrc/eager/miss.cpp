#include "eager/miss.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "eager/arguments.h"
#include "eager/callbacks.h"
#include "eager/convert.h"
#include "runtime/device.h"

namespace py = pybind11;

namespace tn::eager {
namespace {

py::tuple convert_arguments(Operator& op, const torch::jit::Stack& stack,
                            const Signature& signature) {
  const auto& schema = op.handle().schema().arguments();
  const size_t base = stack.size() - schema.size();
  ArgumentConverter converter(signature);
  py::tuple result(schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    result[i] = converter.convert(&schema[i], i, stack[base + i]);
  }
  return result;
}

Return return_from(const py::tuple& item) {
  const auto kind = item[0].cast<std::string>();
  Return result;
  result.kind = kind == "output"     ? Return::Kind::kOutput
                : kind == "argument" ? Return::Kind::kArgument
                : kind == "list"     ? Return::Kind::kList
                : kind == "number"   ? Return::Kind::kNumber
                                     : Return::Kind::kUndefined;
  result.indices = item[1].cast<std::vector<uint32_t>>();
  return result;
}

EntryPtr entry_from(const py::dict& plan) {
  auto entry = std::make_shared<Entry>();
  const auto kind = plan["kind"].cast<std::string>();
  if (kind == "program") {
    entry->kind = Entry::Kind::kProgram;
    fill_program(plan, *entry);
    for (const auto& item : plan["returns"]) {
      entry->returns.push_back(return_from(item.cast<py::tuple>()));
    }
    entry->bounded = plan["bounded"].cast<bool>();
  } else if (kind == "resize") {
    entry->kind = Entry::Kind::kResize;
    entry->resize_tensor = plan["tensor"].cast<uint32_t>();
    entry->resize_sizes = plan["sizes"].cast<std::vector<int64_t>>();
  } else if (kind == "composite") {
    entry->kind = Entry::Kind::kComposite;
    // Leaked with its entry: entries live as long as the process.
    entry->composite = py::object(plan["function"]).release().ptr();
  } else {
    entry->kind = Entry::Kind::kFallback;
  }
  return entry;
}

}  // namespace

Callbacks& callbacks() {
  static auto* const instance = new Callbacks();  // NOLINT
  return *instance;
}

std::vector<std::string> ask_operand_arguments(const std::string& op) {
  const py::gil_scoped_acquire gil;
  TORCH_CHECK(callbacks().operand_arguments, "torchneuron is not loaded: import torchneuron");
  return callbacks().operand_arguments(op).cast<std::vector<std::string>>();
}

EntryPtr resolve_miss(Operator& op, const torch::jit::Stack& stack, const Signature& signature) {
  const py::gil_scoped_acquire gil;
  // Kernels run below autograd, with its dispatch keys masked. Shape inference and decompositions
  // are code like any user's and need the dispatcher as the user sees it.
  const c10::impl::ForceDispatchKeyGuard unmasked{
      c10::impl::LocalDispatchKeySet{c10::impl::PODLocalDispatchKeySet{}}};
  return carrying_python_errors([&] {
    return entry_from(callbacks()
                          .resolve(op.name(), convert_arguments(op, stack, signature),
                                   describe_tensors(signature), describe_scalars(signature),
                                   key_of(signature), static_cast<int>(signature.device))
                          .cast<py::dict>());
  });
}

void announce_fallback(const Operator& op, const char* reason) {
  const py::gil_scoped_acquire gil;
  TORCH_CHECK(callbacks().announce_fallback, "torchneuron is not loaded: import torchneuron");
  carrying_python_errors([&] { callbacks().announce_fallback(op.name(), reason); });
}

void run_composite(const Entry& entry, Operator& op, torch::jit::Stack& stack) {
  const py::gil_scoped_acquire gil;
  const size_t count = op.arguments().size();
  const auto& schema = op.handle().schema();
  carrying_python_errors([&] {
    py::tuple arguments(count);
    const size_t base = stack.size() - count;
    for (size_t i = 0; i < count; ++i) {
      arguments[i] = torch::jit::toPyObject(stack[base + i]);
    }
    const py::object result =
        py::reinterpret_borrow<py::object>(static_cast<PyObject*>(entry.composite))(*arguments);
    torch::jit::drop(stack, count);
    const auto& returns = schema.returns();
    if (returns.size() == 1) {
      stack.push_back(torch::jit::toIValue(result, returns[0].type()));
      return;
    }
    const auto items = result.cast<py::tuple>();
    for (size_t i = 0; i < returns.size(); ++i) {
      stack.push_back(torch::jit::toIValue(items[i], returns[i].type()));
    }
  });
}

}  // namespace tn::eager
