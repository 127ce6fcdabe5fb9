// A value in a device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pjrt/event.h"

namespace tn::pjrt {

class Client;

// Owns a PJRT_Buffer and keeps its client alive. Empty when default-constructed or moved from:
// then only valid(), get() and assignment may be used.
class Buffer {
 public:
  Buffer() = default;
  // Takes ownership of `raw`, such as an output of Executable::execute.
  Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* raw)
      : client_(std::move(client)), raw_(raw) {}
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept
      : client_(std::move(other.client_)), raw_(std::exchange(other.raw_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept;

  bool valid() const { return raw_ != nullptr; }
  PJRT_Buffer* get() const { return raw_; }
  // Gives up ownership.
  PJRT_Buffer* release() noexcept;
  const std::shared_ptr<const Client>& client() const { return client_; }

  // Bytes on the device.
  size_t bytes() const;
  PJRT_Buffer_Type type() const;
  std::vector<int64_t> dims() const;
  // Whether its memory was given away (donated to an execution) or deleted.
  bool donated() const;

  // Ready when the value has been computed; carries the error of its computation.
  Event ready_event() const;
  // Starts a copy of the whole value to `dst`, of `n` bytes (at least bytes()); `dst` must stay
  // valid until the event is ready. An Error, here or in the event, where donated().
  Event copy_to_host(void* dst, size_t n) const;
  // A copy on another device, number `device` of `client`.
  Buffer copy_to_device(const Client& client, int device) const;
  // The address of the value in host memory, or nullptr where the plugin does not say it or the
  // device is not the host's CPU. Valid while the buffer is, and readable once it is ready.
  void* unsafe_host_pointer() const;

 private:
  void reset() noexcept;
  const Api& api() const;

  std::shared_ptr<const Client> client_;
  PJRT_Buffer* raw_ = nullptr;
};

}  // namespace tn::pjrt
