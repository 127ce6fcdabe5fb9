#include "eager/signature.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace tn::eager {
namespace {

// Tags keep different kinds of argument apart in the word sequence.
enum Tag : uint64_t {
  kTagNone = 1,
  kTagTensor,
  kTagUndefined,
  kTagHostScalar,
  kTagHostTensor,
  kTagOperand,
  kTagInt,
  kTagDouble,
  kTagBool,
  kTagComplex,
  kTagString,
  kTagDevice,
  kTagList,
  kTagGenerator,
  kTagDefault,
  kTagSize,
};

constexpr c10::DispatchKeySet kLazy({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

// Finds tensors of one storage. A call of few tensors is searched, a call of many keeps a table:
// open addressing, at most half full, of indices into the signature's tensors plus one.
class StorageIndex {
 public:
  explicit StorageIndex(const Signature& signature) : tensors_(signature.tensors) {}

  // Index of the first tensor of the call with this storage; the next index if there is none.
  uint32_t group_of(const runtime::StorageHandle* handle) {
    const size_t count = tensors_.size();
    if (count < kLinearSearch) {
      for (size_t i = 0; i < count; ++i) {
        if (tensors_[i].handle == handle) {
          return static_cast<uint32_t>(i);
        }
      }
      return static_cast<uint32_t>(count);
    }
    if (2 * count >= slots_.size()) {
      rebuild(std::max(count + 1, tensors_.capacity()));
    }
    uint32_t& slot = slot_of(handle);
    if (slot == 0) {
      slot = static_cast<uint32_t>(count) + 1;
    }
    return slot - 1;
  }

 private:
  static constexpr size_t kLinearSearch = 12;

  void rebuild(size_t room) {
    const size_t size = std::bit_ceil(2 * room);
    slots_.assign(size, 0);
    shift_ = 64 - std::countr_zero(size);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].group == i) {
        slot_of(tensors_[i].handle) = static_cast<uint32_t>(i) + 1;
      }
    }
  }

  // The slot of a storage: zero until it is given one.
  uint32_t& slot_of(const runtime::StorageHandle* handle) {
    const uint64_t mixed = reinterpret_cast<uintptr_t>(handle) * 0x9E3779B97F4A7C15ULL;
    size_t at = mixed >> shift_;
    while (slots_[at] != 0 && tensors_[slots_[at] - 1].handle != handle) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return slots_[at];
  }

  const c10::SmallVectorImpl<TensorRef>& tensors_;
  c10::SmallVector<uint32_t, 64> slots_;
  int shift_ = 0;
};

class Taker {
 public:
  explicit Taker(Signature& signature) : signature_(signature), storages_(signature) {}

  void argument(const ArgumentPolicy& policy, size_t index, const c10::IValue& value) {
    index_ = index;
    written_ = policy.written;
    switch (policy.kind) {
      case ArgumentPolicy::Kind::kTensor:
        value.isTensor() ? tensor(value.toTensor()) : none_or_static(value);
        break;
      case ArgumentPolicy::Kind::kTensorList:
        tensor_list(value);
        break;
      case ArgumentPolicy::Kind::kScalar:
        policy.operand && !value.isNone() ? scalar(policy, value) : fixed(value);
        break;
      case ArgumentPolicy::Kind::kScalarList:
        policy.operand&& value.isList() ? scalar_list(value) : fixed(value);
        break;
      case ArgumentPolicy::Kind::kStatic:
        fixed(value);
        break;
    }
  }

 private:
  void word(uint64_t value) { signature_.words.push_back(value); }

  void none_or_static(const c10::IValue& value) { value.isNone() ? word(kTagNone) : fixed(value); }

  void tensor_list(const c10::IValue& value) {
    if (value.isNone()) {
      word(kTagNone);
      return;
    }
    const c10::ArrayRef<c10::IValue> items = value.toListRef();
    word(kTagList | items.size() << 8);
    in_list_ = true;
    for (const c10::IValue& item : items) {
      item.isNone() ? word(kTagNone) : tensor(item.toTensor());
    }
    in_list_ = false;
  }

  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      word(kTagUndefined);
      return;
    }
    at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (impl->device_type() != c10::DeviceType::PrivateUse1) {
      host_tensor(tensor);
      return;
    }
    check_device(impl->device());
    TORCH_CHECK(impl->has_storage(), "a ", tensor.layout(),
                " tensor cannot be an operand of a dense neuron op");
    if (impl->key_set().has_any(kLazy)) {
      if (signature_.lazy_tensors.empty() || signature_.lazy_tensors.back() != index_) {
        signature_.lazy_tensors.push_back(index_);
      }
      signature_.cacheable = false;
    }
    TensorRef ref;
    ref.impl = impl;
    ref.handle = &runtime::handle_of(*impl);
    ref.written = written_;
    ref.group = storages_.group_of(ref.handle);
    ref.value = ref.group == signature_.tensors.size()
                    ? ref.handle->value_or_undefined(impl->dtype().toScalarType())
                    : signature_.tensors[ref.group].value;
    check_overlap(ref);
    describe(*impl, ref);
    signature_.tensors.push_back(std::move(ref));
  }

  // PyTorch refuses to write to memory that another operand sees in another arrangement.
  void check_overlap(const TensorRef& ref) {
    any_written_ |= ref.written;
    if (!any_written_ || in_list_ || ref.group == signature_.tensors.size()) {
      return;
    }
    for (const TensorRef& other : signature_.tensors) {
      if (other.handle == ref.handle && (other.written || ref.written)) {
        at::assert_no_partial_overlap(
            at::Tensor(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(ref.impl)),
            at::Tensor(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(other.impl)));
      }
    }
  }

  void describe(const at::TensorImpl& impl, TensorRef& ref) {
    const c10::ScalarType dtype = impl.dtype().toScalarType();
    const c10::IntArrayRef sizes = impl.sizes();
    const c10::IntArrayRef strides = impl.strides();
    int64_t extent = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      extent += (sizes[i] - 1) * strides[i];
    }
    const bool empty = impl.numel() == 0;
    const auto itemsize = static_cast<int64_t>(impl.itemsize());
    runtime::check_in_bounds(impl, *ref.handle, extent);
    ref.whole = empty || (impl.storage_offset() == 0 &&
                          extent * itemsize == static_cast<int64_t>(ref.handle->nbytes()));
    word(kTagTensor | static_cast<uint64_t>(dtype) << 8 |
         static_cast<uint64_t>(ref.value->dtype()) << 16 | sizes.size() << 24 |
         static_cast<uint64_t>(ref.whole) << 32 | static_cast<uint64_t>(ref.group) << 40);
    for (size_t i = 0; i < sizes.size(); ++i) {
      word(static_cast<uint64_t>(sizes[i]));
      // The stride of a dimension of size one or of an empty tensor means nothing.
      word(sizes[i] == 1 || empty ? 1 : static_cast<uint64_t>(strides[i]));
    }
    if (!ref.whole || empty) {
      word(static_cast<uint64_t>(ref.value->numel()));
    }
  }

  void check_device(c10::Device device) {
    if (signature_.device < 0) {
      signature_.device = device.index();
    }
    TORCH_CHECK(
        signature_.device == device.index(),
        "Expected all tensors to be on the same device, but found at least two devices, neuron:",
        static_cast<int>(signature_.device), " and ", device, "!");
  }

  void host_tensor(const at::Tensor& tensor) {
    if (tensor.device().is_cpu() && tensor.dim() == 0 && !written_ &&
        tensor.layout() == at::kStrided && runtime::is_supported(tensor.scalar_type())) {
      ScalarRef ref;
      ref.dtype = tensor.scalar_type();
      ref.argument = index_;
      ref.wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      std::memcpy(ref.bits.data(), tensor.const_data_ptr(), tensor.element_size());
      ref.example = c10::IValue(tensor);
      word(kTagHostScalar | static_cast<uint64_t>(ref.dtype) << 8 |
           static_cast<uint64_t>(ref.wrapped) << 16);
      signature_.scalars.push_back(std::move(ref));
      return;
    }
    word(kTagHostTensor);
    signature_.host_tensors.push_back(index_);
    signature_.cacheable = false;
  }

  void scalar(const ArgumentPolicy& policy, const c10::IValue& value) {
    if (!policy.default_value.isNone() && same_number(policy.default_value, value)) {
      word(kTagDefault);
      return;
    }
    ScalarRef ref;
    ref.argument = index_;
    ref.example = value;
    if (value.isDouble()) {
      ref.dtype = c10::ScalarType::Double;
      ref.bits[0] = std::bit_cast<uint64_t>(value.toDouble());
    } else if (value.isInt()) {
      ref.dtype = c10::ScalarType::Long;
      ref.bits[0] = static_cast<uint64_t>(value.toInt());
    } else if (value.isBool()) {
      ref.dtype = c10::ScalarType::Bool;
      ref.bits[0] = value.toBool() ? 1 : 0;
    } else if (value.isComplexDouble()) {
      ref.dtype = c10::ScalarType::ComplexDouble;
      const c10::complex<double> number = value.toComplexDouble();
      ref.bits = {std::bit_cast<uint64_t>(number.real()), std::bit_cast<uint64_t>(number.imag())};
    } else {
      fixed(value);
      return;
    }
    word(kTagOperand | static_cast<uint64_t>(ref.dtype) << 8);
    signature_.scalars.push_back(std::move(ref));
  }

  static bool same_number(const c10::IValue& left, const c10::IValue& right) {
    if (left.isInt() && right.isInt()) {
      return left.toInt() == right.toInt();
    }
    return left.isDouble() && right.isDouble() && left.toDouble() == right.toDouble();
  }

  // A list of floats becomes one operand; other lists are part of the signature.
  void scalar_list(const c10::IValue& value) {
    const c10::List<c10::IValue> items = value.toList();
    std::vector<double> numbers;
    numbers.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const c10::IValue item = items.get(i);
      if (!item.isDouble()) {
        fixed(value);
        return;
      }
      numbers.push_back(item.toDouble());
    }
    if (numbers.empty()) {
      fixed(value);
      return;
    }
    ScalarRef ref;
    ref.argument = index_;
    ref.example = value;
    ref.list = std::move(numbers);
    word(kTagOperand | kTagList << 8 | ref.list.size() << 16);
    signature_.scalars.push_back(std::move(ref));
  }

  void text(std::string_view bytes) {
    word(kTagString | bytes.size() << 8);
    for (size_t i = 0; i < bytes.size(); i += 8) {
      uint64_t chunk = 0;
      std::memcpy(&chunk, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
      word(chunk);
    }
  }

  void fixed(const c10::IValue& value) {
    if (value.isNone()) {
      word(kTagNone);
    } else if (value.isInt()) {
      word(kTagInt);
      word(static_cast<uint64_t>(value.toInt()));
    } else if (value.isDouble()) {
      word(kTagDouble);
      word(std::bit_cast<uint64_t>(value.toDouble()));
    } else if (value.isBool()) {
      word(kTagBool | static_cast<uint64_t>(value.toBool()) << 8);
    } else if (value.isComplexDouble()) {
      const c10::complex<double> number = value.toComplexDouble();
      word(kTagComplex);
      word(std::bit_cast<uint64_t>(number.real()));
      word(std::bit_cast<uint64_t>(number.imag()));
    } else if (value.isString()) {
      text(value.toStringRef());
    } else if (value.isDevice()) {
      device_argument(value.toDevice());
    } else if (value.isGenerator()) {
      word(kTagGenerator);
      signature_.generator = value.toGenerator();
    } else if (value.isTensor()) {
      tensor(value.toTensor());
    } else if (value.isList()) {
      fixed_list(value);
    } else if (value.isSymInt()) {
      word(kTagSize);  // a ragged one, of which no program depends
    } else {
      signature_.cacheable = false;
    }
  }

  void fixed_list(const c10::IValue& value) {
    if (value.isIntList()) {
      const auto items = value.toIntList();
      word(kTagList | kTagInt << 8 | items.size() << 16);
      for (const int64_t item : items) {
        word(static_cast<uint64_t>(item));
      }
      return;
    }
    const c10::List<c10::IValue> items = value.toList();
    word(kTagList | items.size() << 16);
    for (size_t i = 0; i < items.size(); ++i) {
      fixed(items.get(i));
    }
  }

  void device_argument(c10::Device device) {
    word(kTagDevice | static_cast<uint64_t>(device.type()) << 8);
    if (device.type() == c10::DeviceType::PrivateUse1) {
      const c10::DeviceIndex index =
          device.has_index() ? device.index() : runtime::Runtime::instance().current_device();
      runtime::Runtime::instance().check_index(index);
      if (signature_.device < 0) {
        signature_.device = index;
      }
    }
  }

  Signature& signature_;
  StorageIndex storages_;
  size_t index_ = 0;
  bool written_ = false;
  bool any_written_ = false;
  bool in_list_ = false;
};

}  // namespace

size_t Signature::hash() const noexcept {
  uint64_t state = 0x9E3779B97F4A7C15ULL ^ words.size();
  for (const uint64_t word : words) {
    state = (state ^ word) * 0xFF51AFD7ED558CCDULL;
    state ^= state >> 32;
  }
  return state;
}

void take_signature(const std::vector<ArgumentPolicy>& policies, const torch::jit::Stack& stack,
                    Signature& signature) {
  Taker taker(signature);
  const size_t base = stack.size() - policies.size();
  for (size_t i = 0; i < policies.size(); ++i) {
    taker.argument(policies[i], i, stack[base + i]);
  }
  if (signature.device < 0) {
    signature.device = runtime::Runtime::instance().current_device();
  }
  // Programs are loaded on one device each, and the default dtype decides what a number makes of
  // integers.
  const c10::ScalarType fallback_dtype = c10::typeMetaToScalarType(c10::get_default_dtype());
  signature.words.push_back(
      static_cast<uint64_t>(runtime::Runtime::instance().ordinal(signature.device)) |
      static_cast<uint64_t>(fallback_dtype) << 32);
}

}  // namespace tn::eager
