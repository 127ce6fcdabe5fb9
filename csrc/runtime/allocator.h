// The device allocator: hands out storages' handles and keeps the memory figures and the limit.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace tn::runtime {

// Names the op on whose behalf this thread allocates, for out-of-memory messages.
class AllocationScope {
 public:
  explicit AllocationScope(const char* op) noexcept;
  ~AllocationScope();
  AllocationScope(const AllocationScope&) = delete;
  AllocationScope& operator=(const AllocationScope&) = delete;

 private:
  const char* previous_;
};

// A storage's DataPtr of `nbytes` on `device`. Raises OutOfMemoryError when the device is full.
c10::DataPtr allocate(size_t nbytes, c10::DeviceIndex device);

// The allocator registered for the device type.
c10::DeviceAllocator& device_allocator();

// Whether an address is one of our virtual addresses.
bool is_device_address(const void* address) noexcept;

}  // namespace tn::runtime
