#include "pjrt/named_value.h"

#include <type_traits>

namespace tn::pjrt {
namespace {

struct ToC {
  PJRT_NamedValue& out;

  void operator()(const std::string& value) const {
    out.type = PJRT_NamedValue_kString;
    out.string_value = value.data();
    out.value_size = value.size();
  }
  void operator()(bool value) const {
    out.type = PJRT_NamedValue_kBool;
    out.bool_value = value;
  }
  void operator()(int64_t value) const {
    out.type = PJRT_NamedValue_kInt64;
    out.int64_value = value;
  }
  void operator()(float value) const {
    out.type = PJRT_NamedValue_kFloat;
    out.float_value = value;
  }
  void operator()(const std::vector<int64_t>& value) const {
    out.type = PJRT_NamedValue_kInt64List;
    out.int64_array_value = value.data();
    out.value_size = value.size();
  }
};

}  // namespace

std::vector<PJRT_NamedValue> to_c(const NamedValues& options) {
  std::vector<PJRT_NamedValue> out;
  out.reserve(options.size());
  for (const auto& [name, value] : options) {
    PJRT_NamedValue& c = out.emplace_back();
    c.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    c.name = name.data();
    c.name_size = name.size();
    c.value_size = 1;
    std::visit(ToC{c}, value);
  }
  return out;
}

NamedValues from_c(const PJRT_NamedValue* values, size_t count) {
  NamedValues out;
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& c = values[i];
    std::string name(c.name, c.name_size);
    switch (c.type) {
      case PJRT_NamedValue_kString:
        out.emplace(std::move(name), std::string(c.string_value, c.value_size));
        break;
      case PJRT_NamedValue_kInt64:
        out.emplace(std::move(name), c.int64_value);
        break;
      case PJRT_NamedValue_kInt64List:
        out.emplace(std::move(name),
                    std::vector<int64_t>(c.int64_array_value, c.int64_array_value + c.value_size));
        break;
      case PJRT_NamedValue_kFloat:
        out.emplace(std::move(name), c.float_value);
        break;
      case PJRT_NamedValue_kBool:
        out.emplace(std::move(name), c.bool_value);
        break;
    }
  }
  return out;
}

}  // namespace tn::pjrt
