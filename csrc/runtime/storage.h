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
  StorageHandle(c10::DeviceIndex device, size_t nbytes, uintptr_t address) noexcept
      : device_(device), nbytes_(nbytes), address_(address) {}
  ~StorageHandle() {
    if (value_) {
      value_->left_by_storage(0);
    }
  }
  StorageHandle(const StorageHandle&) = delete;
  StorageHandle& operator=(const StorageHandle&) = delete;

  c10::DeviceIndex device() const noexcept { return device_; }
  size_t nbytes() const noexcept { return nbytes_; }
  uintptr_t address() const noexcept { return address_; }

  // The current value; null until something was written or asked for.
  ValuePtr value() const noexcept {
    std::lock_guard<SpinLock> guard(lock_);
    return value_;
  }
  // Returns the value so far, an operand of the task that is about to make `next`.
  ValuePtr exchange(ValuePtr next) noexcept {
    std::lock_guard<SpinLock> guard(lock_);
    value_.swap(next);
    if (next) {
      next->left_by_storage(1);
    }
    return next;
  }
  // The current value, made with `dtype` as an undefined one if there is none yet.
  ValuePtr value_or_undefined(c10::ScalarType dtype);

  // Neighbours among the device's live handles; the allocator's, under its lock.
  StorageHandle* previous = nullptr;
  StorageHandle* next = nullptr;

 private:
  c10::DeviceIndex device_;
  size_t nbytes_;
  uintptr_t address_;
  mutable SpinLock lock_;
  ValuePtr value_;
};

// The deleter of our allocator's DataPtrs: it marks a context as a handle.
void delete_handle(void* context);

// The live handle at an address, for storages that PyTorch makes over the bare address (pickling,
// DLPack). Raises RuntimeError if none begins there.
StorageHandle& handle_at(const void* address);

// The handle of a neuron storage.
inline StorageHandle& handle_of(const c10::DataPtr& data) {
  return data.get_deleter() == &delete_handle ? *static_cast<StorageHandle*>(data.get_context())
                                              : handle_at(data.get());
}
inline StorageHandle& handle_of(const c10::TensorImpl& tensor) {
  return handle_of(tensor.unsafe_storage().data_ptr());
}

// Raises RuntimeError for a tensor that reaches beyond its storage; one can, after the storage was
// made smaller. `extent` is the number of elements from its first to its last, counting both.
void check_in_bounds(const c10::TensorImpl& tensor, const StorageHandle& handle, int64_t extent);

}  // namespace tn::runtime
