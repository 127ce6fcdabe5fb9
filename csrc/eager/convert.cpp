#include "eager/convert.h"

#include <c10/util/Exception.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "eager/arguments.h"

namespace py = pybind11;

namespace tn::eager {
namespace {

// Enumerations travel as integers in IValues.
py::object integer(const c10::Argument& argument, int64_t value) {
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

}  // namespace

py::object ArgumentConverter::convert(const c10::Argument* schema, size_t index,
                                      const c10::IValue& value) {
  index_ = index;
  if (is_operand(value)) {
    return py::cast(ScalarArgument{scalar_++});
  }
  if (value.isTensor()) {
    return tensor(value.toTensor());
  }
  if (value.isInt()) {
    return schema != nullptr ? integer(*schema, value.toInt()) : py::int_(value.toInt());
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

// Operands appear in argument order, so the next one is ours or none is.
bool ArgumentConverter::is_operand(const c10::IValue& value) const {
  return !value.isTensor() && scalar_ < signature_.scalars.size() &&
         signature_.scalars[scalar_].argument == index_ &&
         !signature_.scalars[scalar_].example.isTensor();
}

py::object ArgumentConverter::tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return py::none();
  }
  if (tensor.device().type() == c10::DeviceType::PrivateUse1) {
    return py::cast(TensorArgument{tensor_++});
  }
  return py::cast(ScalarArgument{scalar_++});
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

py::bytes key_of(const Signature& signature) {
  return {reinterpret_cast<const char*>(signature.words.data()),  // NOLINT: the words' bytes
          signature.words.size() * sizeof(uint64_t)};
}

void fill_program(const py::dict& plan, Entry& entry) {
  auto program = std::make_shared<runtime::Program>();
  program->executable = plan["executable"].cast<std::shared_ptr<pjrt::Executable>>();
  program->label = plan["label"].cast<std::string>();
  program->origin = plan["origin"].cast<std::string>();
  if (plan.contains("module")) {
    program->module = plan["module"].cast<std::string>();
  }
  for (const auto& parameter : plan["donatable"]) {
    program->donatable.push_back(parameter.cast<int64_t>());
  }
  for (const auto& item : plan["operands"]) {
    entry.operands.push_back(operand_from(item.cast<py::tuple>()));
  }
  for (const auto& item : plan["outputs"]) {
    entry.outputs.push_back(output_from(item.cast<py::dict>()));
  }
  entry.random_offset = plan["rng_offset"].cast<uint64_t>();
  TORCH_INTERNAL_ASSERT(program->executable->num_outputs() == entry.outputs.size());
  entry.program = std::move(program);
}

}  // namespace tn::eager
