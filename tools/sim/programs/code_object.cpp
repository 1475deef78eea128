// SPDX-License-Identifier: MIT
#include "sim/programs/code_object.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "sim/machine/hazards.hpp"
#include "sim/machine/memory.hpp"
#include "sim/programs/json_values.hpp"
#include "sim/programs/objdump.hpp"

namespace tilewave::sim {
namespace {

// The few ELF records needed, at their offsets in the 64-bit little-endian format.
struct Elf {
  const std::vector<std::uint8_t>& file;
  const std::string& path;

  template <class T>
  T at(std::uint64_t offset) const {
    if (offset > file.size() || file.size() - offset < sizeof(T)) throw Error(path + ": truncated ELF file");
    return load_bytes<T>(file.data() + offset);
  }
  std::string text(std::uint64_t offset) const {
    std::string out;
    while (const char c = at<char>(offset++)) out += c;
    return out;
  }
};

std::vector<std::uint8_t> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(path)) throw Error("cannot read " + path);
  std::vector<std::uint8_t> bytes(std::filesystem::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return bytes;
}

KernelDescriptor read_descriptor(const std::uint8_t* kd, std::uint64_t address, const std::string& name) {
  const auto word = [&](int offset) { return load_bytes<std::uint32_t>(kd + offset); };
  const std::uint32_t rsrc3 = word(44), rsrc1 = word(48), rsrc2 = word(52);
  const auto properties = load_bytes<std::uint16_t>(kd + 56), preload = load_bytes<std::uint16_t>(kd + 58);
  KernelDescriptor k;
  k.lds_bytes = word(0);
  k.scratch_bytes = word(4);
  k.kernarg_bytes = word(8);
  k.entry = address + load_bytes<std::uint64_t>(kd + 16);
  const int registers = static_cast<int>((rsrc1 & 63u) + 1) * 8;
  const int accumulators_at = static_cast<int>((rsrc3 & 63u) + 1) * 4;
  k.vgprs = std::min(registers, accumulators_at);
  k.agprs = registers - k.vgprs;
  if (rsrc1 >> 12 & 15u) throw Error(name + ": only rounding to nearest even is simulated");
  k.denorm32 = static_cast<int>(rsrc1 >> 16 & 3u);
  k.denorm16_64 = static_cast<int>(rsrc1 >> 18 & 3u);
  k.fp16_overflow = rsrc1 >> 26 & 1u;
  k.user_sgprs = static_cast<int>(rsrc2 >> 1 & 31u);
  for (int i = 0; i < 3; ++i) k.workgroup_id[i] = rsrc2 >> (7 + i) & 1u;
  k.workgroup_info = rsrc2 >> 10 & 1u;
  if (properties & 1u) throw Error(name + ": private segment buffers are not simulated");
  k.dispatch_ptr = properties & 2u;
  k.queue_ptr = properties & 4u;
  k.kernarg_ptr = properties & 8u;
  k.dispatch_id = properties & 16u;
  if (properties & 32u) throw Error(name + ": flat scratch initialisation is not simulated");
  k.private_size = properties & 64u;
  if (properties >> 10 & 1u) throw Error(name + ": wave32 kernels are not simulated");
  k.preload_words = preload & 127;
  k.preload_offset = preload >> 7;
  if (k.kernarg_bytes > max_kernarg_bytes ||
      (k.preload_words + k.preload_offset) * 4 > static_cast<int>(k.kernarg_bytes))
    throw Error(name + ": the descriptor has " + std::to_string(k.kernarg_bytes) + " bytes of arguments");
  constexpr std::uint32_t most_scratch = 1u << 20;  // of a lane
  if (k.scratch_bytes > most_scratch) throw Error(name + ": the descriptor has more scratch than a lane may");
  const int pointers = k.dispatch_ptr + k.queue_ptr + k.kernarg_ptr + k.dispatch_id;
  if (2 * pointers + k.private_size + k.preload_words > k.user_sgprs)
    throw Error(name + ": the descriptor enables more user SGPRs than it counts");
  return k;
}

/// A number of an argument, at most what a segment of arguments holds.
std::size_t segment_bytes(const nlohmann::json& argument, const char* key) {
  const std::string what = "the metadata of its kernels";
  const auto bytes = integer_of<std::size_t>(member(argument, key, what), key + (" of " + what));
  if (bytes > max_kernarg_bytes)
    throw Error(what + " has an argument beyond " + std::to_string(max_kernarg_bytes) + " bytes");
  return bytes;
}

/// NT_AMDGPU_METADATA is MessagePack.
void read_metadata(const std::vector<std::uint8_t>& file, std::uint64_t at, std::uint64_t end, CodeObject& object) {
  constexpr std::uint32_t amdgpu_metadata = 32;
  const auto padded = [](std::uint64_t n) { return (n + 3) / 4 * 4; };
  while (at <= end && end - at >= 12 && end <= file.size()) {
    const std::uint64_t name = load_bytes<std::uint32_t>(&file[at]), size = load_bytes<std::uint32_t>(&file[at + 4]);
    const std::uint64_t content = at + 12 + padded(name);
    if (content > end || end - content < size) break;
    if (load_bytes<std::uint32_t>(&file[at + 8]) == amdgpu_metadata) {
      const auto first = file.begin() + static_cast<std::ptrdiff_t>(content);
      const std::string what = "the metadata of its kernels";
      try {
        const nlohmann::json note = parse_msgpack({first, first + static_cast<std::ptrdiff_t>(size)}, what);
        for (const auto& kernel : list_of(note, "amdhsa.kernels", what)) {
          auto& arguments = object.arguments[text_of(member(kernel, ".symbol", what), what)];
          for (const auto& argument : kernel.value(".args", nlohmann::json::array()))
            arguments.push_back({argument.value(".name", ""), text_of(member(argument, ".value_kind", what), what),
                                 segment_bytes(argument, ".offset"), segment_bytes(argument, ".size")});
        }
      } catch (const nlohmann::json::exception&) {
        throw Error(what + " is damaged");
      }
    }
    at = content + padded(size);
  }
}

/// Reads the relocations of a code object that is linked as a whole: addresses in its own image, known once it is
/// loaded.
void read_relocations(const Elf& elf, std::uint64_t offset, std::uint64_t size, CodeObject& object) {
  constexpr std::uint32_t relative64 = 13;  // R_AMDGPU_RELATIVE64: load base + addend
  for (std::uint64_t r = offset; r < offset + size; r += 24) {
    const auto type = elf.at<std::uint32_t>(r + 8);
    const auto at = elf.at<std::uint64_t>(r);
    if (type != relative64)
      throw Error(elf.path + ": relocations of type " + std::to_string(type) + " are not simulated");
    if (at > object.image.size() || object.image.size() - at < 8)
      throw Error(elf.path + ": relocation at " + hex(at) + " outside the image");
    object.relocations.push_back({at, elf.at<std::uint64_t>(r + 16)});
  }
}

/// Load segments, relocations, kernel descriptors and argument lists.
void read_elf(const std::string& path, CodeObject& object) {
  const std::vector<std::uint8_t> file = read_file(path);
  const Elf elf{file, path};
  if (file.size() < 64 || std::memcmp(file.data(), "\177ELF\2\1", 6) != 0) throw Error(path + " is not an ELF file");
  constexpr std::uint16_t amdgpu = 224;
  if (elf.at<std::uint16_t>(18) != amdgpu) throw Error(path + " is not an AMD GPU code object");
  const std::uint32_t machine = elf.at<std::uint32_t>(48) & 0xffu;  // EF_AMDGPU_MACH
  if (machine == 0x4c)
    object.arch = Arch::gfx942;
  else if (machine == 0x4f)
    object.arch = Arch::gfx950;
  else
    throw Error(path + ": machine " + hex(machine) + " is neither gfx942 nor gfx950");

  const auto segments = elf.at<std::uint64_t>(32), sections = elf.at<std::uint64_t>(40);
  for (int i = 0; i < elf.at<std::uint16_t>(56); ++i) {
    const std::uint64_t p = segments + 56u * i;
    const auto type = elf.at<std::uint32_t>(p);
    const auto offset = elf.at<std::uint64_t>(p + 8), address = elf.at<std::uint64_t>(p + 16);
    const auto in_file = elf.at<std::uint64_t>(p + 32), in_memory = elf.at<std::uint64_t>(p + 40);
    constexpr std::uint32_t pt_load = 1, pt_note = 4;
    if (type == pt_note && offset <= file.size() && in_file <= file.size() - offset)
      read_metadata(file, offset, offset + in_file, object);
    if (type != pt_load) continue;
    constexpr std::uint64_t most = std::uint64_t{1} << 30;  // of any program
    if (in_file > in_memory || offset > file.size() || file.size() - offset < in_file || in_memory > most ||
        address > most)
      throw Error(path + ": bad segment");
    if (object.image.size() < address + in_memory) object.image.resize(address + in_memory);
    std::copy_n(file.begin() + offset, in_file, object.image.begin() + address);
  }
  for (int i = 0; i < elf.at<std::uint16_t>(60); ++i) {
    const std::uint64_t s = sections + 64u * i;
    const auto type = elf.at<std::uint32_t>(s + 4);
    const auto offset = elf.at<std::uint64_t>(s + 24), size = elf.at<std::uint64_t>(s + 32);
    constexpr std::uint32_t rela = 4, dynsym = 11;
    if (type == rela) read_relocations(elf, offset, size, object);
    if (type != dynsym) continue;
    const std::uint64_t names = elf.at<std::uint64_t>(sections + 64u * elf.at<std::uint32_t>(s + 40) + 24);
    for (std::uint64_t y = offset; y < offset + size; y += 24) {
      const std::string name = elf.text(names + elf.at<std::uint32_t>(y));
      const auto value = elf.at<std::uint64_t>(y + 8);
      if (!name.ends_with(".kd")) continue;
      if (value > object.image.size() || object.image.size() - value < 64)
        throw Error(path + ": descriptor " + name + " outside the image");
      object.kernels[name] = read_descriptor(object.image.data() + value, value, name);
    }
  }
}

/// Raises the reason kept in its text.
void run_undecodable(Wave&, const Op& op) { throw Error(op.text); }

/// `\tmnemonic operands // 000000001B00: C00200C0 00000018 <label>`
void decode_line(const char* line, const InstructionTable& table, Program& program) {
  const char* comment = std::strstr(line, "// ");
  if (line[0] != '\t' || !comment) return;
  char* end;
  const std::uint64_t address = std::strtoull(comment + 3, &end, 16);
  if (*end != ':') return;
  std::array<std::uint32_t, 4> words{};
  int count = 0;
  for (const char* p = end + 1; count < 4; ++count) {
    while (*p == ' ') ++p;
    const auto word = std::strtoull(p, &end, 16);
    if (end - p != 8) break;
    words[count] = static_cast<std::uint32_t>(word);
    p = end;
  }
  std::string_view text(line + 1, comment - line - 1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  const auto space = text.find(' ');
  const std::string_view mnemonic = text.substr(0, space);
  const std::string_view operands = space == std::string_view::npos ? std::string_view{} : text.substr(space + 1);
  Op op;
  try {
    op = decode(mnemonic, operands, address, words, count, table);
  } catch (const Error& error) {
    op.run = run_undecodable;
    op.undecodable = true;
    op.cls = Class::other;
    op.address = address;
    op.bytes = static_cast<std::uint8_t>(4 * count);
    op.text = std::string(error.what()) + " [" + std::string(text) + "]";
  }
  program.index[address] = static_cast<std::int32_t>(program.ops.size());
  program.ops.push_back(std::move(op));
}

void disassemble(const std::string& path, const std::string& objdump, CodeObject& object) {
  const InstructionTable& table = instruction_table(object.arch);
  run_objdump(objdump, path, [&](const char* line) { decode_line(line, table, object.program); });
  if (object.program.ops.empty()) throw Error(path + " holds no code");
  for (Op& op : object.program.ops) {
    if (op.cls != Class::branch) continue;
    const auto target = op.address + 4 + 4 * static_cast<std::int64_t>(static_cast<std::int16_t>(op.simm16()));
    const auto found = object.program.index.find(target);
    if (found != object.program.index.end()) op.target = found->second;
  }
}

}  // namespace

std::size_t Program::at(std::uint64_t address) const {
  const auto found = index.find(address);
  if (found == index.end()) throw Error("jump to " + hex(address) + ", where no instruction starts");
  return static_cast<std::size_t>(found->second);
}

namespace {
constexpr std::string_view bundle_magic = "__CLANG_OFFLOAD_BUNDLE__", compressed_magic = "CCOB";
}

/// Magic, count, then {offset, size, id} each.
std::vector<DeviceImage> images_of_bundle(const std::uint8_t* bundle, std::size_t bytes) {
  const auto within = [bytes](std::uint64_t offset, std::uint64_t size) {
    if (offset > bytes || bytes - offset < size) throw Error("truncated offload bundle");
  };
  within(0, 32);
  if (std::memcmp(bundle, bundle_magic.data(), bundle_magic.size()) != 0)
    throw Error("the program's code objects are compressed: compile with --no-offload-compress");
  std::vector<DeviceImage> images;
  const auto count = load_bytes<std::uint64_t>(bundle + 24);
  const std::uint8_t* at = bundle + 32;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = static_cast<std::uint64_t>(at - bundle);
    within(entry, 24);
    const auto offset = load_bytes<std::uint64_t>(at), size = load_bytes<std::uint64_t>(at + 8);
    const auto length = load_bytes<std::uint64_t>(at + 16);
    within(entry + 24, length);
    within(offset, size);
    const std::string id(reinterpret_cast<const char*>(at + 24), length);
    at += 24 + length;
    for (const char* arch : {"gfx942", "gfx950"})
      if (id.find(arch) != std::string::npos) images.push_back({arch, {bundle + offset, bundle + offset + size}});
  }
  return images;
}

CodeObject load_image(const DeviceImage& image, const std::string& objdump) {
  std::string path = (std::filesystem::temp_directory_path() / "tilewave_sim_XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) throw Error("cannot create " + path);
  close(file);
  const std::unique_ptr<const std::string, void (*)(const std::string*)> removed(
      &path, [](const std::string* p) { unlink(p->c_str()); });
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(image.bytes.data()), static_cast<std::streamsize>(image.bytes.size()));
  return load_code_object(path, objdump);
}

CodeObject load_any_object(const std::string& path, const std::string& arch, const std::string& objdump) {
  const std::vector<std::uint8_t> file = read_file(path);
  constexpr std::uint8_t amdgpu = 224;
  if (file.size() > 64 && std::memcmp(file.data(), "\177ELF", 4) == 0 && file[18] == amdgpu) {
    CodeObject object = load_code_object(path, objdump);
    if (!arch.empty() && arch != (object.arch == Arch::gfx942 ? "gfx942" : "gfx950"))
      throw Error(path + " was compiled for another chip than " + arch);
    return object;
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (std::size_t at = text.find(bundle_magic); at != text.npos; at = text.find(bundle_magic, at + 1)) {
    if (at + 40 > file.size() || load_bytes<std::uint64_t>(&file[at + 24]) > 64)
      continue;  // the words in a program's text
    for (const DeviceImage& image : images_of_bundle(&file[at], file.size() - at))
      if (arch.empty() || image.arch == arch) return load_image(image, objdump);
  }
  const bool compressed = text.find(compressed_magic) != text.npos;
  throw Error(path + " holds no code for " + (arch.empty() ? "gfx942 or gfx950" : arch) +
              (compressed ? " that is not compressed: compile with --no-offload-compress" : ""));
}

CodeObject load_code_object(const std::string& path, const std::string& objdump) {
  CodeObject object;
  read_elf(path, object);
  disassemble(path, objdump, object);
  object.hazards = find_hazards(object);
  return object;
}

}  // namespace tilewave::sim
