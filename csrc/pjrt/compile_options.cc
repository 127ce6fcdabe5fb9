#include "pjrt/compile_options.h"

#include <cctype>
#include <cstdint>
#include <string_view>

namespace tn::pjrt {
namespace {

// The messages of XLA's compile_options.proto and xla_data.proto, as far as we set them. Encoded by
// hand, so that nothing needs a protobuf library (each plugin carries its own).
enum class CompileOptions { kExecutableBuildOptions = 3, kEnvOptionOverrides = 7 };
enum class BuildOptions {
  kDeviceOrdinal = 1,
  kNumReplicas = 4,
  kNumPartitions = 5,
  kDeviceAssignment = 9,
};
enum class DeviceAssignment { kReplicaCount = 1, kComputationCount = 2, kComputationDevices = 3 };
enum class ComputationDevice { kReplicaDeviceIds = 1 };
enum class MapEntry { kKey = 1, kValue = 2 };
enum class OptionOverride { kString = 1, kBool = 2 };

// A message of the protobuf wire format, written field by field.
class Message {
 public:
  template <class Field>
  Message& integer(Field field, int64_t value) {
    tag(static_cast<uint64_t>(field), 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  template <class Field>
  Message& bytes(Field field, std::string_view value) {
    tag(static_cast<uint64_t>(field), 2);
    varint(value.size());
    out_ += value;
    return *this;
  }
  template <class Field>
  Message& message(Field field, const Message& value) {
    return bytes(field, value.out_);
  }
  std::string take() && { return std::move(out_); }

 private:
  void tag(uint64_t field, uint64_t wire_type) { varint(field << 3 | wire_type); }
  void varint(uint64_t value) {
    while (value >= 0x80) {
      out_ += static_cast<char>(value | 0x80);
      value >>= 7;
    }
    out_ += static_cast<char>(value);
  }

  std::string out_;
};

Message device_assignment(int device_id) {
  // A single unpacked element: parsers accept both forms of a repeated integer.
  Message id = Message().integer(ComputationDevice::kReplicaDeviceIds, device_id);
  return Message()
      .integer(DeviceAssignment::kReplicaCount, 1)
      .integer(DeviceAssignment::kComputationCount, 1)
      .message(DeviceAssignment::kComputationDevices, id);
}

// A plugin parses a string into its option's type, but knows booleans only as "True" and "False";
// the boolean form goes round that.
Message option_value(const std::string& value) {
  std::string low = value;
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (low == "true" || low == "false") {
    return Message().integer(OptionOverride::kBool, low == "true");
  }
  return Message().bytes(OptionOverride::kString, value);
}

}  // namespace

std::string compile_options(int device_id, const std::map<std::string, std::string>& flags) {
  Message options;
  options.message(CompileOptions::kExecutableBuildOptions,
                  Message()
                      // Not an index but "unset": the device assignment says which device.
                      .integer(BuildOptions::kDeviceOrdinal, -1)
                      .integer(BuildOptions::kNumReplicas, 1)
                      .integer(BuildOptions::kNumPartitions, 1)
                      .message(BuildOptions::kDeviceAssignment, device_assignment(device_id)));
  for (const auto& [name, value] : flags) {
    options.message(
        CompileOptions::kEnvOptionOverrides,
        Message().bytes(MapEntry::kKey, name).message(MapEntry::kValue, option_value(value)));
  }
  return std::move(options).take();
}

}  // namespace tn::pjrt
