#include "bindings/runtime.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <utility>

#include "adaptive/window.h"
#include "eager/arguments.h"
#include "eager/callbacks.h"
#include "eager/operator.h"
#include "eager/registration.h"
#include "runtime/device.h"
#include "runtime/fork.h"
#include "runtime/generator.h"
#include "runtime/metrics.h"

namespace py = pybind11;

namespace tn {
namespace {

using runtime::Runtime;

void configure(int device_count, size_t memory_limit, py::object find_client) {
  // Kept for the life of the process, and called with the GIL held.
  PyObject* const function = find_client.release().ptr();
  Runtime::instance().configure(device_count, memory_limit, [function] {
    const py::gil_scoped_acquire gil;
    const auto found = py::reinterpret_borrow<py::object>(function)().cast<py::tuple>();
    return runtime::ClientConfig{found[0].cast<std::string>(), found[1].cast<pjrt::NamedValues>()};
  });
}

void set_callbacks(py::object operand_arguments, py::object resolve, py::object announce_fallback) {
  eager::callbacks() = {std::move(operand_arguments), std::move(resolve),
                        std::move(announce_fallback)};
}

constexpr std::array<std::pair<const char*, runtime::EagerMode>, 3> kModes{
    {{"strict", runtime::EagerMode::kStrict},
     {"blocking", runtime::EagerMode::kBlocking},
     {"adaptive", runtime::EagerMode::kAdaptive}}};

void set_eager_mode(const std::string& name) {
  for (const auto& [known, mode] : kModes) {
    if (name == known) {
      Runtime::instance().set_mode(mode);
      return;
    }
  }
  throw py::value_error("there is no eager mode '" + name + "'");
}

std::string eager_mode() {
  for (const auto& [name, mode] : kModes) {
    if (mode == Runtime::instance().mode()) {
      return name;
    }
  }
  return {};
}

py::dict hot_counters() {
  const runtime::Counters& counters = runtime::counters();
  py::dict result;
  result["executions"] = counters.executions.load();
  result["cache_hits_memory"] = counters.signature_hits.load();
  result["programs_dropped"] = counters.programs_dropped.load();
  result["windows_run"] = counters.windows_run.load();
  result["ops_in_windows"] = counters.ops_in_windows.load();
  result["bytes_h2d"] = counters.bytes_h2d.load();
  result["bytes_d2h"] = counters.bytes_d2h.load();
  py::dict fallbacks;
  for (const eager::Operator* op : eager::known_operators()) {
    if (const uint64_t count = op->fallbacks.load(); count > 0) {
      fallbacks[py::str(op->name())] = count;
    }
  }
  result["fallbacks"] = std::move(fallbacks);
  return result;
}

void bind_miss_types(py::module_& module) {
  using eager::ScalarArgument;
  using eager::ScalarDescription;
  using eager::TensorArgument;
  using eager::TensorDescription;
  py::class_<TensorArgument>(module, "TensorArgument")
      .def_readonly("index", &TensorArgument::index);
  py::class_<ScalarArgument>(module, "ScalarArgument")
      .def_readonly("index", &ScalarArgument::index);
  py::class_<TensorDescription>(module, "TensorDescription")
      .def_readonly("storage", &TensorDescription::storage)
      .def_readonly("storage_dtype", &TensorDescription::storage_dtype)
      .def_readonly("storage_numel", &TensorDescription::storage_numel)
      .def_readonly("dtype", &TensorDescription::dtype)
      .def_readonly("sizes", &TensorDescription::sizes)
      .def_readonly("strides", &TensorDescription::strides)
      .def_readonly("offset", &TensorDescription::offset)
      .def_readonly("storage_nbytes", &TensorDescription::storage_nbytes)
      .def_readonly("whole", &TensorDescription::whole)
      .def_readonly("written", &TensorDescription::written);
  py::class_<ScalarDescription>(module, "ScalarDescription")
      .def_readonly("dtype", &ScalarDescription::dtype)
      .def_readonly("length", &ScalarDescription::length)
      .def_readonly("wrapped", &ScalarDescription::wrapped)
      .def_readonly("example", &ScalarDescription::example);
}

}  // namespace

void init_runtime(py::module_& module) {
  bind_miss_types(module);
  module.def("configure", &configure);
  module.def("set_callbacks", &set_callbacks);
  module.def("register_kernels", &eager::register_kernels);
  module.def("client",
             [] { return std::const_pointer_cast<pjrt::Client>(Runtime::instance().client()); });
  module.def("ordinal", [](int device) {
    return Runtime::instance().ordinal(static_cast<c10::DeviceIndex>(device));
  });
  module.def("is_initialized",
             [] { return Runtime::instance().initialized() && !runtime::in_forked_child(); });
  module.def("in_bad_fork", &runtime::in_forked_child);
  module.def("init", [] { Runtime::instance().ensure_started(); });
  module.def("device_count", [] { return Runtime::instance().device_count(); });
  module.def("current_device",
             [] { return static_cast<int>(Runtime::instance().current_device()); });
  module.def("set_device", [](int device) {
    Runtime::instance().set_current_device(static_cast<c10::DeviceIndex>(device));
  });
  module.def("memory_limit", [] { return Runtime::instance().memory_limit(); });
  module.def("set_memory_limit", [](size_t bytes) { Runtime::instance().set_memory_limit(bytes); });
  module.def("set_eager_mode", &set_eager_mode);
  module.def("eager_mode", &eager_mode);
  module.def(
      "synchronize",
      [](int device) { Runtime::instance().synchronize(static_cast<c10::DeviceIndex>(device)); },
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "shutdown",
      [] {
        adaptive::Requests::instance().stop();
        Runtime::instance().shutdown();
      },
      py::call_guard<py::gil_scoped_release>());
  module.def("default_generator", [](int device) {
    return runtime::default_generator(static_cast<c10::DeviceIndex>(device));
  });
  module.def("hot_counters", &hot_counters);
  module.def("forget_programs", &eager::forget_programs);
  module.def("set_program_bound", &eager::set_program_bound);
}

}  // namespace tn
