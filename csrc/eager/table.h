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

// Thread-safe. With a bound, inserting drops the entries used longest ago; several tables together
// are swept with a generation that they share.
template <typename T>
class SignatureTable {
 public:
  using Pointer = std::shared_ptr<const T>;

  explicit SignatureTable(size_t bound) noexcept : bound_(bound) {}

  // Uses are marked with `generation`, which whoever sweeps the tables advances.
  explicit SignatureTable(const std::atomic<uint64_t>& generation) noexcept
      : generation_(&generation) {}

  Pointer find(const Signature& signature, size_t hash) const {
    const std::shared_lock<std::shared_mutex> guard(mutex_);
    const auto [begin, end] = slots_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (std::equal(signature.words.begin(), signature.words.end(), it->second.words.begin(),
                     it->second.words.end())) {
        const uint64_t now = time();
        // Between two sweeps nothing is written here.
        if (it->second.used.load(std::memory_order_relaxed) != now) {
          it->second.used.store(now, std::memory_order_relaxed);
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
                              std::move(entry), time()));
    size_t dropped = 0;
    for (; slots_.size() > bound_; ++dropped) {
      slots_.erase(std::min_element(slots_.begin(), slots_.end(), [](auto& left, auto& right) {
        return left.second.used.load(std::memory_order_relaxed) <
               right.second.used.load(std::memory_order_relaxed);
      }));
    }
    return dropped;
  }

  // Drops the entries last used before the generation `since` that `may_go`; gives how many.
  template <typename Predicate>
  size_t drop_unused(uint64_t since, Predicate may_go) {
    std::vector<Pointer> dropped;  // destroyed without the lock
    const std::unique_lock<std::shared_mutex> guard(mutex_);
    for (auto it = slots_.begin(); it != slots_.end();) {
      if (it->second.used.load(std::memory_order_relaxed) < since && may_go(*it->second.entry)) {
        dropped.push_back(std::move(it->second.entry));
        it = slots_.erase(it);
      } else {
        ++it;
      }
    }
    return dropped.size();
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

  uint64_t time() const noexcept {
    return generation_ != nullptr ? generation_->load(std::memory_order_relaxed)
                                  : clock_.fetch_add(1, std::memory_order_relaxed);
  }

  size_t bound_ = SIZE_MAX;
  const std::atomic<uint64_t>* generation_ = nullptr;
  mutable std::atomic<uint64_t> clock_{0};
  mutable std::shared_mutex mutex_;
  std::unordered_multimap<size_t, Slot> slots_;
};

}  // namespace tn::eager
