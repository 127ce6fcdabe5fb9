// torchneuron._C.pjrt: the raw PJRT classes, for the program layer and for tests.
#include "bindings/pjrt.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pjrt/client.h"

namespace py = pybind11;

namespace tn {
namespace {

using pjrt::Api;
using pjrt::Buffer;
using pjrt::Client;
using pjrt::Executable;
using pjrt::NamedValues;

using NoGil = py::gil_scoped_release;

// Host memory to read: an address, or the contiguous bytes of an object (kept alive by `view`).
struct HostBytes {
  std::unique_ptr<py::buffer_info> view;
  const void* data = nullptr;
};

HostBytes host_bytes(const py::object& source, size_t nbytes) {
  HostBytes out;
  if (py::isinstance<py::int_>(source)) {
    out.data = reinterpret_cast<const void*>(source.cast<uintptr_t>());
    return out;
  }
  if (!py::isinstance<py::buffer>(source)) {
    throw py::type_error("expected a bytes-like object or an address, not " +
                         std::string(py::str(py::type::of(source))));
  }
  out.view = std::make_unique<py::buffer_info>(source.cast<py::buffer>().request());
  const size_t given = static_cast<size_t>(out.view->size * out.view->itemsize);
  if (given != nbytes) {
    throw py::value_error("the object has " + std::to_string(given) + " bytes, not " +
                          std::to_string(nbytes));
  }
  out.data = out.view->ptr;
  return out;
}

Buffer make_buffer(const Client& client, const py::object& source, size_t nbytes, int type,
                   const std::vector<int64_t>& dims, int device) {
  HostBytes bytes = host_bytes(source, nbytes);
  NoGil no_gil;
  return client.from_host(bytes.data, static_cast<PJRT_Buffer_Type>(type), dims.data(), dims.size(),
                          device);
}

py::bytes to_bytes(const Buffer& buffer) {
  size_t size = 0;
  {
    NoGil no_gil;
    size = buffer.bytes();
  }
  py::bytes out(nullptr, size);
  char* data = PyBytes_AS_STRING(out.ptr());
  NoGil no_gil;
  buffer.copy_to_host(data, size).await();
  return out;
}

std::vector<std::unique_ptr<Buffer>> execute(const Executable& program,
                                             const std::vector<Buffer*>& args,
                                             const std::vector<int64_t>& non_donatable) {
  std::vector<PJRT_Buffer*> in;
  in.reserve(args.size());
  for (const Buffer* arg : args) {
    if (arg == nullptr || !arg->valid()) throw py::value_error("an argument is no buffer");
    in.push_back(arg->get());
  }
  std::vector<PJRT_Buffer*> outs(program.num_outputs());
  {
    NoGil no_gil;
    program.execute(in.data(), in.size(), outs.data(), non_donatable.data(), non_donatable.size());
  }
  std::vector<std::unique_ptr<Buffer>> out;
  out.reserve(outs.size());
  for (PJRT_Buffer* raw : outs) out.push_back(std::make_unique<Buffer>(program.client(), raw));
  return out;
}

void bind_plugin(py::module_& m) {
  py::class_<Api, std::shared_ptr<Api>>(m, "Plugin", "A loaded PJRT plugin (a shared object).")
      .def(py::init([](const std::string& path) {
             NoGil no_gil;
             return std::const_pointer_cast<Api>(Api::load(path));
           }),
           py::arg("path"))
      .def_property_readonly("path", &Api::path)
      .def_property_readonly("api_version", &Api::version)
      .def_property_readonly("attributes", &Api::attributes)
      .def_property_readonly("missing_entries", &Api::missing_entries,
                             "Names of the functions we can use and the plugin lacks.");
}

void bind_buffer(py::module_& m) {
  py::class_<Buffer>(m, "Buffer", "A value in a device's memory.")
      .def_property_readonly("nbytes", &Buffer::bytes)
      .def_property_readonly("type", [](const Buffer& b) { return static_cast<int>(b.type()); })
      .def_property_readonly("dims", &Buffer::dims)
      .def_property_readonly("donated", &Buffer::donated)
      .def_property_readonly("ready", [](const Buffer& b) { return b.ready_event().ready(); })
      .def_property_readonly(
          "host_pointer",
          [](const Buffer& b) { return reinterpret_cast<uintptr_t>(b.unsafe_host_pointer()); })
      .def(
          "wait", [](const Buffer& b) { b.ready_event().await(); },
          py::call_guard<py::gil_scoped_release>(),
          "Blocks until the value is computed; raises what its computation failed with.")
      .def("to_bytes", &to_bytes)
      .def(
          "copy_to",
          [](const Buffer& b, int device) { return b.copy_to_device(*b.client(), device); },
          py::arg("device"), py::call_guard<py::gil_scoped_release>());
}

void bind_executable(py::module_& m) {
  py::class_<Executable, std::shared_ptr<Executable>>(m, "Executable",
                                                      "A program loaded on one device.")
      .def_property_readonly("num_outputs", &Executable::num_outputs)
      .def_property_readonly("name", &Executable::name)
      .def_property_readonly("device_id", &Executable::device_id)
      .def_property_readonly("generated_code_size", &Executable::generated_code_size)
      .def_property_readonly("fingerprint",
                             [](const Executable& e) -> py::object {
                               auto text = e.fingerprint();
                               if (!text.has_value()) return py::none();
                               return py::bytes(*text);
                             })
      .def("cost_analysis", &Executable::cost_analysis, py::call_guard<py::gil_scoped_release>())
      .def("memory_stats", &Executable::memory_stats, py::call_guard<py::gil_scoped_release>())
      .def("execute", &execute, py::arg("args"), py::arg("non_donatable") = std::vector<int64_t>(),
           "Starts the program; arguments that it may alias are donated unless listed.")
      .def("serialize", [](const Executable& e) {
        std::string out;
        {
          NoGil no_gil;
          out = e.serialize();
        }
        return py::bytes(out);
      });
}

void bind_client(py::module_& m) {
  py::class_<Client, std::shared_ptr<Client>>(m, "Client", "A plugin's runtime instance.")
      .def(py::init([](const std::string& path, const NamedValues& options) {
             NoGil no_gil;
             return Client::create(Api::load(path), options);
           }),
           py::arg("path"), py::arg("options") = NamedValues())
      .def_property_readonly("platform_name", &Client::platform_name)
      .def_property_readonly("platform_version", &Client::platform_version)
      .def_property_readonly("api_version", [](const Client& c) { return c.api().version(); })
      .def_property_readonly("device_count", &Client::device_count)
      .def("device_id", &Client::device_id, py::arg("device"))
      .def("device_kind", &Client::device_kind, py::arg("device"))
      .def("device_attributes", &Client::device_attributes, py::arg("device"))
      .def("memory_stats", &Client::memory_stats, py::arg("device"))
      .def("buffer", &make_buffer, py::arg("data"), py::arg("nbytes"), py::arg("type"),
           py::arg("dims"), py::arg("device") = 0,
           "Copies dense host data, a bytes-like object or an address, to a device.")
      .def(
          "compile",
          [](const Client& c, const py::bytes& mlir, int device, const pjrt::XlaFlags& flags) {
            // A view of the bytes object, which our argument keeps alive.
            const std::string_view text = mlir;
            NoGil no_gil;
            return c.compile(text, device, flags);
          },
          py::arg("mlir"), py::arg("device") = 0, py::arg("flags") = pjrt::XlaFlags())
      .def(
          "deserialize",
          [](const Client& c, const py::bytes& serialized, int device) {
            const std::string_view text = serialized;
            NoGil no_gil;
            return c.deserialize(text, device);
          },
          py::arg("serialized"), py::arg("device") = 0);
}

}  // namespace

void init_pjrt(py::module_& parent) {
  py::module_ m = parent.def_submodule("pjrt", "Raw access to PJRT plugins.");
  bind_plugin(m);
  bind_buffer(m);
  bind_executable(m);
  bind_client(m);
}

}  // namespace tn
