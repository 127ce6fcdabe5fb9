// A compiled program, loaded on one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "pjrt/api.h"

namespace tn::pjrt {

class Client;

// Owns a PJRT_LoadedExecutable and keeps its client alive. All methods may be called from several
// threads at once.
class Executable {
 public:
  // Takes ownership of `raw`.
  Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* raw);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const std::shared_ptr<const Client>& client() const { return client_; }
  size_t num_outputs() const { return num_outputs_; }
  std::string name() const;
  // The id of the device it is loaded on; nullopt where the plugin does not say.
  std::optional<int> device_id() const;

  // Bytes from which Client::deserialize makes the program again, with the same plugin build.
  std::string serialize() const;

  // Starts the program. `outs` (room for num_outputs() pointers) receives owned buffers, for the
  // caller to wrap in Buffer. An argument that the program may alias to an output is donated
  // unless its index stands in `non_donatable`. Allocates nothing. Throws Error for what the
  // plugin finds wrong at once; a later failure is the outputs' ready_event()'s.
  void execute(PJRT_Buffer* const* args, size_t nargs, PJRT_Buffer** outs,
               const int64_t* non_donatable, size_t n_non_donatable) const;

  // What only some plugins tell: nullopt or an empty map from the others.
  std::optional<int64_t> generated_code_size() const;
  std::optional<std::string> fingerprint() const;
  std::map<std::string, double> cost_analysis() const;
  std::map<std::string, int64_t> memory_stats() const;

 private:
  struct Raw {
    PJRT_LoadedExecutable* pointer;
  };
  Executable(std::shared_ptr<const Client> client, Raw raw);
  const Api& api() const { return *api_; }

  std::shared_ptr<const Client> client_;
  const Api* api_;
  PJRT_LoadedExecutable* raw_;
  PJRT_Executable* program_ = nullptr;
  size_t num_outputs_ = 0;
};

}  // namespace tn::pjrt
