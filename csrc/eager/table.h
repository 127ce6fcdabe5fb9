// From signatures to what they resolved to: of an op, of a compiled graph.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eager/signature.h"

namespace tn::eager {

// Thread-safe. With a bound, inserting drops the entries used longest ago.
template <typename T>
class SignatureTable {
 public:
  using Pointer = std::shared_ptr<const T>;

  explicit SignatureTable(size_t bound = SIZE_MAX) noexcept : bound_(bound) {}

  Pointer find(const Signature& signature, size_t hash) const {
    const std::shared_lock<std::shared_mutex> guard(mutex_);
    const auto [begin, end] = slots_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (std::equal(signature.words.begin(), signature.words.end(), it->second.words.begin(),
                     it->second.words.end())) {
        if (bound_ != SIZE_MAX) {
          it->second.used.store(clock_.fetch_add(1, std::memory_order_relaxed),
                                std::memory_order_relaxed);
        }
        return it->second.entry;
      }
    }
    return nullptr;
  }

  // Gives the number of entries that made room.
  size_t insert(const Signature& signature, size_t hash, Pointer entry) {
    const std::unique_lock<std::shared_mutex> guard(mutex_);
    slots_.emplace(
        std::piecewise_construct, std::forward_as_tuple(hash),
        std::forward_as_tuple(std::vector<uint64_t>(signature.words.begin(), signature.words.end()),
                              std::move(entry), clock_.fetch_add(1, std::memory_order_relaxed)));
    size_t dropped = 0;
    for (; slots_.size() > bound_; ++dropped) {
      slots_.erase(std::min_element(slots_.begin(), slots_.end(), [](auto& left, auto& right) {
        return left.second.used.load(std::memory_order_relaxed) <
               right.second.used.load(std::memory_order_relaxed);
      }));
    }
    return dropped;
  }

  size_t size() const {
    const std::shared_lock<std::shared_mutex> guard(mutex_);
    return slots_.size();
  }

  // Forgets all (tests, changes of settings).
  void clear() {
    const std::unique_lock<std::shared_mutex> guard(mutex_);
    slots_.clear();
  }

 private:
  struct Slot {
    Slot(std::vector<uint64_t> words_in, Pointer entry_in, uint64_t used_in) noexcept
        : words(std::move(words_in)), entry(std::move(entry_in)), used(used_in) {}
    std::vector<uint64_t> words;
    Pointer entry;
    mutable std::atomic<uint64_t> used;
  };

  size_t bound_;
  mutable std::atomic<uint64_t> clock_{0};
  mutable std::shared_mutex mutex_;
  std::unordered_multimap<size_t, Slot> slots_;
};

}  // namespace tn::eager
