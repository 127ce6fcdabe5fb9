#include "bindings/compile.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <memory>
#include <optional>
#include <utility>

#include "compile/graph.h"
#include "eager/convert.h"

namespace py = pybind11;

namespace tn {
namespace {

using compile::Graph;
using compile::Plan;
using compile::PlanPtr;
using compile::Result;

// A nested tensor's ragged size has no number, and stays what it is; any other symbolic size
// belongs to a trace under way, of which no program can be made.
c10::IValue size_from(PyObject* item) {
  auto size = py::cast<c10::SymInt>(py::handle(item));
  if (const std::optional<int64_t> number = size.maybe_as_int()) {
    return *number;
  }
  if (!size.toSymNode()->is_nested_int()) {
    throw py::type_error("a compiled graph takes numbers for its sizes, not the symbol " +
                         size.toSymNode()->str());
  }
  return size;
}

c10::IValue argument_from(PyObject* item) {
  if (THPVariable_Check(item)) {
    return THPVariable_Unpack(item);
  }
  if (item == Py_None) {
    return {};
  }
  if (PyBool_Check(item)) {
    return item == Py_True;
  }
  if (PyLong_Check(item)) {
    return py::cast<int64_t>(py::handle(item));
  }
  if (PyFloat_Check(item)) {
    return PyFloat_AS_DOUBLE(item);
  }
  if (torch::is_symint(py::handle(item))) {
    return size_from(item);
  }
  throw py::type_error("a compiled graph takes tensors, numbers and None, not " +
                       py::cast<std::string>(py::str(py::type::of(py::handle(item)))));
}

// A call's arguments. The tensors are borrowed from their Python objects, which `owner` keeps: a
// reference of C++'s own to each would have PyTorch count the object's references too.
class Arguments {
 public:
  // `owner` is a list or tuple that nobody else changes.
  explicit Arguments(py::object owner) : owner_(std::move(owner)) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(owner_.ptr());
    PyObject** const first = PySequence_Fast_ITEMS(owner_.ptr());
    borrowed_.values.reserve(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      borrowed_.values.push_back(THPVariable_Check(first[i])
                                     ? c10::IValue(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(
                                           THPVariable_Unpack(first[i])))
                                     : argument_from(first[i]));
    }
  }

  const torch::jit::Stack& stack() const noexcept { return borrowed_.values; }

 private:
  struct Borrowed {
    Borrowed() = default;
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() {
      for (c10::IValue& value : values) {
        if (value.isTensor()) {
          c10::MaybeOwnedTraits<c10::IValue>::destroyBorrow(value);
        }
      }
    }
    torch::jit::Stack values;
  };

  py::object owner_;
  Borrowed borrowed_;
};

py::object result_to_python(const c10::IValue& value) {
  return value.isTensor() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(value.toTensor()))
                          : torch::jit::toPyObject(value);
}

Result result_from(const py::dict& item) {
  Result result;
  const auto kind = item["kind"].cast<std::string>();
  if (kind == "constant") {
    result.constant = argument_from(py::object(item["value"]).ptr());
    return result;
  }
  result.index = item["index"].cast<uint32_t>();
  if (kind == "multiple") {
    result.kind = Result::Kind::kMultiple;
    result.factor = item["factor"].cast<int64_t>();
    return result;
  }
  result.kind = kind == "output" ? Result::Kind::kOutput : Result::Kind::kArgument;
  result.on_host = item["on_host"].cast<bool>();
  if (const py::object view = item["view"]; !view.is_none()) {
    result.view = true;
    result.dtype = view["dtype"].cast<c10::ScalarType>();
    result.sizes = view["sizes"].cast<std::vector<int64_t>>();
    result.strides = view["strides"].cast<std::vector<int64_t>>();
    result.offset = view["offset"].cast<int64_t>();
  }
  return result;
}

PlanPtr plan_from(const py::dict& item) {
  auto plan = std::make_shared<Plan>();
  plan->eager = item["kind"].cast<std::string>() == "eager";
  if (plan->eager) {
    return plan;
  }
  plan->entry.kind = eager::Entry::Kind::kProgram;
  eager::fill_program(item, plan->entry);
  for (const auto& result : item["results"]) {
    plan->results.push_back(result_from(result.cast<py::dict>()));
  }
  for (const auto& pair : item["host_writes"]) {
    const auto write = pair.cast<std::pair<uint32_t, uint32_t>>();
    plan->host_writes.push_back({write.first, write.second});
  }
  return plan;
}

PlanPtr resolve(const py::object& function, const torch::jit::Stack& stack,
                const eager::Signature& signature) {
  const py::gil_scoped_acquire gil;
  // Lowering runs PyTorch's own functions, which need the dispatcher as a user's code sees it.
  const c10::impl::ForceDispatchKeyGuard unmasked{
      c10::impl::LocalDispatchKeySet{c10::impl::PODLocalDispatchKeySet{}}};
  return eager::carrying_python_errors([&] {
    eager::ArgumentConverter converter(signature);
    py::tuple arguments(stack.size());
    for (size_t i = 0; i < stack.size(); ++i) {
      arguments[i] = converter.convert(nullptr, i, stack[i]);
    }
    return plan_from(function(arguments, eager::describe_tensors(signature),
                              eager::describe_scalars(signature), eager::key_of(signature),
                              static_cast<int>(signature.device))
                         .cast<py::dict>());
  });
}

std::vector<c10::IValue> run_eagerly(const py::object& function, const torch::jit::Stack& stack) {
  const py::gil_scoped_acquire gil;
  return eager::carrying_python_errors([&] {
    py::list arguments;
    for (const c10::IValue& value : stack) {
      arguments.append(result_to_python(value));
    }
    std::vector<c10::IValue> results;
    for (const auto& item : py::iter(function(arguments))) {
      results.push_back(argument_from(item.ptr()));
    }
    return results;
  });
}

std::unique_ptr<Graph> make_graph(std::string name, int device,
                                  const std::vector<bool>& number_operands, size_t programs,
                                  const py::object& resolve_function,
                                  const py::object& eager_function) {
  return std::make_unique<Graph>(
      std::move(name), static_cast<c10::DeviceIndex>(device), number_operands, programs,
      [resolve_function](const torch::jit::Stack& stack, const eager::Signature& signature) {
        return resolve(resolve_function, stack, signature);
      },
      [eager_function](const torch::jit::Stack& stack) {
        return run_eagerly(eager_function, stack);
      });
}

// The arguments as a sequence that nobody else changes. AOTAutograd's boxed convention: the list is
// emptied, so that nothing outlives its last use there.
py::object taken(const py::object& arguments) {
  if (PyTuple_Check(arguments.ptr())) {
    return arguments;
  }
  if (!PyList_Check(arguments.ptr())) {
    throw py::type_error("a compiled graph takes its arguments as one list");
  }
  const Py_ssize_t count = PyList_GET_SIZE(arguments.ptr());
  auto items = py::reinterpret_steal<py::object>(PyList_GetSlice(arguments.ptr(), 0, count));
  if (!items || PyList_SetSlice(arguments.ptr(), 0, count, nullptr) != 0) {
    throw py::error_already_set();
  }
  return items;
}

py::list call(Graph& graph, const py::object& given) {
  const Arguments arguments(taken(given));
  std::vector<c10::IValue> results;
  {
    const py::gil_scoped_release no_gil;
    results = graph.run(arguments.stack());
  }
  py::list list(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    list[i] = result_to_python(results[i]);
  }
  return list;
}

}  // namespace

void init_compile(py::module_& module) {
  py::class_<Graph>(module, "Graph", py::dynamic_attr())
      .def(py::init(&make_graph), py::arg("name"), py::arg("device"), py::arg("number_operands"),
           py::arg("programs"), py::arg("resolve"), py::arg("run_eagerly"))
      .def("__call__", &call)
      .def_property_readonly("programs", &Graph::program_count)
      .def_property_readonly("calls", &Graph::calls);
}

}  // namespace tn
