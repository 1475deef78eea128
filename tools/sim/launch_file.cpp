// SPDX-License-Identifier: MIT
#include "launch_file.hpp"

#include <sys/mman.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

#include "lanes.hpp"

namespace isa_sim {
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

Bytes from_hex(const std::string& text) {
  if (text.size() % 2) throw Error("hex with an odd number of digits: " + text);
  Bytes bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    if (error != std::errc{} || end != text.data() + i + 2) throw Error("no hex digits: " + text);
    bytes.push_back(static_cast<std::uint8_t>(value));
  }
  return bytes;
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
    std::memset(pages.data(), std::stoi(pattern.substr(5), nullptr, 0), pages.size());
  } else if (pattern.starts_with("file:")) {
    std::ifstream in(directory / pattern.substr(5), std::ios::binary);
    if (!in.read(reinterpret_cast<char*>(pages.data()), static_cast<std::streamsize>(pages.size())))
      throw Error("cannot read " + std::to_string(pages.size()) + " bytes of " + pattern.substr(5));
  } else {
    throw Error("unknown fill " + pattern + ": zero, nan, iota, f32, f16, bf16, bits, byte:N, file:PATH");
  }
}

std::array<std::uint32_t, 3> three(const json& values, const char* what) {
  auto list = values.is_array() ? values.get<std::vector<std::uint32_t>>() : std::vector{values.get<std::uint32_t>()};
  if (list.empty() || list.size() > 3) throw Error(std::string(what) + " has one to three numbers");
  list.resize(3, 1);
  return {list[0], list[1], list[2]};
}

/// Makes buffers on the way: {"buffer": NAME, "offset": N} names one, {"bytes": N, "fill": ...} is one of its own.
class Values {
 public:
  Values(FileLaunch& out, fs::path directory) : out_(out), directory_(std::move(directory)) {}

  void buffer(const std::string& name, const json& b) {
    auto pages = std::make_unique<Pages>(b.at("bytes").get<std::size_t>());
    fill(*pages, b.value("fill", "zero"), directory_, static_cast<unsigned>(out_.buffers.size()));
    out_.memory.map(name, pages->data(), pages->size(), b.value("write", true));
    out_.buffers.emplace_back(name, std::move(pages));
  }

  Bytes bytes(const json& v, std::size_t size, const std::string& name) {
    if (v.is_number_float()) return size == 8 ? bytes_of(v.get<double>()) : bytes_of(v.get<float>());
    if (v.is_number()) {
      Bytes whole = bytes_of(v.get<std::int64_t>());
      whole.resize(std::min<std::size_t>(size, 8));
      return whole;
    }
    if (!v.is_object() || v.empty()) throw Error("argument " + name + ": a number or an object is expected");
    if (v.contains("bytes")) {
      buffer(name, v);
      return bytes_of(out_.memory.address_of(name));
    }
    if (v.contains("buffer"))
      return bytes_of(out_.memory.address_of(v.at("buffer")) + v.value("offset", std::uint64_t{0}));
    const std::string kind = v.begin().key();
    const json& x = v.begin().value();
    if (kind == "f32") return bytes_of(x.get<float>());
    if (kind == "f64") return bytes_of(x.get<double>());
    if (kind == "i32" || kind == "u32") return bytes_of(static_cast<std::uint32_t>(x.get<std::int64_t>()));
    if (kind == "i64" || kind == "u64") return bytes_of(static_cast<std::uint64_t>(x.get<std::int64_t>()));
    if (kind == "hex") return from_hex(x);
    throw Error("argument " + name + ": unknown kind " + kind + " (bytes, buffer, f32, f64, i32, u32, i64, u64, hex)");
  }

 private:
  FileLaunch& out_;
  fs::path directory_;
};

void put(Bytes& segment, std::size_t offset, const Bytes& value) {
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
      return put(segment, std::stoul(name.substr(1), nullptr, 0), values.bytes(value, 4, name));
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
    if (bytes.size() > to->bytes) throw Error("argument " + to->name + " has " + std::to_string(to->bytes) + " bytes");
    put(segment, to->offset, bytes);
  };
  if (args.is_object()) {
    for (const auto& [name, value] : args.items()) set(name, value);
  } else {
    for (const json& value : args) {
      const std::string name = value.is_object() ? value.value("name", "") : "";
      set(name, name.empty() ? value : value.at("value"));
    }
    if (next < visible.size() && next > 0)
      throw Error("the kernel has " + std::to_string(visible.size()) + " arguments, given " + std::to_string(next));
  }
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
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(pages.data()), static_cast<std::streamsize>(pages.size()));
  if (!out) throw Error("cannot write " + path);
}

std::vector<std::uint8_t> hidden_arguments(const CodeObject& object, const Launch& launch) {
  Bytes segment(object.kernels.at(launch.symbol).kernarg_bytes, 0);
  const auto known = object.arguments.find(launch.symbol);
  if (known == object.arguments.end()) return segment;
  for (const KernelArgument& argument : known->second) {
    if (segment.size() < argument.offset + argument.bytes) segment.resize(argument.offset + argument.bytes);
    std::uint64_t value = 0;
    const int axis = argument.kind.back() - 'x';
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
  FileLaunch out;
  const fs::path file = fs::path(directory) / description.at("file").get<std::string>();
  out.object = load_any_object(file.string(), description.value("arch", ""), objdump);
  std::string name = description.value("kernel", "");
  if (name.empty() && out.object.kernels.size() == 1) name = out.object.kernels.begin()->first;
  if (!name.ends_with(".kd")) name += ".kd";
  if (!out.object.kernels.contains(name))
    throw Error(file.string() + " has no kernel " + name.substr(0, name.size() - 3));
  out.launch.symbol = name;
  out.launch.grid_blocks = three(description.at("grid"), "grid");
  out.launch.block = three(description.at("block"), "block");
  out.launch.dynamic_lds_bytes = description.value("dynamic_lds", 0u);
  out.launch.kernarg = hidden_arguments(out.object, out.launch);
  Values values(out, directory);
  if (description.contains("buffers"))
    for (const auto& [buffer, how] : description.at("buffers").items()) values.buffer(buffer, how);
  if (description.contains("args"))
    set_arguments(description.at("args"), out.object.arguments[name], values, out.launch.kernarg);
  return out;
}

json argument_from_text(const std::string& text) {
  const auto equals = text.find('=');
  std::string value = equals == std::string::npos ? text : text.substr(equals + 1);
  json out;
  const auto colon = value.find(':');
  const std::string kind = value.substr(0, colon), rest = colon == std::string::npos ? "" : value.substr(colon + 1);
  if (kind == "buffer") {
    const auto second = rest.find(':');
    out["bytes"] = std::stoull(rest.substr(0, second), nullptr, 0);
    if (second != std::string::npos) out["fill"] = rest.substr(second + 1);
  } else if (kind == "hex") {
    out["hex"] = rest;
  } else if (colon != std::string::npos) {
    out[kind] = json::parse(rest);
  } else {
    out = json::parse(value);
  }
  return equals == std::string::npos ? out : json{{"name", text.substr(0, equals)}, {"value", out}};
}

}  // namespace isa_sim
