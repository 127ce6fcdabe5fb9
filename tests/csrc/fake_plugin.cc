// A PJRT plugin without a device, for what no real one lets a test see: a table that ends early or
// has holes, another major version, the sizes it was called with, and who frees what.
//
// Variants: -DFAKE_MAJOR=<n>, -DFAKE_LAST=<entry> (the table ends after that entry).
#include <pjrt_c_api.h>

#include <atomic>
#include <cstring>

#ifndef FAKE_MAJOR
#define FAKE_MAJOR PJRT_API_MAJOR
#endif

struct PJRT_Error {
  PJRT_Error_Code code;
  const char* text;
};

struct Counts {
  std::atomic<int> initialized, errors, events, buffers, executables, clients;
};

// Read by the tests through dlsym.
extern "C" {
__attribute__((visibility("default"))) Counts fake_live{};
// The struct_size of the last call to execute, and of its options.
__attribute__((visibility("default"))) size_t fake_execute_sizes[2];
// Whether the next executions fail, and the next events carry an error.
__attribute__((visibility("default"))) bool fake_fail;
}

namespace {

// Objects are addresses only; nothing is allocated, so that a test can count allocations.
char client_object, device_object, description_object, loaded_object, program_object;
char buffer_object, event_object;
PJRT_Error error_object{PJRT_Error_Code_RESOURCE_EXHAUSTED, "out of fake memory"};

template <class T>
T* as(char& object) {
  return reinterpret_cast<T*>(&object);
}

PJRT_Error* fail() {
  ++fake_live.errors;
  return &error_object;
}

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) {
  ++fake_live.initialized;
  return nullptr;
}
void error_destroy(PJRT_Error_Destroy_Args* args) {
  if (args->error != nullptr) --fake_live.errors;
}
void error_message(PJRT_Error_Message_Args* args) {
  args->message = args->error->text;
  args->message_size = std::strlen(args->error->text);
}
PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = args->error->code;
  return nullptr;
}
PJRT_Error* event_destroy(PJRT_Event_Destroy_Args*) {
  --fake_live.events;
  return nullptr;
}
PJRT_Error* event_is_ready(PJRT_Event_IsReady_Args* args) {
  args->is_ready = true;
  return nullptr;
}
PJRT_Error* event_await(PJRT_Event_Await_Args*) { return fake_fail ? fail() : nullptr; }
PJRT_Error* event_on_ready(PJRT_Event_OnReady_Args* args) {
  args->callback(fake_fail ? fail() : nullptr, args->user_arg);
  return nullptr;
}
PJRT_Error* client_create(PJRT_Client_Create_Args* args) {
  ++fake_live.clients;
  args->client = as<PJRT_Client>(client_object);
  return nullptr;
}
PJRT_Error* client_destroy(PJRT_Client_Destroy_Args*) {
  --fake_live.clients;
  return nullptr;
}
PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}
PJRT_Error* devices(PJRT_Client_AddressableDevices_Args* args) {
  static PJRT_Device* const list[] = {as<PJRT_Device>(device_object)};
  args->addressable_devices = list;
  args->num_addressable_devices = 1;
  return nullptr;
}
PJRT_Error* description(PJRT_Device_GetDescription_Args* args) {
  args->device_description = as<PJRT_DeviceDescription>(description_object);
  return nullptr;
}
PJRT_Error* device_id(PJRT_DeviceDescription_Id_Args* args) {
  args->id = 7;
  return nullptr;
}
PJRT_Error* from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  ++fake_live.buffers;
  ++fake_live.events;
  args->buffer = as<PJRT_Buffer>(buffer_object);
  args->done_with_host_buffer = as<PJRT_Event>(event_object);
  return nullptr;
}
PJRT_Error* ready_event(PJRT_Buffer_ReadyEvent_Args* args) {
  ++fake_live.events;
  args->event = as<PJRT_Event>(event_object);
  return nullptr;
}
PJRT_Error* buffer_destroy(PJRT_Buffer_Destroy_Args*) {
  --fake_live.buffers;
  return nullptr;
}
PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  fake_live.executables += 2;
  args->executable = as<PJRT_LoadedExecutable>(loaded_object);
  return nullptr;
}
PJRT_Error* get_executable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
  args->executable = as<PJRT_Executable>(program_object);
  return nullptr;
}
PJRT_Error* num_outputs(PJRT_Executable_NumOutputs_Args* args) {
  args->num_outputs = 1;
  return fake_fail ? fail() : nullptr;
}
PJRT_Error* program_destroy(PJRT_Executable_Destroy_Args*) {
  --fake_live.executables;
  return nullptr;
}
PJRT_Error* loaded_destroy(PJRT_LoadedExecutable_Destroy_Args*) {
  --fake_live.executables;
  return nullptr;
}
PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  fake_execute_sizes[0] = args->struct_size;
  fake_execute_sizes[1] = args->options->struct_size;
  if (fake_fail) return fail();
  ++fake_live.buffers;
  args->output_lists[0][0] = as<PJRT_Buffer>(buffer_object);
  return nullptr;
}

PJRT_Api make_api() {
  PJRT_Api api{};
#ifdef FAKE_LAST
  api.struct_size = PJRT_STRUCT_SIZE(PJRT_Api, FAKE_LAST);
#else
  api.struct_size = PJRT_Api_STRUCT_SIZE;
#endif
  api.pjrt_api_version = {PJRT_Api_Version_STRUCT_SIZE, nullptr, FAKE_MAJOR, PJRT_API_MINOR};
  api.PJRT_Plugin_Initialize = initialize;
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Event_Destroy = event_destroy;
  api.PJRT_Event_IsReady = event_is_ready;
  api.PJRT_Event_Await = event_await;
  api.PJRT_Event_OnReady = event_on_ready;
  api.PJRT_Client_Create = client_create;
  api.PJRT_Client_Destroy = client_destroy;
  api.PJRT_Client_PlatformName = platform_name;
  api.PJRT_Client_AddressableDevices = devices;
  api.PJRT_Device_GetDescription = description;
  api.PJRT_DeviceDescription_Id = device_id;
  api.PJRT_Client_BufferFromHostBuffer = from_host;
  api.PJRT_Buffer_ReadyEvent = ready_event;
  api.PJRT_Buffer_Destroy = buffer_destroy;
  api.PJRT_Client_Compile = compile;
  api.PJRT_LoadedExecutable_GetExecutable = get_executable;
  api.PJRT_Executable_NumOutputs = num_outputs;
  api.PJRT_Executable_Destroy = program_destroy;
  api.PJRT_LoadedExecutable_Destroy = loaded_destroy;
  api.PJRT_LoadedExecutable_Execute = execute;
  return api;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = make_api();
  return &api;
}
