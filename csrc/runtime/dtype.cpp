#include "runtime/dtype.h"

#include <c10/util/Exception.h>

namespace tn::runtime {
namespace {

PJRT_Buffer_Type lookup(c10::ScalarType type) noexcept {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Bool:
      return PJRT_Buffer_Type_PRED;
    case ScalarType::Char:
      return PJRT_Buffer_Type_S8;
    case ScalarType::Short:
      return PJRT_Buffer_Type_S16;
    case ScalarType::Int:
      return PJRT_Buffer_Type_S32;
    case ScalarType::Long:
      return PJRT_Buffer_Type_S64;
    case ScalarType::Byte:
      return PJRT_Buffer_Type_U8;
    case ScalarType::UInt16:
      return PJRT_Buffer_Type_U16;
    case ScalarType::UInt32:
      return PJRT_Buffer_Type_U32;
    case ScalarType::UInt64:
      return PJRT_Buffer_Type_U64;
    case ScalarType::Half:
      return PJRT_Buffer_Type_F16;
    case ScalarType::BFloat16:
      return PJRT_Buffer_Type_BF16;
    case ScalarType::Float:
      return PJRT_Buffer_Type_F32;
    case ScalarType::Double:
      return PJRT_Buffer_Type_F64;
    case ScalarType::ComplexFloat:
      return PJRT_Buffer_Type_C64;
    case ScalarType::ComplexDouble:
      return PJRT_Buffer_Type_C128;
    case ScalarType::Float8_e5m2:
      return PJRT_Buffer_Type_F8E5M2;
    case ScalarType::Float8_e4m3fn:
      return PJRT_Buffer_Type_F8E4M3FN;
    case ScalarType::Float8_e5m2fnuz:
      return PJRT_Buffer_Type_F8E5M2FNUZ;
    case ScalarType::Float8_e4m3fnuz:
      return PJRT_Buffer_Type_F8E4M3FNUZ;
    default:
      return PJRT_Buffer_Type_INVALID;
  }
}

}  // namespace

PJRT_Buffer_Type to_pjrt(c10::ScalarType type) {
  const PJRT_Buffer_Type result = lookup(type);
  TORCH_CHECK_TYPE(result != PJRT_Buffer_Type_INVALID, "the neuron device has no ",
                   c10::toString(type), " tensors; convert to a supported dtype first");
  return result;
}

bool is_supported(c10::ScalarType type) noexcept {
  return lookup(type) != PJRT_Buffer_Type_INVALID;
}

}  // namespace tn::runtime
