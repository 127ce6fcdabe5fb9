// The entries of the PJRT C API that we call, one type each.
//
// An entry's type says where the function stands in the plugin's table, where that slot ends (a
// plugin older than our header has a shorter table) and how large the header says the argument
// struct is. `Api::call` is the only reader.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>

// Add an entry here to use it; the order is the header's.
#define TN_PJRT_ENTRIES(X)                 \
  X(Plugin_Initialize)                     \
  X(Plugin_Attributes)                     \
  X(Event_Destroy)                         \
  X(Event_IsReady)                         \
  X(Event_Await)                           \
  X(Event_OnReady)                         \
  X(Client_Create)                         \
  X(Client_Destroy)                        \
  X(Client_PlatformName)                   \
  X(Client_PlatformVersion)                \
  X(Client_AddressableDevices)             \
  X(Client_Compile)                        \
  X(Client_BufferFromHostBuffer)           \
  X(DeviceDescription_Id)                  \
  X(DeviceDescription_Kind)                \
  X(DeviceDescription_Attributes)          \
  X(Device_GetDescription)                 \
  X(Device_LocalHardwareId)                \
  X(Device_MemoryStats)                    \
  X(Executable_Destroy)                    \
  X(Executable_Name)                       \
  X(Executable_NumOutputs)                 \
  X(Executable_SizeOfGeneratedCodeInBytes) \
  X(Executable_GetCostAnalysis)            \
  X(Executable_Serialize)                  \
  X(LoadedExecutable_Destroy)              \
  X(LoadedExecutable_GetExecutable)        \
  X(LoadedExecutable_AddressableDevices)   \
  X(LoadedExecutable_Execute)              \
  X(Executable_DeserializeAndLoad)         \
  X(Buffer_Destroy)                        \
  X(Buffer_ElementType)                    \
  X(Buffer_Dimensions)                     \
  X(Buffer_OnDeviceSizeInBytes)            \
  X(Buffer_IsDeleted)                      \
  X(Buffer_CopyToDevice)                   \
  X(Buffer_ToHostBuffer)                   \
  X(Buffer_ReadyEvent)                     \
  X(Buffer_UnsafePointer)                  \
  X(Buffer_OpaqueDeviceMemoryDataPointer)  \
  X(Executable_Fingerprint)                \
  X(Executable_GetCompiledMemoryStats)

namespace tn::pjrt::entry {

#define TN_PJRT_DEFINE_ENTRY(fn)                                                                  \
  struct fn {                                                                                     \
    using Args = PJRT_##fn##_Args;                                                                \
    static constexpr const char* kName = "PJRT_" #fn;                                             \
    /* Not sizeof: the header's constant leaves out tail padding, in which a later version may */ \
    /* place a field that we would then seem to know. */                                          \
    static constexpr size_t kArgsSize = PJRT_##fn##_Args_STRUCT_SIZE;                             \
    static constexpr size_t kSlotEnd =                                                            \
        offsetof(PJRT_Api, PJRT_##fn) + sizeof(static_cast<PJRT_Api*>(nullptr)->PJRT_##fn);       \
    static constexpr auto kSlot = &PJRT_Api::PJRT_##fn;                                           \
  };
TN_PJRT_ENTRIES(TN_PJRT_DEFINE_ENTRY)
#undef TN_PJRT_DEFINE_ENTRY

}  // namespace tn::pjrt::entry
