#include "eager/miss.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "eager/arguments.h"
#include "eager/callbacks.h"
#include "runtime/device.h"

namespace py = pybind11;

namespace tn::eager {
namespace {

// Walks the arguments in the order in which the signature was taken and puts references in place of
// tensors and scalar operands, so that Python sees the same numbering.
class ArgumentConverter {
 public:
  explicit ArgumentConverter(const Signature& signature) : signature_(signature) {}

  py::object convert(const c10::Argument& argument, size_t index, const c10::IValue& value) {
    index_ = index;
    if (is_operand(value)) {
      return py::cast(ScalarArgument{scalar_++});
    }
    if (value.isTensor()) {
      return tensor(value.toTensor());
    }
    if (value.isInt()) {
      return integer(argument, value.toInt());
    }
    if (value.isList() && !value.isIntList()) {
      py::list items;
      const c10::List<c10::IValue> list = value.toList();
      for (size_t i = 0; i < list.size(); ++i) {
        const c10::IValue item = list.get(i);
        items.append(item.isTensor() ? tensor(item.toTensor()) : torch::jit::toPyObject(item));
      }
      return items;
    }
    return torch::jit::toPyObject(value);
  }

 private:
  // Operands appear in argument order, so the next one is ours or none is.
  bool is_operand(const c10::IValue& value) const {
    return !value.isTensor() && scalar_ < signature_.scalars.size() &&
           signature_.scalars[scalar_].argument == index_ &&
           !signature_.scalars[scalar_].example.isTensor();
  }

  py::object tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return py::none();
    }
    if (tensor.device().type() == c10::DeviceType::PrivateUse1) {
      return py::cast(TensorArgument{tensor_++});
    }
    return py::cast(ScalarArgument{scalar_++});
  }

  // Enumerations travel as integers in IValues.
  static py::object integer(const c10::Argument& argument, int64_t value) {
    c10::TypePtr type = argument.real_type();
    if (const auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    switch (type->kind()) {
      case c10::TypeKind::ScalarTypeType:
        return py::cast(static_cast<c10::ScalarType>(value));
      case c10::TypeKind::LayoutType:
        return py::cast(static_cast<c10::Layout>(value));
      case c10::TypeKind::MemoryFormatType:
        return py::cast(static_cast<c10::MemoryFormat>(value));
      default:
        return py::int_(value);
    }
  }

  const Signature& signature_;
  size_t index_ = 0;
  uint32_t tensor_ = 0;
  uint32_t scalar_ = 0;
};

py::tuple convert_arguments(Operator& op, const torch::jit::Stack& stack,
                            const Signature& signature) {
  const auto& schema = op.handle().schema().arguments();
  const size_t base = stack.size() - schema.size();
  ArgumentConverter converter(signature);
  py::tuple result(schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    result[i] = converter.convert(schema[i], i, stack[base + i]);
  }
  return result;
}

py::list describe_tensors(const Signature& signature) {
  py::list result;
  for (const TensorRef& ref : signature.tensors) {
    result.append(TensorDescription{
        ref.group, ref.value->dtype(), ref.value->numel(), ref.impl->dtype().toScalarType(),
        ref.impl->sizes().vec(), ref.impl->strides().vec(), ref.impl->storage_offset(),
        static_cast<int64_t>(ref.handle->nbytes()), ref.whole, ref.written});
  }
  return result;
}

py::list describe_scalars(const Signature& signature) {
  py::list result;
  for (const ScalarRef& ref : signature.scalars) {
    const bool is_tensor = ref.example.isTensor();
    result.append(ScalarDescription{
        ref.dtype, static_cast<int64_t>(ref.list.size()), ref.wrapped,
        is_tensor ? py::cast(ref.example.toTensor()) : torch::jit::toPyObject(ref.example)});
  }
  return result;
}

Operand operand_from(const py::tuple& item) {
  const auto kind = item[0].cast<std::string>();
  Operand operand;
  operand.kind = kind == "storage"  ? Operand::Kind::kStorage
                 : kind == "scalar" ? Operand::Kind::kScalar
                 : kind == "offset" ? Operand::Kind::kOffset
                                    : Operand::Kind::kRandom;
  operand.index = item[1].cast<uint32_t>();
  return operand;
}

Output output_from(const py::dict& item) {
  Output output;
  output.dtype = item["dtype"].cast<c10::ScalarType>();
  output.numel = item["numel"].cast<int64_t>();
  output.fresh = item["tensor"].is_none();
  if (!output.fresh) {
    output.tensor = item["tensor"].cast<uint32_t>();
    return output;
  }
  output.sizes = item["sizes"].cast<std::vector<int64_t>>();
  output.strides = item["strides"].cast<std::vector<int64_t>>();
  output.count = item["count"].cast<int32_t>();
  return output;
}

Return return_from(const py::tuple& item) {
  const auto kind = item[0].cast<std::string>();
  Return result;
  result.kind = kind == "output"     ? Return::Kind::kOutput
                : kind == "argument" ? Return::Kind::kArgument
                : kind == "list"     ? Return::Kind::kList
                                     : Return::Kind::kUndefined;
  result.indices = item[1].cast<std::vector<uint32_t>>();
  return result;
}

void fill_program(const py::dict& plan, Entry& entry) {
  entry.kind = Entry::Kind::kProgram;
  auto program = std::make_shared<runtime::Program>();
  program->executable = plan["executable"].cast<std::shared_ptr<pjrt::Executable>>();
  program->label = plan["label"].cast<std::string>();
  program->origin = plan["origin"].cast<std::string>();
  for (const auto& parameter : plan["donatable"]) {
    program->donatable.push_back(parameter.cast<int64_t>());
  }
  for (const auto& item : plan["operands"]) {
    entry.operands.push_back(operand_from(item.cast<py::tuple>()));
  }
  for (const auto& item : plan["outputs"]) {
    entry.outputs.push_back(output_from(item.cast<py::dict>()));
  }
  for (const auto& item : plan["returns"]) {
    entry.returns.push_back(return_from(item.cast<py::tuple>()));
  }
  entry.random_offset = plan["rng_offset"].cast<uint64_t>();
  entry.bounded = plan["bounded"].cast<bool>();
  TORCH_INTERNAL_ASSERT(program->executable->num_outputs() == entry.outputs.size());
  entry.program = std::move(program);
}

EntryPtr entry_from(const py::dict& plan) {
  auto entry = std::make_shared<Entry>();
  const auto kind = plan["kind"].cast<std::string>();
  if (kind == "program") {
    fill_program(plan, *entry);
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
  try {
    const py::bytes key(
        reinterpret_cast<const char*>(signature.words.data()),  // NOLINT: the words' bytes
        signature.words.size() * sizeof(uint64_t));
    return entry_from(callbacks()
                          .resolve(op.name(), convert_arguments(op, stack, signature),
                                   describe_tensors(signature), describe_scalars(signature), key,
                                   static_cast<int>(signature.device))
                          .cast<py::dict>());
  } catch (py::error_already_set& error) {
    // As a C++ exception that keeps the Python type and traceback.
    python_error carried;
    error.restore();
    carried.persist();
    throw carried;
  }
}

void run_composite(const Entry& entry, Operator& op, torch::jit::Stack& stack) {
  const py::gil_scoped_acquire gil;
  const size_t count = op.arguments().size();
  const auto& schema = op.handle().schema();
  try {
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
  } catch (py::error_already_set& error) {
    python_error carried;
    error.restore();
    carried.persist();
    throw carried;
  }
}

}  // namespace tn::eager
