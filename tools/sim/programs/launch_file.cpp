// SPDX-License-Identifier: MIT
#include "sim/programs/launch_file.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "../../tilewave/common/write_file.hpp"
#include "sim/machine/lanes.hpp"
#include "sim/programs/json_values.hpp"

namespace tilewave::sim {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

template <class T>
Bytes bytes_of(T value) {
  Bytes out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

/// Whole numbers as the command line has them: decimal, or hexadecimal behind 0x.
template <class T>
T number_from(const std::string& text, const char* what) {
  const bool hexadecimal = text.starts_with("0x");
  const char* const first = text.data() + (hexadecimal ? 2 : 0);
  T value{};
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value, hexadecimal ? 16 : 10);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty())
    throw Error(std::string(what) + " is no number in range: '" + text + "'");
  return value;
}

/// An object whose keys are among those known.
void check_keys(const json& object, std::initializer_list<std::string_view> known, const std::string& what) {
  if (!object.is_object()) throw Error(what + " is no JSON object: " + shown(object));
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end()) throw Error(what + " has an unknown key " + key);
}

template <class T, class Make>
void fill_with(Pages& pages, Make make) {
  for (std::size_t i = 0; i + sizeof(T) <= pages.size(); i += sizeof(T)) {
    const T value = make(i / sizeof(T));
    std::memcpy(pages.data() + i, &value, sizeof value);
  }
}

/// zero, nan, iota (u32), byte:N, random numbers in [-1, 1) of f32, f16, bf16, random bytes of `bits`, or file:PATH.
void fill(Pages& pages, const std::string& pattern, const fs::path& directory, unsigned seed) {
  std::mt19937 random(seed);
  const auto unit = [&random] { return static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f; };
  if (pattern == "zero") return;
  if (pattern == "nan") {
    std::memset(pages.data(), 0xff, pages.size());
  } else if (pattern == "iota") {
    fill_with<std::uint32_t>(pages, [](std::size_t i) { return static_cast<std::uint32_t>(i); });
  } else if (pattern == "f32") {
    fill_with<float>(pages, [&](std::size_t) { return unit(); });
  } else if (pattern == "f16") {
    fill_with<std::uint16_t>(pages, [&](std::size_t) { return Half(unit()).bits; });
  } else if (pattern == "bf16") {
    fill_with<std::uint16_t>(
        pages, [&](std::size_t) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(unit()) >> 16); });
  } else if (pattern == "bits") {
    fill_with<std::uint32_t>(pages, [&](std::size_t) { return static_cast<std::uint32_t>(random()); });
  } else if (pattern.starts_with("byte:")) {
    std::memset(pages.data(), number_from<std::uint8_t>(pattern.substr(5), "the byte of a fill"), pages.size());
  } else if (pattern.starts_with("file:")) {
    std::ifstream in(directory / pattern.substr(5), std::ios::binary);
    if (!in.read(reinterpret_cast<char*>(pages.data()), static_cast<std::streamsize>(pages.size())))
      throw Error("cannot read " + std::to_string(pages.size()) + " bytes of " + pattern.substr(5));
  } else {
    throw Error("unknown fill " + pattern +
                ": zero, nan, iota, f32, f16, bf16, bits, byte:N, file:PATH, pointers:NAMES");
  }
}

std::array<std::uint32_t, 3> one_to_three(const json& values, const std::string& what) {
  const json list = values.is_array() ? values : json::array({values});
  if (list.empty() || list.size() > 3) throw Error(what + " has one to three numbers");
  std::array<std::uint32_t, 3> out{1, 1, 1};
  for (std::size_t i = 0; i < list.size(); ++i) out[i] = integer_of<std::uint32_t>(list[i], what);
  if (!out[0] || !out[1] || !out[2]) throw Error(what + " has a 0");
  return out;
}

/// Makes buffers on the way: {"buffer": NAME, "offset": N} names one, {"bytes": N, "fill": ...} is one of its own.
class Values {
 public:
  Values(FileLaunch& out, fs::path directory) : out_(out), directory_(std::move(directory)) {}

  void buffer(const std::string& name, const json& b) {
    const std::string what = "buffer " + name;
    check_keys(b, {"bytes", "fill", "write"}, what);
    auto pages = std::make_unique<Pages>(integer_of<std::uint64_t>(member(b, "bytes", what), "bytes of " + what));
    const std::string pattern = b.contains("fill") ? text_of(b["fill"], "fill of " + what) : "zero";
    constexpr std::string_view pointers = "pointers:";
    if (pattern != "zero") check_memory(pages->size(), what);
    if (pattern.starts_with(pointers))
      tables_.push_back({out_.buffers.size(), pattern.substr(pointers.size())});
    else
      fill(*pages, pattern, directory_, static_cast<unsigned>(out_.buffers.size()));
    const json write = b.value("write", json(true));
    if (!write.is_boolean()) throw Error("write of " + what + " is neither true nor false");
    out_.memory.map(name, pages->data(), pages->size(), write.get<bool>());
    out_.buffers.emplace_back(name, std::move(pages));
  }

  /// Fills buffers with the addresses of others, once all are there.
  void place_pointers() {
    for (const Table& table : tables_) {
      const auto& [name, pages] = out_.buffers[table.buffer];
      std::istringstream names(table.names);
      std::size_t at = 0;
      for (std::string to; std::getline(names, to, ','); at += sizeof(std::uint64_t)) {
        if (pages->size() < at + sizeof(std::uint64_t))
          throw Error("buffer " + name + " has " + std::to_string(pages->size()) + " bytes, too few for its pointers");
        const std::uint64_t address = address_of(to);
        std::memcpy(pages->data() + at, &address, sizeof address);
      }
      if (at == 0) throw Error("buffer " + name + " points to nothing: pointers:NAME,NAME+BYTES");
    }
  }

  Bytes bytes(const json& v, std::size_t size, const std::string& name) {
    if (v.is_number_float()) return size == 8 ? bytes_of(v.get<double>()) : bytes_of(v.get<float>());
    if (v.is_number()) return whole(v, std::min<std::size_t>(size, 8), name);
    if (!v.is_object() || v.empty()) throw Error(name + ": a number or an object is expected, not " + shown(v));
    if (v.contains("bytes")) {
      buffer(name, v);
      return bytes_of(out_.memory.address_of(name));
    }
    if (v.contains("buffer")) {
      check_keys(v, {"buffer", "offset"}, name);
      const auto offset = integer_of<std::int64_t>(v.value("offset", json(0)), "offset of " + name);
      return bytes_of(out_.memory.address_of(text_of(v["buffer"], name)) + static_cast<std::uint64_t>(offset));
    }
    const std::string kind = v.begin().key();
    const json& x = v.begin().value();
    if (v.size() > 1) throw Error(name + " has an unknown key " + std::next(v.begin()).key());
    if (kind == "f32") return bytes_of(static_cast<float>(real_of(x, name)));
    if (kind == "f64") return bytes_of(real_of(x, name));
    if (kind == "i32") return bytes_of(integer_of<std::int32_t>(x, name));
    if (kind == "u32") return bytes_of(integer_of<std::uint32_t>(x, name));
    if (kind == "i64") return bytes_of(integer_of<std::int64_t>(x, name));
    if (kind == "u64") return bytes_of(integer_of<std::uint64_t>(x, name));
    if (kind == "hex") return bytes_from_hex(text_of(x, name));
    throw Error(name + ": unknown kind " + kind + " (bytes, buffer, f32, f64, i32, u32, i64, u64, hex)");
  }

 private:
  /// A table of addresses of the named buffers, which is written to buffer `buffer`.
  struct Table {
    std::size_t buffer;
    std::string names;
  };

  /// NAME, or NAME+BYTES.
  std::uint64_t address_of(const std::string& to) const {
    const auto plus = to.rfind('+');
    const auto named = [&](const auto& buffer) { return buffer.first == to; };
    if (plus == to.npos || std::any_of(out_.buffers.begin(), out_.buffers.end(), named))
      return out_.memory.address_of(to);
    return out_.memory.address_of(to.substr(0, plus)) +
           number_from<std::uint64_t>(to.substr(plus + 1), "the offset of a pointer");
  }

  /// A signed or an unsigned number of so many bytes.
  static Bytes whole(const json& v, std::size_t size, const std::string& name) {
    if (size == 0) throw Error(name + " has no bytes");
    const std::uint64_t bits =
        v.is_number_unsigned() ? v.get<std::uint64_t>() : static_cast<std::uint64_t>(v.get<std::int64_t>());
    const std::uint64_t beyond = size < 8 ? bits >> (8 * size - 1) : 0, ones = ~std::uint64_t{0} >> (8 * size - 1);
    const bool negative = !v.is_number_unsigned() && v.get<std::int64_t>() < 0;
    if (size < 8 && (negative ? beyond != ones : beyond > 1))
      throw Error(name + " has " + std::to_string(size) + " bytes, too few for " + shown(v));
    Bytes out = bytes_of(bits);
    out.resize(size);
    return out;
  }

  FileLaunch& out_;
  fs::path directory_;
  std::vector<Table> tables_;
};

void put(Bytes& segment, std::size_t offset, const Bytes& value) {
  if (offset > max_kernarg_bytes || value.size() > max_kernarg_bytes - offset)
    throw Error("arguments end at " + std::to_string(max_kernarg_bytes) + " bytes");
  if (segment.size() < offset + value.size()) segment.resize(offset + value.size());
  std::copy(value.begin(), value.end(), segment.begin() + static_cast<std::ptrdiff_t>(offset));
}

/// Arguments in order, or by name; a name `@64` is an offset.
void set_arguments(const json& args, const std::vector<KernelArgument>& known, Values& values, Bytes& segment) {
  std::vector<const KernelArgument*> visible;
  for (const KernelArgument& a : known)
    if (!a.kind.starts_with("hidden_")) visible.push_back(&a);
  std::size_t next = 0;
  const auto set = [&](const std::string& name, const json& value) {
    if (name.starts_with('@'))
      return put(segment, number_from<std::uint32_t>(name.substr(1), "the offset of an argument"),
                 values.bytes(value, 4, name));
    const KernelArgument* to = nullptr;
    if (name.empty()) {
      if (next == visible.size()) throw Error("more arguments than the kernel's " + std::to_string(visible.size()));
      to = visible[next++];
    } else {
      for (const KernelArgument* a : visible)
        if (a->name == name) to = a;
    }
    if (!to) throw Error("the kernel has no argument " + name);
    const Bytes bytes =
        values.bytes(value, to->bytes, to->name.empty() ? "argument " + std::to_string(next) : to->name);
    if (bytes.size() != to->bytes)  // a part of a struct is placed by offset
      throw Error((to->name.empty() ? "argument " + std::to_string(next) : "argument " + to->name) + " has " +
                  std::to_string(to->bytes) + " bytes, given " + std::to_string(bytes.size()));
    put(segment, to->offset, bytes);
  };
  if (args.is_object()) {
    for (const auto& [name, value] : args.items()) set(name, value);
    return;
  }
  if (!args.is_array()) throw Error("args is neither a list nor an object: " + shown(args));
  bool named = false;
  for (const json& value : args) {
    const bool has_name = value.is_object() && value.contains("name");
    if (has_name) check_keys(value, {"name", "value"}, "an argument");
    set(has_name ? text_of(value["name"], "the name of an argument") : "",
        has_name ? member(value, "value", "an argument") : value);
    named |= has_name;
  }
  if (!named && next < visible.size())
    throw Error("the kernel has " + std::to_string(visible.size()) + " arguments, given " + std::to_string(next));
}

}  // namespace

Pages::Pages(std::size_t bytes) : size_(bytes) {
  void* at = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw Error("no memory for a buffer of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<std::uint8_t*>(at);
}
Pages::~Pages() { munmap(data_, std::max<std::size_t>(size_, 1)); }

std::uint64_t FileLaunch::hash(std::size_t buffer) const {
  std::uint64_t h = 0xcbf29ce484222325;
  const Pages& pages = *buffers[buffer].second;
  for (std::size_t i = 0; i < pages.size(); ++i) h = (h ^ pages.data()[i]) * 0x100000001b3;
  return h;
}

void FileLaunch::write(std::size_t buffer, const std::string& path) const {
  const Pages& pages = *buffers[buffer].second;
  const std::string why =
      tilewave::tool::write_whole_file(path, {reinterpret_cast<const char*>(pages.data()), pages.size()});
  if (!why.empty()) throw Error("cannot write " + path + ": " + why);
}

std::vector<std::uint8_t> hidden_arguments(const CodeObject& object, const Launch& launch) {
  Bytes segment(object.kernels.at(launch.symbol).kernarg_bytes, 0);
  const auto known = object.arguments.find(launch.symbol);
  if (known == object.arguments.end()) return segment;
  for (const KernelArgument& argument : known->second) {
    if (segment.size() < argument.offset + argument.bytes) segment.resize(argument.offset + argument.bytes);
    std::uint64_t value = 0;
    const std::size_t axis = argument.kind.ends_with("_x") ? 0 : argument.kind.ends_with("_y") ? 1 : 2;
    if (argument.kind.starts_with("hidden_block_count_"))
      value = launch.grid_blocks[axis];
    else if (argument.kind.starts_with("hidden_group_size_"))
      value = launch.block[axis];
    else if (argument.kind == "hidden_grid_dims")
      value = launch.grid_blocks[2] > 1 ? 3 : launch.grid_blocks[1] > 1 ? 2 : 1;
    else if (argument.kind == "hidden_dynamic_lds_size")
      value = launch.dynamic_lds_bytes;
    else if (argument.kind == "hidden_shared_base")
      value = shared_aperture >> 32;
    else if (argument.kind == "hidden_private_base")
      value = private_aperture >> 32;
    std::memcpy(segment.data() + argument.offset, &value, std::min<std::size_t>(argument.bytes, 8));
  }
  return segment;
}

std::string list_kernels(const CodeObject& object) {
  std::string out;
  for (const auto& [symbol, kernel] : object.kernels) {
    out += symbol.substr(0, symbol.size() - 3) + " (" + std::to_string(kernel.vgprs) + " VGPRs, " +
           std::to_string(kernel.agprs) + " AGPRs, " + std::to_string(kernel.lds_bytes) + " bytes of LDS)\n";
    const auto known = object.arguments.find(symbol);
    if (known == object.arguments.end()) continue;
    for (const KernelArgument& a : known->second)
      if (!a.kind.starts_with("hidden_"))
        out += "  @" + std::to_string(a.offset) + " " + a.name + ": " + std::to_string(a.bytes) + " bytes, " + a.kind +
               "\n";
  }
  return out;
}

FileLaunch read_launch(const json& description, const std::string& directory, const std::string& objdump) {
  const std::string what = "the launch";
  check_keys(description, {"file", "kernel", "arch", "grid", "block", "dynamic_lds", "buffers", "args"}, what);
  const auto text = [&](const char* key) {
    return description.contains(key) ? text_of(description[key], key) : std::string();
  };
  FileLaunch out;
  const fs::path file = fs::path(directory) / text_of(member(description, "file", what), "file");
  out.object = load_any_object(file.string(), text("arch"), objdump);
  std::string name = text("kernel");
  if (name.empty() && out.object.kernels.size() == 1) name = out.object.kernels.begin()->first;
  if (name.empty()) throw Error(file.string() + " has several kernels: name one");
  if (!name.ends_with(".kd")) name += ".kd";
  if (!out.object.kernels.contains(name))
    throw Error(file.string() + " has no kernel " + name.substr(0, name.size() - 3));
  out.launch.symbol = name;
  out.launch.grid_blocks = one_to_three(member(description, "grid", what), "grid");
  out.launch.block = one_to_three(member(description, "block", what), "block");
  out.launch.dynamic_lds_bytes = integer_of<std::uint32_t>(description.value("dynamic_lds", json(0)), "dynamic_lds");
  out.launch.kernarg = hidden_arguments(out.object, out.launch);
  Values values(out, directory);
  const json buffers = description.value("buffers", json::object());
  if (!buffers.is_object()) throw Error("buffers is no JSON object: " + shown(buffers));
  for (const auto& [buffer, how] : buffers.items()) values.buffer(buffer, how);
  set_arguments(description.value("args", json::array()), out.object.arguments[name], values, out.launch.kernarg);
  values.place_pointers();
  return out;
}

namespace {

/// A number as JSON writes it, or a name of one: inf, -inf, nan.
json number_from_text(const std::string& text, const std::string& argument) {
  if (text == "inf" || text == "-inf" || text == "nan") return text;
  if (text.starts_with("0x")) return number_from<std::uint64_t>(text, "an argument");
  json out = json::parse(text, nullptr, false);
  if (!out.is_number())
    throw Error("--arg " + argument + ": a number, buffer:BYTES[:FILL], hex:DIGITS or KIND:NUMBER is expected");
  return out;
}

}  // namespace

json argument_from_text(const std::string& text) {
  const auto equals = text.find('=');
  const std::string value = equals == std::string::npos ? text : text.substr(equals + 1);
  json out;
  const auto colon = value.find(':');
  const std::string kind = value.substr(0, colon), rest = colon == std::string::npos ? "" : value.substr(colon + 1);
  if (kind == "buffer") {
    const auto second = rest.find(':');
    out["bytes"] = number_from<std::uint64_t>(rest.substr(0, second), "the size of a buffer");
    if (second != std::string::npos) out["fill"] = rest.substr(second + 1);
  } else if (kind == "hex") {
    out["hex"] = rest;
  } else if (colon != std::string::npos) {
    out[kind] = number_from_text(rest, text);
  } else {
    out = number_from_text(value, text);
  }
  return equals == std::string::npos ? out : json{{"name", text.substr(0, equals)}, {"value", out}};
}

}  // namespace tilewave::sim
