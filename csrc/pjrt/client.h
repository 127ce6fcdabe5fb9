// A plugin's runtime instance: its devices, its buffers, its compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt/api.h"
#include "pjrt/buffer.h"
#include "pjrt/executable.h"

namespace tn::pjrt {

using XlaFlags = std::map<std::string, std::string>;

// Owns a PJRT_Client. Devices are numbered 0 .. device_count()-1 in the order in which the plugin
// lists the addressable ones; an index outside that range is an Error. Thread-safe.
class Client : public std::enable_shared_from_this<Client> {
 public:
  static std::shared_ptr<Client> create(std::shared_ptr<const Api> api,
                                        const NamedValues& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Api& api() const { return *api_; }
  const std::string& platform_name() const { return platform_name_; }
  std::string platform_version() const;
  // Whether device memory is this process's host memory.
  bool is_cpu() const { return is_cpu_; }

  int device_count() const { return static_cast<int>(devices_.size()); }
  PJRT_Device* device(int index) const;
  // The plugin's id of the device (what a device assignment names).
  int device_id(int index) const;
  std::string device_kind(int index) const;
  NamedValues device_attributes(int index) const;
  // Bytes in use, limits and so on, as far as the plugin tells; empty if it tells nothing.
  std::map<std::string, int64_t> memory_stats(int index) const;

  // A device copy of dense row-major host data, read before this returns.
  Buffer from_host(const void* data, PJRT_Buffer_Type type, const int64_t* dims, size_t ndims,
                   int device) const;
  // The same, but `data` must stay unchanged until the event is ready.
  std::pair<Buffer, Event> from_host_async(const void* data, PJRT_Buffer_Type type,
                                           const int64_t* dims, size_t ndims, int device) const;

  // Compiles a StableHLO module (text, bytecode or portable artifact) for one device. `flags` are
  // the plugin's own compile options by name (XLA's debug options for XLA plugins).
  std::shared_ptr<Executable> compile(std::string_view mlir, int device,
                                      const XlaFlags& flags = {}) const;
  // Loads what Executable::serialize gave, on `device`.
  std::shared_ptr<Executable> deserialize(std::string_view bytes, int device) const;

 private:
  Client(std::shared_ptr<const Api> api, PJRT_Client* raw);
  std::pair<Buffer, Event> buffer_from_host(const void* data, PJRT_Buffer_Type type,
                                            const int64_t* dims, size_t ndims, int device,
                                            PJRT_HostBufferSemantics semantics) const;
  PJRT_DeviceDescription* description(int index) const;
  std::shared_ptr<Executable> load(std::string_view bytes, std::string_view options) const;

  std::shared_ptr<const Api> api_;
  PJRT_Client* raw_;
  std::vector<PJRT_Device*> devices_;
  std::string platform_name_;
  bool is_cpu_ = false;
};

}  // namespace tn::pjrt
