// Completion of asynchronous work on a device.
#pragma once

#include <functional>
#include <utility>

#include "pjrt/api.h"

namespace tn::pjrt {

// Owns a PJRT_Event. An empty event (default-constructed, moved from, or one that a plugin left
// null because there was nothing to wait for) is ready and without error.
// An Event must not outlive its client.
class Event {
 public:
  Event() = default;
  Event(const Api& api, PJRT_Event* raw) : api_(&api), raw_(raw) {}
  ~Event() { reset(); }
  Event(Event&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  Event& operator=(Event&& other) noexcept;

  // Whether the work has ended, in success or failure.
  bool ready() const;
  // Blocks until it has ended; throws the Error it ended in.
  void await() const;
  // Calls `callback` once, on a thread of the plugin's or on this one, with the error or nullptr.
  // The callback must not throw. The event may be destroyed before it is called.
  void on_ready(std::function<void(const Error*)> callback) const;

 private:
  void reset() noexcept;

  const Api* api_ = nullptr;
  PJRT_Event* raw_ = nullptr;
};

}  // namespace tn::pjrt
