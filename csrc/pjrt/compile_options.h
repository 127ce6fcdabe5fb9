// The serialized CompileOptionsProto that PJRT_Client_Compile takes.
#pragma once

#include <map>
#include <string>

namespace tn::pjrt {

// Options for one replica and one partition on the device with PJRT id `device_id`. `flags` become
// env_option_overrides: booleans ("true" and "false" in any case) as such, all else as strings,
// each of which the plugin parses into its option's type.
std::string compile_options(int device_id, const std::map<std::string, std::string>& flags);

}  // namespace tn::pjrt
