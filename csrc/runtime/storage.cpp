#include "runtime/storage.h"

namespace tn::runtime {

ValuePtr StorageHandle::value_or_undefined(c10::ScalarType dtype) {
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

}  // namespace tn::runtime
