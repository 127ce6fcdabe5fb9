#include "bindings/adaptive.h"

#include <pybind11/stl.h>

#include <memory>
#include <unordered_map>
#include <utility>

#include "adaptive/engine.h"
#include "runtime/device.h"

namespace py = pybind11;

namespace tn {
namespace {

using adaptive::Engine;
using adaptive::Requests;
using adaptive::Window;
using adaptive::WindowPtr;

// The distinct programs of a window, and each step as (program, ((step, index), ...)).
py::dict describe(const Window& window) {
  py::list modules;
  py::list steps;
  std::unordered_map<const runtime::Program*, size_t> numbers;
  for (const adaptive::Step& step : window.pattern.steps) {
    const auto [it, added] = numbers.emplace(step.program.get(), numbers.size());
    if (added) {
      modules.append(py::bytes(step.program->module));
    }
    py::list inputs;
    for (const adaptive::Source& source : step.inputs) {
      inputs.append(py::make_tuple(source.step, source.index));
    }
    steps.append(py::make_tuple(it->second, py::tuple(inputs)));
  }
  py::list outputs;
  for (const adaptive::Place& place : window.outputs) {
    outputs.append(py::make_tuple(place.step, place.output));
  }
  py::dict result;
  result["modules"] = py::tuple(modules);
  result["steps"] = py::tuple(steps);
  result["outside"] = window.pattern.outside.size();
  result["outputs"] = py::tuple(outputs);
  result["ordinal"] = window.ordinal;
  return result;
}

std::string label_of(const Window& window) {
  return "a window of " + std::to_string(window.size()) + " ops from " +
         window.pattern.steps.front().program->label + " to " +
         window.pattern.steps.back().program->label;
}

// None if none came within so many seconds, or none will come any more.
WindowPtr next_window(double seconds) {
  const py::gil_scoped_release nogil;
  return Requests::instance().next(std::chrono::duration<double>(seconds));
}

void install(const WindowPtr& window, std::shared_ptr<pjrt::Executable> executable,
             const std::vector<int64_t>& donatable) {
  auto program = std::make_shared<runtime::Program>();
  program->executable = std::move(executable);
  program->label = label_of(*window);
  program->origin = window->pattern.steps.front().program->origin;
  program->donatable.assign(donatable.begin(), donatable.end());
  Requests::instance().settle(window, std::move(program), "");
}

const char* name_of(Window::State state) {
  switch (state) {
    case Window::State::kCompiling:
      return "compiling";
    case Window::State::kReady:
      return "ready";
    default:
      return "dropped";
  }
}

py::dict report(const Window& window) {
  const Window::Summary now = window.summary();
  py::dict result;
  result["number"] = window.number;
  result["device"] = window.ordinal;
  result["ops"] = window.size();
  result["outputs"] = now.outputs;
  result["compilations"] = now.compilations;
  result["state"] = name_of(now.state);
  result["fused_runs"] = window.fused_runs.load();
  result["single_runs"] = window.single_runs.load();
  result["fused_seconds"] = window.trial.fused();
  result["single_seconds"] = window.trial.single();
  result["first"] = window.pattern.steps.front().program->label;
  result["first_line"] = window.pattern.steps.front().program->origin;
  result["last"] = window.pattern.steps.back().program->label;
  result["last_line"] = window.pattern.steps.back().program->origin;
  result["ends"] = adaptive::name_of(window.end);
  result["dropped"] = now.dropped;
  return result;
}

py::list reports() {
  py::list result;
  for (const Engine* engine : Engine::all()) {
    for (const WindowPtr& window : engine->library().windows()) {
      result.append(report(*window));
    }
  }
  return result;
}

void set_tuning(uint32_t sightings, uint32_t min_steps, uint32_t max_windows, bool wait,
                uint32_t trials, uint64_t span) {
  adaptive::set_tuning({sightings, min_steps, max_windows, wait, trials, span});
}

}  // namespace

void init_adaptive(py::module_& module) {
  runtime::Runtime::instance().set_lookahead(
      [](runtime::TaskRunner& runner, int ordinal) -> std::unique_ptr<runtime::Lookahead> {
        return std::make_unique<Engine>(runner, ordinal);
      });
  py::class_<Window, WindowPtr>(module, "Window")
      .def("describe", &describe)
      .def("label", &label_of)
      .def("install", &install)
      .def("fail", [](const WindowPtr& window, const std::string& why) {
        Requests::instance().settle(window, nullptr, why);
      });
  module.def("next_window", &next_window);
  module.def("windows_wanted", [] { return !Requests::instance().stopped(); });
  module.def("window_reports", &reports);
  module.def("set_window_tuning", &set_tuning, py::arg("sightings") = 6, py::arg("min_steps") = 4,
             py::arg("max_windows") = 64, py::arg("wait") = false, py::arg("trials") = 4,
             py::arg("span") = 4096);
  module.def(
      "wait_for_windows", [] { Requests::instance().wait(); },
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace tn
