#include "pjrt/buffer.h"

#include "pjrt/client.h"

namespace tn::pjrt {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    client_ = std::move(other.client_);
    raw_ = std::exchange(other.raw_, nullptr);
  }
  return *this;
}

const Api& Buffer::api() const { return client_->api(); }

PJRT_Buffer* Buffer::release() noexcept {
  client_.reset();
  return std::exchange(raw_, nullptr);
}

void Buffer::reset() noexcept {
  if (raw_ != nullptr) {
    auto args = Api::args<entry::Buffer_Destroy>();
    args.buffer = std::exchange(raw_, nullptr);
    api().call_noexcept<entry::Buffer_Destroy>(args);
  }
  client_.reset();
}

size_t Buffer::bytes() const {
  auto args = Api::args<entry::Buffer_OnDeviceSizeInBytes>();
  args.buffer = raw_;
  api().call<entry::Buffer_OnDeviceSizeInBytes>(args);
  return args.on_device_size_in_bytes;
}

PJRT_Buffer_Type Buffer::type() const {
  auto args = Api::args<entry::Buffer_ElementType>();
  args.buffer = raw_;
  api().call<entry::Buffer_ElementType>(args);
  return args.type;
}

std::vector<int64_t> Buffer::dims() const {
  auto args = Api::args<entry::Buffer_Dimensions>();
  args.buffer = raw_;
  api().call<entry::Buffer_Dimensions>(args);
  return {args.dims, args.dims + args.num_dims};
}

bool Buffer::donated() const {
  auto args = Api::args<entry::Buffer_IsDeleted>();
  args.buffer = raw_;
  api().call<entry::Buffer_IsDeleted>(args);
  return args.is_deleted;
}

Event Buffer::ready_event() const {
  auto args = Api::args<entry::Buffer_ReadyEvent>();
  args.buffer = raw_;
  api().call<entry::Buffer_ReadyEvent>(args);
  return Event(api(), args.event);
}

Event Buffer::copy_to_host(void* dst, size_t n) const {
  // A null destination would ask for the size only; an empty value may have none.
  char nothing;
  auto args = Api::args<entry::Buffer_ToHostBuffer>();
  args.src = raw_;
  args.dst = dst != nullptr ? dst : &nothing;
  args.dst_size = dst != nullptr ? n : 0;
  api().call<entry::Buffer_ToHostBuffer>(args);
  Event event(api(), args.event);
  if (dst == nullptr) event.await();
  return event;
}

Buffer Buffer::copy_to_device(const Client& client, int device) const {
  auto args = Api::args<entry::Buffer_CopyToDevice>();
  args.buffer = raw_;
  args.dst_device = client.device(device);
  api().call<entry::Buffer_CopyToDevice>(args);
  return Buffer(client.shared_from_this(), args.dst_buffer);
}

void* Buffer::unsafe_host_pointer() const {
  if (!client_->is_cpu()) return nullptr;
  if (api().offers<entry::Buffer_UnsafePointer>()) {
    auto args = Api::args<entry::Buffer_UnsafePointer>();
    args.buffer = raw_;
    api().call<entry::Buffer_UnsafePointer>(args);
    return reinterpret_cast<void*>(args.buffer_pointer);
  }
  if (api().offers<entry::Buffer_OpaqueDeviceMemoryDataPointer>()) {
    auto args = Api::args<entry::Buffer_OpaqueDeviceMemoryDataPointer>();
    args.buffer = raw_;
    api().call<entry::Buffer_OpaqueDeviceMemoryDataPointer>(args);
    return args.device_memory_ptr;
  }
  return nullptr;
}

}  // namespace tn::pjrt
