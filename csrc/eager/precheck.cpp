#include "eager/precheck.h"

#include <c10/util/Exception.h>

#include <array>
#include <utility>

namespace tn::eager {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

double number(const c10::IValue& value) { return value.toScalar().toDouble(); }

void check_uniform(Arguments arguments) {
  const double from = number(arguments[1]);
  const double to = number(arguments[2]);
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
}

void check_normal(Arguments arguments) {
  const double std = number(arguments[2]);
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
}

void check_log_normal(Arguments arguments) {
  const double std = number(arguments[2]);
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
}

void check_cauchy(Arguments arguments) {
  const double sigma = number(arguments[2]);
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
}

void check_exponential(Arguments arguments) {
  const double lambda = number(arguments[1]);
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
}

void check_geometric(Arguments arguments) {
  const double p = number(arguments[1]);
  TORCH_CHECK(0.0 < p && p < 1.0, "geometric_ expects p to be in (0, 1), but got p=", p);
}

void check_bernoulli(Arguments arguments) {
  const double p = number(arguments[1]);
  TORCH_CHECK(0.0 <= p && p <= 1.0, "bernoulli_ expects p to be in [0, 1], but got p=", p);
}

constexpr std::array<std::pair<std::string_view, Precheck>, 7> kPrechecks{{
    {"aten::uniform_", check_uniform},
    {"aten::normal_", check_normal},
    {"aten::log_normal_", check_log_normal},
    {"aten::cauchy_", check_cauchy},
    {"aten::exponential_", check_exponential},
    {"aten::geometric_", check_geometric},
    {"aten::bernoulli_.float", check_bernoulli},
}};

}  // namespace

Precheck precheck_of(std::string_view name) {
  for (const auto& [op, check] : kPrechecks) {
    if (op == name) {
      return check;
    }
  }
  return nullptr;
}

}  // namespace tn::eager
