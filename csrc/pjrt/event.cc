#include "pjrt/event.h"

#include <memory>
#include <optional>

namespace tn::pjrt {
namespace {

struct Callback {
  const Api& api;
  std::function<void(const Error*)> function;
};

// Called by the plugin, which cannot catch: an exception ends the process here.
void run_callback(PJRT_Error* error, void* user_arg) noexcept {
  std::unique_ptr<Callback> callback(static_cast<Callback*>(user_arg));
  if (error == nullptr) {
    callback->function(nullptr);
    return;
  }
  Error taken = callback->api.take(entry::Event_OnReady::kName, error);
  callback->function(&taken);
}

}  // namespace

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    reset();
    api_ = other.api_;
    raw_ = std::exchange(other.raw_, nullptr);
  }
  return *this;
}

void Event::reset() noexcept {
  if (raw_ == nullptr) return;
  auto args = Api::args<entry::Event_Destroy>();
  args.event = std::exchange(raw_, nullptr);
  api_->call_noexcept<entry::Event_Destroy>(args);
}

bool Event::ready() const {
  if (raw_ == nullptr) return true;
  auto args = Api::args<entry::Event_IsReady>();
  args.event = raw_;
  api_->call<entry::Event_IsReady>(args);
  return args.is_ready;
}

void Event::await() const {
  if (raw_ == nullptr) return;
  auto args = Api::args<entry::Event_Await>();
  args.event = raw_;
  api_->call<entry::Event_Await>(args);
}

void Event::on_ready(std::function<void(const Error*)> callback) const {
  if (raw_ == nullptr) {
    callback(nullptr);
    return;
  }
  auto state = std::make_unique<Callback>(Callback{*api_, std::move(callback)});
  auto args = Api::args<entry::Event_OnReady>();
  args.event = raw_;
  args.callback = run_callback;
  args.user_arg = state.get();
  api_->call<entry::Event_OnReady>(args);
  // Registered: run_callback owns it now (and may have freed it already).
  static_cast<void>(state.release());
}

}  // namespace tn::pjrt
