#include "runtime/allocator.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>

#include "runtime/device.h"
#include "runtime/fork.h"
#include "runtime/storage.h"

namespace tn::runtime {
namespace {

using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

// Virtual addresses start here: not canonical on x86-64, so that host code which follows one faults
// at once instead of reading somebody's memory.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 56;
constexpr size_t kAlignment = 512;

thread_local const char* t_operation = nullptr;
std::atomic<uintptr_t> g_next_address{kFirstAddress};

std::string mebibytes(size_t bytes) {
  char text[32];
  if (bytes >= size_t{1} << 30) {
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1ULL << 30));
  } else if (bytes >= size_t{1} << 20) {
    std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1ULL << 20));
  } else {
    std::snprintf(text, sizeof text, "%zu bytes", bytes);
  }
  return text;
}

// Memory figures of one device. There is no cache of freed memory of our own, so reserved equals
// allocated and active.
class Ledger {
 public:
  // False if the limit leaves no room.
  bool charge(StorageHandle& handle, size_t limit) {
    const size_t bytes = handle.nbytes();
    std::lock_guard<SpinLock> guard(lock_);
    if (used_ + bytes > limit) {
      return false;
    }
    used_ += bytes;
    each_count([](c10::CachingAllocator::Stat& stat) { stat.increase(1); });
    each_size([bytes](c10::CachingAllocator::Stat& stat) { stat.increase(bytes); });
    ++stats_.num_device_alloc;
    handle.next = handles_;
    if (handles_ != nullptr) {
      handles_->previous = &handle;
    }
    handles_ = &handle;
    return true;
  }
  void release(StorageHandle& handle) {
    const size_t bytes = handle.nbytes();
    std::lock_guard<SpinLock> guard(lock_);
    used_ -= bytes;
    each_count([](c10::CachingAllocator::Stat& stat) { stat.decrease(1); });
    each_size([bytes](c10::CachingAllocator::Stat& stat) { stat.decrease(bytes); });
    ++stats_.num_device_free;
    (handle.previous != nullptr ? handle.previous->next : handles_) = handle.next;
    if (handle.next != nullptr) {
      handle.next->previous = handle.previous;
    }
  }
  StorageHandle* find(uintptr_t address) const {
    std::lock_guard<SpinLock> guard(lock_);
    StorageHandle* handle = handles_;
    while (handle != nullptr && handle->address() != address) {
      handle = handle->next;
    }
    return handle;
  }
  void note_retry() {
    std::lock_guard<SpinLock> guard(lock_);
    ++stats_.num_alloc_retries;
  }
  void note_oom() {
    std::lock_guard<SpinLock> guard(lock_);
    ++stats_.num_ooms;
  }
  DeviceStats stats() const {
    std::lock_guard<SpinLock> guard(lock_);
    return stats_;
  }
  size_t used() const {
    std::lock_guard<SpinLock> guard(lock_);
    return used_;
  }
  void reset_accumulated() {
    std::lock_guard<SpinLock> guard(lock_);
    each_count([](c10::CachingAllocator::Stat& stat) { stat.reset_accumulated(); });
    each_size([](c10::CachingAllocator::Stat& stat) { stat.reset_accumulated(); });
    stats_.num_alloc_retries = 0;
    stats_.num_ooms = 0;
  }
  void reset_peak() {
    std::lock_guard<SpinLock> guard(lock_);
    each_count([](c10::CachingAllocator::Stat& stat) { stat.reset_peak(); });
    each_size([](c10::CachingAllocator::Stat& stat) { stat.reset_peak(); });
  }
  // Keeps all threads out, while the process is forked.
  void lock() noexcept { lock_.lock(); }
  void unlock() noexcept { lock_.unlock(); }

 private:
  static constexpr size_t kAggregate = static_cast<size_t>(StatType::AGGREGATE);

  template <typename F>
  void each_count(F&& apply) {
    for (auto* group : {&stats_.allocation, &stats_.segment, &stats_.active}) {
      apply((*group)[kAggregate]);
    }
  }
  template <typename F>
  void each_size(F&& apply) {
    for (auto* group : {&stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
                        &stats_.requested_bytes}) {
      apply((*group)[kAggregate]);
    }
  }

  mutable SpinLock lock_;
  size_t used_ = 0;
  DeviceStats stats_;
  StorageHandle* handles_ = nullptr;
};

using Ledgers = std::array<Ledger, Runtime::kMaxDevices>;

Ledgers& ledgers() {
  static auto* const all = new Ledgers();  // NOLINT: outlives all
  return *all;
}

Ledger& ledger(c10::DeviceIndex device) { return ledgers()[static_cast<size_t>(device)]; }

// A forked child frees the tensors that it inherits. Without this it would wait for ever for
// another thread that was in a ledger at the time of the fork, and that it has not got.
void lock_ledgers() {
  for (Ledger& one : ledgers()) {
    one.lock();
  }
}
void unlock_ledgers() {
  for (Ledger& one : ledgers()) {
    one.unlock();
  }
}

[[noreturn]] void raise_out_of_memory(size_t nbytes, c10::DeviceIndex device, size_t limit) {
  ledger(device).note_oom();
  const size_t used = ledger(device).used();
  const std::string whom =
      t_operation != nullptr ? std::string(" for ") + t_operation : std::string();
  TORCH_CHECK_WITH(OutOfMemoryError, false, "neuron out of memory. Tried to allocate ",
                   mebibytes(nbytes), whom, ". Device ", static_cast<int>(device),
                   " has a total capacity of ", mebibytes(limit), " of which ",
                   mebibytes(limit > used ? limit - used : 0), " is free; ", mebibytes(used),
                   " is allocated by PyTorch in this process. Free tensors, use a smaller batch, "
                   "or raise the limit "
                   "(TORCHNEURON_MEMORY_LIMIT)");
}

class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    return tn::runtime::allocate(nbytes, Runtime::instance().current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;  // an address alone is no allocation
  }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "neuron storages have no host address: copy through tensors");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {
    // Buffers are reference-counted by the programs that use them: nothing can be reused too early.
  }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    Runtime::instance().check_index(device);
    return ledger(device).stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    Runtime::instance().check_index(device);
    ledger(device).reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    Runtime::instance().check_index(device);
    ledger(device).reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    Runtime::instance().check_index(device);
    const size_t limit = Runtime::instance().memory_limit();
    const size_t used = ledger(device).used();
    return {limit > used ? limit - used : 0, limit};
  }
};

NeuronAllocator& allocator_instance() {
  static auto* const instance = new NeuronAllocator();  // NOLINT: outlives all
  return *instance;
}

struct Registration {
  Registration() {
    c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator_instance());
    pthread_atfork(lock_ledgers, unlock_ledgers, unlock_ledgers);
  }
} g_registration;

}  // namespace

AllocationScope::AllocationScope(const char* op) noexcept : previous_(t_operation) {
  t_operation = op;
}

AllocationScope::~AllocationScope() { t_operation = previous_; }

void delete_handle(void* context) {
  auto* handle = static_cast<StorageHandle*>(context);
  ledger(handle->device()).release(*handle);
  delete handle;  // NOLINT: DataPtr's contract is a raw context and a deleter
}

StorageHandle& handle_at(const void* address) {
  for (int device = 0; device < Runtime::instance().device_count(); ++device) {
    StorageHandle* const handle =
        ledger(static_cast<c10::DeviceIndex>(device)).find(reinterpret_cast<uintptr_t>(address));
    if (handle != nullptr) {
      return *handle;
    }
  }
  TORCH_CHECK(false, "no neuron storage begins at the address ", address);
}

c10::DataPtr allocate(size_t nbytes, c10::DeviceIndex device) {
  check_not_forked();
  Runtime& runtime = Runtime::instance();
  const size_t limit = runtime.memory_limit();
  const size_t span = (nbytes / kAlignment + 1) * kAlignment;
  const uintptr_t address = g_next_address.fetch_add(span, std::memory_order_relaxed);
  auto handle = std::make_unique<StorageHandle>(device, nbytes, address);
  if (!ledger(device).charge(*handle, limit)) {
    // Tensors that another thread is about to free (autograd) may still be on their way.
    ledger(device).note_retry();
    runtime.synchronize(device);
    if (!ledger(device).charge(*handle, limit)) {
      raise_out_of_memory(nbytes, device, limit);
    }
  }
  return {reinterpret_cast<void*>(address),  // NOLINT: a number, never followed
          handle.release(), &delete_handle, c10::Device(c10::DeviceType::PrivateUse1, device)};
}

c10::DeviceAllocator& device_allocator() { return allocator_instance(); }

bool is_device_address(const void* address) noexcept {
  const auto number = reinterpret_cast<uintptr_t>(address);
  return number >= kFirstAddress && number < g_next_address.load(std::memory_order_relaxed);
}

}  // namespace tn::runtime
