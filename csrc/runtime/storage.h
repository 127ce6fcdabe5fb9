// The handle behind a storage's DataPtr: a stable place that refers to the storage's current value.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "runtime/value.h"

namespace tn::runtime {

class SpinLock {
 public:
  void lock() noexcept {
    while (flag_.test_and_set(std::memory_order_acquire)) {
      __builtin_ia32_pause();
    }
  }
  void unlock() noexcept { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

// Every alias of a storage holds the same handle, so an in-place op that makes the handle refer to
// a new value is seen by all of them.
class StorageHandle {
 public:
  StorageHandle(c10::DeviceIndex device, size_t nbytes) noexcept
      : device_(device), nbytes_(nbytes) {}

  c10::DeviceIndex device() const noexcept { return device_; }
  size_t nbytes() const noexcept { return nbytes_; }

  // The current value; null until something was written or asked for.
  ValuePtr value() const noexcept {
    std::lock_guard<SpinLock> guard(lock_);
    return value_;
  }
  ValuePtr exchange(ValuePtr next) noexcept {
    std::lock_guard<SpinLock> guard(lock_);
    value_.swap(next);
    return next;
  }
  // The current value, made with `dtype` as an undefined one if there is none yet.
  ValuePtr value_or_undefined(c10::ScalarType dtype);

 private:
  c10::DeviceIndex device_;
  size_t nbytes_;
  mutable SpinLock lock_;
  ValuePtr value_;
};

// The handle of a neuron storage. The context pointer is ours by construction: only our allocator
// makes DataPtrs for this device.
inline StorageHandle& handle_of(const c10::StorageImpl& storage) {
  return *static_cast<StorageHandle*>(storage.data_ptr().get_context());
}
inline StorageHandle& handle_of(const c10::TensorImpl& tensor) {
  return handle_of(*tensor.unsafe_storage().unsafeGetStorageImpl());
}

}  // namespace tn::runtime
