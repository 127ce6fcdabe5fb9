// Tests of csrc/pjrt below Python, also built with sanitizers (`make sanitize`).
//
// usage: core_test <fake plugin> <fake, ends early> <fake, other major> <real plugin>...
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <new>
#include <thread>
#include <vector>

#include "expect.h"
#include "pjrt/client.h"
#include "pjrt/compile_options.h"

static std::atomic<size_t> allocations{0};

// Not inlined, or the compiler would see malloc'ed memory go to operator delete and warn.
#define NOT_INLINED __attribute__((noinline))
NOT_INLINED void* operator new(size_t size) {
  ++allocations;
  if (void* out = std::malloc(size != 0 ? size : 1)) return out;
  throw std::bad_alloc();
}
NOT_INLINED void operator delete(void* pointer) noexcept { std::free(pointer); }
NOT_INLINED void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }

namespace {

using namespace tn::pjrt;
using tn::testing::failures;

// The message of the Error that `function` throws, or "" if it throws none.
template <class F>
std::string error_of(F function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

struct Counts {
  std::atomic<int> initialized, errors, events, buffers, executables, clients;
};

// The variables of fake_plugin.cc.
struct Fake {
  explicit Fake(const char* path) : library(::dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    live = static_cast<Counts*>(::dlsym(library, "fake_live"));
    sizes = static_cast<size_t*>(::dlsym(library, "fake_execute_sizes"));
    fail = static_cast<bool*>(::dlsym(library, "fake_fail"));
  }
  void* library;
  Counts* live;
  size_t* sizes;
  bool* fail;
};

void test_load(const char* fake, const char* other_major) {
  auto first = Api::load(fake);
  EXPECT(first == Api::load(fake));
  EXPECT(Fake(fake).live->initialized == 1);
  EXPECT(first->version() == std::make_pair(PJRT_API_MAJOR, PJRT_API_MINOR));
  EXPECT(first->attributes().empty());

  EXPECT(contains(error_of([] { Api::load("/nowhere/plugin.so"); }), "no such file"));
  EXPECT(contains(error_of([&] { Api::load(other_major); }), "API version"));
}

void test_missing_entries(const char* fake, const char* short_table) {
  auto whole = Api::load(fake);
  EXPECT(whole->offers<entry::Client_Compile>());
  EXPECT(!whole->offers<entry::Buffer_UnsafePointer>());  // null

  auto api = Api::load(short_table);
  EXPECT(api->offers<entry::Client_AddressableDevices>());  // the last one
  EXPECT(!api->offers<entry::Client_Compile>());            // past the end
  auto args = Api::args<entry::Client_Compile>();
  std::string message = error_of([&] { api->call<entry::Client_Compile>(args); });
  EXPECT(message.starts_with("PJRT_Client_Compile: UNIMPLEMENTED: "));
  EXPECT(contains(message, short_table));
}

void test_ownership(const char* path) {
  Fake fake(path);
  {
    auto client = Client::create(Api::load(path));
    EXPECT(!client->is_cpu());
    EXPECT(client->device_id(0) == 7);
    EXPECT(contains(error_of([&] { client->device(1); }), "there is no device 1"));
    const int64_t dims[] = {8};
    Buffer buffer = client->from_host(nullptr, PJRT_Buffer_Type_F32, dims, 1, 0);
    EXPECT(fake.live->events == 0);
    Buffer moved = std::move(buffer);
    EXPECT(!buffer.valid() && moved.valid());
    buffer = std::move(moved);
    EXPECT(fake.live->buffers == 1);
    EXPECT(buffer.unsafe_host_pointer() == nullptr);

    auto program = client->compile("", 0);
    client.reset();
    PJRT_Buffer* args[] = {buffer.get()};
    PJRT_Buffer* outs[1];
    const size_t before = allocations;
    program->execute(args, 1, outs, nullptr, 0);
    EXPECT(allocations == before);
    EXPECT(fake.sizes[0] == PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
    EXPECT(fake.sizes[1] == PJRT_ExecuteOptions_STRUCT_SIZE);
    Buffer out(program->client(), outs[0]);
    EXPECT(fake.live->buffers == 2);

    EXPECT(!program->fingerprint().has_value());
    EXPECT(program->cost_analysis().empty());

    *fake.fail = true;
    std::string message = error_of([&] { program->execute(args, 1, outs, nullptr, 0); });
    EXPECT(message == "PJRT_LoadedExecutable_Execute: RESOURCE_EXHAUSTED: out of fake memory");
    EXPECT(!error_of([&] { buffer.client()->compile("", 0); }).empty());
    *fake.fail = false;
    EXPECT(fake.live->clients == 1);
  }
  EXPECT(fake.live->buffers == 0);
  EXPECT(fake.live->executables == 0);
  EXPECT(fake.live->clients == 0);
  EXPECT(fake.live->errors == 0);
}

void test_events(const char* path) {
  Fake fake(path);
  auto client = Client::create(Api::load(path));
  const int64_t dims[] = {8};
  Buffer buffer = client->from_host(nullptr, PJRT_Buffer_Type_F32, dims, 1, 0);
  int called = 0;
  Event().on_ready([&](const Error* error) { called += error == nullptr; });
  buffer.ready_event().on_ready([&](const Error* error) { called += error == nullptr; });
  EXPECT(called == 2);
  {
    Event event = buffer.ready_event();
    EXPECT(event.ready());
    *fake.fail = true;
    event.on_ready(
        [&](const Error* error) { called += error != nullptr && error->is_out_of_memory(); });
    EXPECT(error_of([&] { event.await(); }).starts_with("PJRT_Event_Await: RESOURCE_EXHAUSTED"));
    *fake.fail = false;
    event = buffer.ready_event();
    EXPECT(fake.live->events == 1);
  }
  EXPECT(called == 3);
  EXPECT(fake.live->events == 0);
  EXPECT(fake.live->errors == 0);
}

void test_compile_options() {
  // Worked out by hand from the .proto files; -1 is ten bytes long.
  const std::string ordinal = "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
  const std::string build =
      ordinal + "\x20\x01\x28\x01\x4a\x09\x08\x01\x10\x01\x1a\x03\x08\xac\x02";
  EXPECT(compile_options(300, {}) == "\x1a\x1a" + build);
  EXPECT(compile_options(300, {{"a", "7"}, {"b", "True"}}) == "\x1a\x1a" + build +
                                                                  "\x3a\x08\x0a\x01"
                                                                  "a\x12\x03\x0a\x01"
                                                                  "7" +
                                                                  "\x3a\x07\x0a\x01"
                                                                  "b\x12\x02\x10\x01");
}

void test_named_values() {
  const NamedValues in{{"b", true},
                       {"f", 1.5f},
                       {"i", int64_t{-3}},
                       {"l", std::vector<int64_t>{1, 2}},
                       {"s", std::string("text")}};
  auto c = to_c(in);
  EXPECT(from_c(c.data(), c.size()) == in);
}

constexpr const char* kAdd =
    "func.func @main(%a: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<8xf32>)"
    " -> tensor<8xf32> { %0 = stablehlo.add %a, %b : tensor<8xf32> return %0 : tensor<8xf32> }";

void test_real(const char* path) {
  auto client = Client::create(Api::load(path), {{"cpu_device_count", int64_t{2}}});
  EXPECT(client->is_cpu() && client->device_count() == 2);
  auto program = client->compile(kAdd, 1);
  auto loaded = client->deserialize(program->serialize(), 1);
  const float host[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const int64_t dims[] = {8};

  auto worker = [&](const Executable& run) {
    Buffer one = client->from_host(host, PJRT_Buffer_Type_F32, dims, 1, 1);
    Buffer sum = client->from_host(host, PJRT_Buffer_Type_F32, dims, 1, 1);
    for (int i = 0; i < 100; ++i) {
      PJRT_Buffer* args[] = {sum.get(), one.get()};
      PJRT_Buffer* outs[1];
      const int64_t keep[] = {0, 1};
      run.execute(args, 2, outs, keep, i % 2 == 0 ? 2 : 0);
      EXPECT(sum.donated() == (i % 2 != 0));
      sum = Buffer(client, outs[0]);
    }
    float out[8];
    sum.copy_to_host(out, sizeof out).await();
    for (int i = 0; i < 8; ++i) EXPECT(out[i] == host[i] * 101);
    EXPECT(std::memcmp(sum.unsafe_host_pointer(), out, sizeof out) == 0);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { worker(i % 2 == 0 ? *program : *loaded); });
  }
  for (std::thread& thread : threads) thread.join();

  Buffer a = client->from_host(host, PJRT_Buffer_Type_F32, dims, 1, 0);
  Buffer b = a.copy_to_device(*client, 1);
  std::promise<bool> done;
  b.ready_event().on_ready([&](const Error* error) { done.set_value(error == nullptr); });
  EXPECT(done.get_future().get());
  auto [c, reusable] = client->from_host_async(host, PJRT_Buffer_Type_F32, dims, 1, 0);
  reusable.await();
  EXPECT(c.bytes() == sizeof host && c.dims() == std::vector<int64_t>{8});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: core_test <fake> <fake, short> <fake, major> <plugin>...\n");
    return 2;
  }
  test_load(argv[1], argv[3]);
  test_missing_entries(argv[1], argv[2]);
  test_ownership(argv[1]);
  test_events(argv[1]);
  test_compile_options();
  test_named_values();
  for (int i = 4; i < argc; ++i) test_real(argv[i]);
  std::printf("core_test: %d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}
