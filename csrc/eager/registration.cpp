// Which ops the boxed kernel serves.
#include "eager/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "eager/kernel.h"

namespace tn::eager {
namespace {

using c10::DispatchKey;

// Ops that PyTorch would compose of others (or refuse) but that are one program here.
constexpr std::array kOwned = {
    "aten::_adaptive_avg_pool2d_backward",
    "aten::_conj_physical",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward",
    "aten::_weight_norm_interface",
    "aten::as_strided_scatter",
    "aten::convolution",
    "aten::conj_physical_",
    "aten::cummax",
    "aten::cummin",
    "aten::convolution_backward",
    "aten::convolution_overrideable",
    "aten::convolution_backward_overrideable",
    "aten::diagonal_backward",
    "aten::diagonal_scatter",
    "aten::embedding",
    "aten::logcumsumexp",
    "aten::mode",
    "aten::native_group_norm",
    "aten::native_group_norm_backward",
    "aten::native_layer_norm",
    "aten::repeat",
    "aten::select_backward",
    "aten::select_scatter",
    "aten::slice_backward",
    "aten::slice_scatter",
    "aten::stack",
    "aten::unfold_backward",
};

bool is_owned(const std::string& name) {
  return name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_") ||
         std::find(kOwned.begin(), kOwned.end(), name) != kOwned.end();
}

// A view gives back an alias of an argument without writing to it.
bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

bool has_tensors(const c10::FunctionSchema& schema) {
  const auto mentions = [](const c10::Argument& argument) {
    return argument.type()->str().find("Tensor") != std::string::npos;
  };
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), mentions) ||
         std::any_of(schema.returns().begin(), schema.returns().end(), mentions);
}

bool should_serve(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  const std::string& name = handle.operator_name().name;
  if (handle.hasKernelForDispatchKey(DispatchKey::PrivateUse1) || is_view(schema) ||
      !has_tensors(schema)) {
    return false;
  }
  // What has a kernel on the CPU is composed elsewhere only, with a rounding after each step.
  if (is_owned(name) || handle.hasKernelForDispatchKey(DispatchKey::CPU)) {
    return true;
  }
  return !handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
}

}  // namespace

void register_kernels() {
  auto& dispatcher = c10::Dispatcher::singleton();
  // Registrations last as long as the library object: it is never destroyed.
  static auto* const library = new torch::Library(
      torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);  // NOLINT
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto handle = dispatcher.findSchema(name);
    if (handle.has_value() && should_serve(*handle)) {
      library->impl(c10::toString(name).c_str(),
                    torch::CppFunction::makeFromBoxedFunction<&boxed_kernel>());
    }
  }
}

// Everything else that reaches the device, ops of other libraries included.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_kernel>());
}

}  // namespace tn::eager
