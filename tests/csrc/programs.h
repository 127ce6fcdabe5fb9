// Small programs on uint32 values of four elements, each known also as what it does to host
// numbers, and the program of a window of them. Used by queue_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adaptive/pattern.h"
#include "pjrt/client.h"
#include "runtime/task.h"

namespace tn::testing {

using Numbers = std::array<uint32_t, 4>;

// kUpdate adds in place: its first operand's memory becomes the result's, if nobody else wants it.
enum class Kind : uint8_t { kIncrement, kAdd, kBoth, kUpdate };
constexpr std::array kKinds = {Kind::kIncrement, Kind::kAdd, Kind::kBoth, Kind::kUpdate};

inline size_t operands_of(Kind kind) { return kind == Kind::kIncrement ? 1 : 2; }
inline size_t results_of(Kind kind) { return kind == Kind::kBoth ? 2 : 1; }

inline std::string label_of(Kind kind) {
  constexpr std::array kNames = {"increment", "add", "both", "update"};
  return kNames[static_cast<size_t>(kind)];
}

inline Kind kind_of(const runtime::Program& program) {
  for (const Kind kind : kKinds) {
    if (program.label == label_of(kind)) {
      return kind;
    }
  }
  throw std::logic_error("no such program: " + program.label);
}

// What each program computes: the sum or the successor, and the difference.
inline std::vector<Numbers> compute(Kind kind, const std::vector<Numbers>& operands) {
  Numbers sum{};
  Numbers difference{};
  for (size_t i = 0; i < sum.size(); ++i) {
    const uint32_t right = kind == Kind::kIncrement ? 1 : operands[1][i];
    sum[i] = operands[0][i] + right;
    difference[i] = operands[0][i] - right;
  }
  return kind == Kind::kBoth ? std::vector{sum, difference} : std::vector{sum};
}

constexpr const char* kType = "tensor<4xui32>";

inline std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

// The program's ops with `name` before the results' names, which it gives in `results`.
inline std::string ops_of(Kind kind, const std::string& name,
                          const std::vector<std::string>& operands,
                          std::vector<std::string>& results) {
  const std::string left = operands[0];
  const std::string right = kind == Kind::kIncrement ? name + "one" : operands[1];
  const std::string type = std::string(" : ") + kType + "\n";
  std::string text;
  if (kind == Kind::kIncrement) {
    text += right + " = stablehlo.constant dense<1>" + type;
  }
  text += name + "sum = stablehlo.add " + left + ", " + right + type;
  results = {name + "sum"};
  if (kind == Kind::kBoth) {
    text += name + "difference = stablehlo.subtract " + left + ", " + right + type;
    results.push_back(name + "difference");
  }
  return text;
}

inline std::string main_of(const std::vector<std::string>& parameters, const std::string& ops,
                           const std::vector<std::string>& results) {
  const std::vector<std::string> types(results.size(), kType);
  return "func.func @main(" + joined(parameters) + ") -> (" + joined(types) + ") {\n" + ops +
         "return " + joined(results) + (results.empty() ? "" : " : " + joined(types)) + "\n}\n";
}

inline std::string parameter(const std::string& name, int aliased_output = -1) {
  return name + ": " + kType +
         (aliased_output < 0
              ? ""
              : " {tf.aliasing_output = " + std::to_string(aliased_output) + " : i32}");
}

inline runtime::ProgramPtr make_program(const pjrt::Client& client, Kind kind, int ordinal) {
  std::vector<std::string> names;
  std::vector<std::string> parameters;
  for (size_t i = 0; i < operands_of(kind); ++i) {
    names.push_back("%a" + std::to_string(i));
    parameters.push_back(parameter(names[i], kind == Kind::kUpdate && i == 0 ? 0 : -1));
  }
  std::vector<std::string> results;
  const std::string ops = ops_of(kind, "%", names, results);
  auto program = std::make_shared<runtime::Program>();
  program->module = main_of(parameters, ops, results);
  program->executable = client.compile(program->module, ordinal);
  program->label = label_of(kind);
  if (kind == Kind::kUpdate) {
    program->donatable = {0};
  }
  return program;
}

// The program of a window: its parameters are the values from outside, its results `outputs`.
inline runtime::ProgramPtr make_fused(const pjrt::Client& client, const adaptive::Pattern& pattern,
                                      const std::vector<adaptive::Place>& outputs, int ordinal) {
  std::vector<std::vector<std::string>> names;
  std::vector<std::vector<int>> origins;  // the value from outside whose memory it may take, or -1
  std::string ops;
  for (const adaptive::Step& step : pattern.steps) {
    const Kind kind = kind_of(*step.program);
    std::vector<std::string> operands;
    std::vector<int> origin;
    for (const adaptive::Source& source : step.inputs) {
      const auto from = static_cast<size_t>(source.step);
      operands.push_back(source.outside() ? "%o" + std::to_string(source.index)
                                          : names[from][source.index]);
      origin.push_back(source.outside() ? static_cast<int>(source.index)
                                        : origins[from][source.index]);
    }
    const std::string prefix = "%s" + std::to_string(names.size());
    ops += ops_of(kind, prefix, operands, names.emplace_back());
    origins.emplace_back(results_of(kind), -1)[0] = kind == Kind::kUpdate ? origin[0] : -1;
  }
  std::vector<int> aliases(pattern.outside.size(), -1);
  std::vector<std::string> results;
  for (const adaptive::Place& place : outputs) {
    if (const int origin = origins[place.step][place.output]; origin >= 0) {
      aliases[static_cast<size_t>(origin)] = static_cast<int>(results.size());
    }
    results.push_back(names[place.step][place.output]);
  }
  auto program = std::make_shared<runtime::Program>();
  std::vector<std::string> parameters;
  for (size_t i = 0; i < aliases.size(); ++i) {
    parameters.push_back(parameter("%o" + std::to_string(i), aliases[i]));
    if (aliases[i] >= 0) {
      program->donatable.push_back(static_cast<int64_t>(i));
    }
  }
  program->module = main_of(parameters, ops, results);
  program->executable = client.compile(program->module, ordinal);
  program->label = "a window";
  return program;
}

}  // namespace tn::testing
