// Pinned host memory: page-aligned blocks that the device can copy from and to asynchronously.
#include "runtime/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace tn::runtime {
namespace {

constexpr size_t kPage = 4096;

class Pages {
 public:
  void* allocate(size_t bytes) {
    const size_t size = bytes == 0 ? kPage : (bytes + kPage - 1) / kPage * kPage;
    void* block = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&block, kPage, size) == 0,
                     "pinned host memory: cannot allocate ", bytes, " bytes");
    std::lock_guard<std::mutex> guard(mutex_);
    blocks_.emplace(static_cast<char*>(block), size);
    stats_.active_requests.increase(1);
    stats_.active_bytes.increase(size);
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(size);
    ++stats_.num_host_alloc;
    return block;
  }
  void release(void* block) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = blocks_.find(static_cast<char*>(block));
    stats_.active_requests.decrease(1);
    stats_.active_bytes.decrease(found->second);
    stats_.allocations.decrease(1);
    stats_.allocated_bytes.decrease(found->second);
    ++stats_.num_host_free;
    blocks_.erase(found);
    std::free(block);  // NOLINT: posix_memalign's partner
  }
  bool contains(const void* address) {
    const auto* byte = static_cast<const char*>(address);
    std::lock_guard<std::mutex> guard(mutex_);
    auto after = blocks_.upper_bound(const_cast<char*>(byte));  // NOLINT: map key type
    if (after == blocks_.begin()) {
      return false;
    }
    --after;
    return byte < after->first + after->second;
  }
  at::HostStats stats() {
    std::lock_guard<std::mutex> guard(mutex_);
    return stats_;
  }
  void reset(bool peak) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations,
                       &stats_.allocated_bytes}) {
      peak ? stat->reset_peak() : stat->reset_accumulated();
    }
  }

 private:
  std::mutex mutex_;
  std::map<char*, size_t> blocks_;
  at::HostStats stats_;
};

Pages& pages() {
  static auto* const instance = new Pages();  // NOLINT: blocks may be freed by static destructors
  return *instance;
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    void* block = pages().allocate(bytes);
    return {block, block, &release, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override {
    return false;  // copies keep their source alive themselves
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return pages().stats(); }
  void reset_accumulated_stats() override { pages().reset(false); }
  void reset_peak_stats() override { pages().reset(true); }

 private:
  static void release(void* block) { pages().release(block); }
};

PinnedAllocator g_pinned;
REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &g_pinned)

}  // namespace

c10::Allocator* pinned_allocator() { return &g_pinned; }

bool is_pinned(const void* address) { return pages().contains(address); }

}  // namespace tn::runtime
