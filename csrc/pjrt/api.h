// A loaded PJRT plugin and the one way to call it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt/entries.h"
#include "pjrt/error.h"
#include "pjrt/named_value.h"

namespace tn::pjrt {

// A plugin's function table. Loaded and initialised once per process and shared object, and never
// unloaded (a plugin's threads may outlive every client), so a plain reference to an Api stays
// valid until the process ends.
class Api {
 public:
  // Loads the plugin at `so_path`, or returns the one already loaded from there. Throws Error when
  // the file is missing or no PJRT plugin, or when its API version does not fit ours.
  static std::shared_ptr<const Api> load(const std::string& so_path);

  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  const PJRT_Api* raw() const { return raw_; }
  const std::string& path() const { return path_; }
  // The (major, minor) version of the C API that the plugin was built with.
  std::pair<int, int> version() const;
  // What the plugin says of itself (for example the StableHLO versions it reads); empty if nothing.
  NamedValues attributes() const;

  // Whether the plugin's table has this entry.
  template <class Entry>
  bool offers() const {
    return Entry::kSlotEnd <= raw_->struct_size && raw_->*Entry::kSlot != nullptr;
  }
  // The names of the entries we know how to call and the plugin lacks.
  std::vector<std::string> missing_entries() const;

  // Zeroed arguments with their size set.
  template <class Entry>
  static typename Entry::Args args() {
    typename Entry::Args out{};
    out.struct_size = Entry::kArgsSize;
    return out;
  }

  // The choke point of all calls. Throws Error (UNIMPLEMENTED where the plugin lacks the entry).
  template <class Entry>
  void call(typename Entry::Args& args) const {
    check<Entry>((*require<Entry>())(&args));
  }

  // For destructors: the same without an error, which nobody could handle there.
  template <class Entry>
  void call_noexcept(typename Entry::Args& args) const noexcept {
    if (offers<Entry>()) discard((raw_->*Entry::kSlot)(&args));
  }

  // Turns an error that the plugin handed over (and that we own) into our own, and frees it.
  Error take(std::string_view api, PJRT_Error* error) const;

 private:
  Api(std::string path, const PJRT_Api* raw) : path_(std::move(path)), raw_(raw) {}

  template <class Entry>
  auto require() const {
    if (!offers<Entry>()) [[unlikely]]
      throw_unimplemented(Entry::kName);
    return raw_->*Entry::kSlot;
  }
  template <class Entry>
  void check(PJRT_Error* error) const {
    if (error != nullptr) [[unlikely]]
      throw take(Entry::kName, error);
  }
  void discard(PJRT_Error* error) const noexcept;
  [[noreturn]] void throw_unimplemented(const char* name) const;
  void initialize() const;

  std::string path_;
  const PJRT_Api* raw_;
};

}  // namespace tn::pjrt
