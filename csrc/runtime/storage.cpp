#include "runtime/storage.h"

#include <c10/util/Exception.h>

#include "runtime/fork.h"

namespace tn::runtime {

ValuePtr StorageHandle::value_or_undefined(c10::ScalarType dtype) {
  check_not_forked();
  std::lock_guard<SpinLock> guard(lock_);
  if (!value_) {
    // A storage whose size is no multiple of the element size (resize_, set_) is kept as bytes.
    const size_t itemsize = c10::elementSize(dtype);
    const bool whole = nbytes_ % itemsize == 0;
    value_ =
        c10::make_intrusive<Value>(Value::State::kUndefined, whole ? dtype : c10::ScalarType::Byte,
                                   static_cast<int64_t>(whole ? nbytes_ / itemsize : nbytes_));
  }
  return value_;
}

void check_in_bounds(const c10::TensorImpl& tensor, const StorageHandle& handle, int64_t extent) {
  const int64_t needed =
      (tensor.storage_offset() + extent) * static_cast<int64_t>(tensor.itemsize());
  TORCH_CHECK(tensor.numel() == 0 || needed <= static_cast<int64_t>(handle.nbytes()),
              "a tensor of sizes ", tensor.sizes(), ", strides ", tensor.strides(),
              " and storage offset ", tensor.storage_offset(), " needs a storage of ", needed,
              " bytes, but its storage has ", handle.nbytes());
}

}  // namespace tn::runtime
