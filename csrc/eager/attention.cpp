// Which road scaled_dot_product_attention takes for tensors of the device.

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/GradMode.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tn::eager {
namespace {

namespace py = pybind11;

constexpr auto kMath = static_cast<int64_t>(at::SDPBackend::math);
constexpr auto kOverrideable = static_cast<int64_t>(at::SDPBackend::overrideable);

// Only the tensors of PyTorch's tracers are known to take the fused operator; a DTensor, for one,
// is not.
bool is_tracers(const at::Tensor& tensor) {
  const py::gil_scoped_acquire gil;
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  const std::string_view name = Py_TYPE(object.ptr())->tp_name;
  return name == "FakeTensor" || name == "FunctionalTensor";
}

// Tensors of functorch and nested ones have no rule for the fused operator.
bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet wrapped(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::Batched, c10::DispatchKey::NestedTensor});
  if (tensor.is_nested() || tensor.key_set().has_any(wrapped)) {
    return false;
  }
  return !tensor.key_set().has(c10::DispatchKey::Python) || is_tracers(tensor);
}

// By backward or forward mode.
bool needs_gradient(const at::Tensor& tensor) {
  return (at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(0).defined();
}

bool is_suited(const at::Tensor& tensor) {
  return tensor.dim() == 4 && at::isFloatingType(tensor.scalar_type()) && is_plain(tensor) &&
         !needs_gradient(tensor);
}

// A mask of fewer dimensions, or with sizes of 1, is broadcast to the scores.
bool is_suited_mask(const at::Tensor& mask, const at::Tensor& query, const at::Tensor& key) {
  if (mask.dim() > 4 || !is_plain(mask) || needs_gradient(mask)) {
    return false;
  }
  const c10::SymInt scores[] = {query.sym_size(0), query.sym_size(1), query.sym_size(2),
                                key.sym_size(2)};
  for (int64_t dim = 1; dim <= mask.dim(); ++dim) {
    const c10::SymInt size = mask.sym_size(-dim);
    if (size != 1 && size != scores[4 - dim]) {
      return false;
    }
  }
  return true;
}

// The fused operator where nothing is differentiated, over (B, H, L, E) with one key head for each
// query head or, if asked for, for several; else the operations of the math road, which have all
// derivatives, draw dropout's random numbers as dropout does and raise PyTorch's errors for wrong
// shapes.
int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout_p, bool /*is_causal*/,
               std::optional<double> /*scale*/, bool enable_gqa) {
  if (!at::globalContext().userEnabledOverrideableSDP() || dropout_p > 0.0) {
    return kMath;
  }
  if (!is_suited(query) || !is_suited(key) || !is_suited(value)) {
    return kMath;
  }
  const c10::SymInt batch = query.sym_size(0);
  const c10::SymInt heads = query.sym_size(1);
  const c10::SymInt groups = key.sym_size(1);
  const bool fits = key.sym_size(0) == batch && value.sym_size(0) == batch &&
                    value.sym_size(1) == groups && value.sym_size(2) == key.sym_size(2) &&
                    key.sym_size(3) == query.sym_size(3) && query.sym_size(3) != 0;
  if (!fits) {
    return kMath;
  }
  const bool grouped = enable_gqa && groups != 0 && heads % groups == 0;
  if (groups != heads && !grouped) {
    return kMath;
  }
  if (mask.has_value() && mask->defined() && !is_suited_mask(*mask, query, key)) {
    return kMath;
  }
  return kOverrideable;
}

}  // namespace
}  // namespace tn::eager

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &tn::eager::choose)

}  // namespace at::native
