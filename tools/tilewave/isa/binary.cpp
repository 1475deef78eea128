// SPDX-License-Identifier: MIT
#include "tools/tilewave/isa/binary.hpp"

#if __has_include(<boost/core/demangle.hpp>)
#include <boost/core/demangle.hpp>
#endif

#include <cstring>
#include <map>
#include <type_traits>

#include "tilewave/arch/facts.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

/// Bytes of a file; nothing outside them is ever read.
class Bytes {
 public:
  Bytes(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  [[noreturn]] void fail(const std::string& why) const { refuse(source_ + ": " + why); }
  std::string_view part(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) fail("is cut off: it refers to bytes behind its end");
    return bytes_.substr(at, size);
  }
  template <class T>
  T at(std::uint64_t offset) const {
    static_assert(std::is_integral_v<T>);
    T value;
    std::memcpy(&value, part(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string text(std::uint64_t at) const {
    const std::string_view rest = part(at, bytes_.size() > at ? bytes_.size() - at : 0);
    const std::size_t end = rest.find('\0');
    if (end == rest.npos) fail("a name does not end");
    return std::string(rest.substr(0, end));
  }
  std::string_view all() const { return bytes_; }
  const std::string& source() const { return source_; }

 private:
  std::string_view bytes_;
  const std::string& source_;
};

struct Section {
  std::string name;
  std::uint32_t type, link, info;
  std::uint64_t address, offset, size;
};
struct Symbol {
  std::uint64_t value, size;
  std::uint16_t section;
};

constexpr std::string_view elf_magic{"\177ELF\2\1", 6}, bundle_magic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::uint16_t machine_amdgpu = 224, machine_cuda = 190;
constexpr std::uint32_t symtab = 2, nobits = 8, dynsym = 11;

class Elf : public Bytes {
 public:
  using Bytes::Bytes;

  std::vector<Section> sections() const {
    const auto table = at<std::uint64_t>(40);
    const int count = at<std::uint16_t>(60), names = at<std::uint16_t>(62);
    std::vector<Section> all;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t s = table + 64u * static_cast<unsigned>(i);
      all.push_back({"", at<std::uint32_t>(s + 4), at<std::uint32_t>(s + 40), at<std::uint32_t>(s + 44),
                     at<std::uint64_t>(s + 16), at<std::uint64_t>(s + 24), at<std::uint64_t>(s + 32)});
    }
    if (names >= count) return all;
    for (int i = 0; i < count; ++i)
      all[i].name = text(all[names].offset + at<std::uint32_t>(table + 64u * static_cast<unsigned>(i)));
    return all;
  }
  /// Returns the symbols of the tables of a kind.
  std::map<std::string, Symbol> symbols(const std::vector<Section>& sections, std::uint32_t kind) const {
    std::map<std::string, Symbol> found;
    for (const Section& s : sections) {
      if (s.type != kind) continue;
      if (s.link >= sections.size()) fail("a symbol table has no names");
      for (std::uint64_t y = 0; y + 24 <= part(s.offset, s.size).size(); y += 24) {
        const std::uint64_t entry = s.offset + y;
        found[text(sections[s.link].offset + at<std::uint32_t>(entry))] = {
            at<std::uint64_t>(entry + 8), at<std::uint64_t>(entry + 16), at<std::uint16_t>(entry + 6)};
      }
    }
    return found;
  }
  /// Bytes that are loaded there.
  std::uint64_t offset_of(std::uint64_t address, std::uint64_t size) const {
    const auto table = at<std::uint64_t>(32);
    for (int i = 0; i < at<std::uint16_t>(56); ++i) {
      const std::uint64_t p = table + 56u * static_cast<unsigned>(i);
      const auto start = at<std::uint64_t>(p + 16), held = at<std::uint64_t>(p + 32);
      constexpr std::uint32_t load = 1;
      if (at<std::uint32_t>(p) == load && start <= address && address - start <= held &&
          size <= held - (address - start))
        return at<std::uint64_t>(p + 8) + (address - start);
    }
    fail("an address is in no loaded segment");
  }
};

int count_of(const nlohmann::json& kernel, const char* key, const Bytes& from, bool needed = true) {
  const auto found = kernel.find(key);
  if (found == kernel.end() && !needed) return 0;
  if (found == kernel.end() || !found->is_number_integer()) from.fail(std::string("its metadata has no number ") + key);
  const auto value = found->get<std::int64_t>();
  if (value < 0 || value > 1 << 30) from.fail(std::string("its metadata has a strange ") + key);
  return static_cast<int>(value);
}

nlohmann::json metadata_of(const Elf& elf) {
  const auto table = elf.at<std::uint64_t>(32);
  for (int i = 0; i < elf.at<std::uint16_t>(56); ++i) {
    const std::uint64_t p = table + 56u * static_cast<unsigned>(i);
    constexpr std::uint32_t note_segment = 4, amdgpu_metadata = 32;
    if (elf.at<std::uint32_t>(p) != note_segment) continue;
    const auto start = elf.at<std::uint64_t>(p + 8);
    const std::string_view notes = elf.part(start, elf.at<std::uint64_t>(p + 32));
    for (std::uint64_t at = 0; at + 12 <= notes.size();) {
      const auto padded = [](std::uint64_t n) { return (n + 3) / 4 * 4; };
      const std::uint64_t name = elf.at<std::uint32_t>(start + at), size = elf.at<std::uint32_t>(start + at + 4);
      const std::uint64_t content = at + 12 + padded(name);
      if (elf.at<std::uint32_t>(start + at + 8) == amdgpu_metadata) {
        const std::string_view packed = elf.part(start + content, size);
        auto json = nlohmann::json::from_msgpack(packed.begin(), packed.end(), true, false);
        if (json.is_discarded() || !json.is_object()) elf.fail("its metadata is no MessagePack");
        return json;
      }
      at = content + padded(size);
    }
  }
  elf.fail("no AMDGPU metadata note");
}

DeviceCode amd_code(const Elf& elf) {
  const nlohmann::json note = metadata_of(elf);
  const auto sections = elf.sections();
  const auto symbols = elf.symbols(sections, dynsym);
  DeviceCode code{elf.source(), "", std::string(elf.all()), "", {}};
  const auto target = note.find("amdhsa.target");
  if (target == note.end() || !target->is_string()) elf.fail("its metadata names no target");
  const std::string triple = target->get<std::string>();
  const std::size_t dashes = triple.rfind("--");
  code.arch = dashes == triple.npos ? triple : triple.substr(dashes + 2);
  code.arch = code.arch.substr(0, code.arch.find(':'));
  for (const Section& s : sections) {
    if (s.name != ".comment") continue;
    for (const std::string& line : split(elf.part(s.offset, s.size), '\0'))
      if (line.find("clang") != line.npos && code.compiler.empty()) code.compiler = printable(line, 200);
  }
  const auto kernels = note.find("amdhsa.kernels");
  if (kernels == note.end() || !kernels->is_array()) elf.fail("its metadata lists no kernels");
  for (const nlohmann::json& kernel : *kernels) {
    if (!kernel.is_object() || !kernel.value(".name", nlohmann::json()).is_string()) elf.fail("a kernel has no name");
    KernelNeeds k;
    k.symbol = kernel[".name"].get<std::string>();
    const auto descriptor = symbols.find(k.symbol + ".kd"), function = symbols.find(k.symbol);
    if (descriptor == symbols.end() || function == symbols.end()) elf.fail(k.symbol + " is no symbol of it");
    const std::uint64_t at = elf.offset_of(descriptor->second.value, 64);
    const int total = count_of(kernel, ".vgpr_count", elf);
    k.agprs = count_of(kernel, ".agpr_count", elf, false);
    k.vgprs = total - k.agprs;
    k.sgprs = count_of(kernel, ".sgpr_count", elf);
    k.allocated = static_cast<int>((elf.at<std::uint32_t>(at + 48) & 63u) + 1) * 8;
    k.lds_bytes = count_of(kernel, ".group_segment_fixed_size", elf);
    k.scratch_bytes = count_of(kernel, ".private_segment_fixed_size", elf);
    const auto dynamic = kernel.find(".uses_dynamic_stack");
    k.dynamic_stack = dynamic != kernel.end() && *dynamic == true;
    k.vgpr_spills = count_of(kernel, ".vgpr_spill_count", elf, false);
    k.sgpr_spills = count_of(kernel, ".sgpr_spill_count", elf, false);
    k.block_lanes = count_of(kernel, ".max_flat_workgroup_size", elf);
    k.address = descriptor->second.value + elf.at<std::uint64_t>(at + 16);
    k.code_bytes = function->second.size;
    code.kernels.push_back(std::move(k));
  }
  return code;
}

/// Attributes of a section .nv.info: of each the value that its header does not hold.
template <class Visit>
void each_attribute(const Elf& elf, const Section& s, const Visit& visit) {
  constexpr std::uint8_t sized = 4;
  for (std::uint64_t at = 0; at + 4 <= elf.part(s.offset, s.size).size();) {
    const auto format = elf.at<std::uint8_t>(s.offset + at), key = elf.at<std::uint8_t>(s.offset + at + 1);
    const std::uint64_t size = format == sized ? elf.at<std::uint16_t>(s.offset + at + 2) : 0;
    visit(key, s.offset + at + 4, size);
    at += 4 + size;
  }
}

/// A kernel is a section .text.NAME with attributes .nv.info.NAME; .nv.info has the registers and the frames of all functions,
/// .nv.shared.NAME is its shared memory, the 1 KiB that a block always has included.
DeviceCode cuda_code(const Elf& elf) {
  const auto sections = elf.sections();
  const std::uint32_t flags = elf.at<std::uint32_t>(48);
  // Up to CUDA 12 the low byte says which chip, from 13 on the second.
  if ((flags & 0xffu) != 90 && (flags >> 8 & 0xffu) != 90) elf.fail("a cubin for another chip than sm90");
  DeviceCode code{elf.source(), "sm90", std::string(elf.all()), "", {}};
  std::map<std::string, int> registers, frames;
  const auto function = [&](std::uint32_t index) {
    for (const Section& s : sections)
      if (s.type == symtab && s.link < sections.size())
        return elf.text(sections[s.link].offset + elf.at<std::uint32_t>(s.offset + 24ull * index));
    elf.fail("no symbols");
  };
  for (const Section& s : sections) {
    if (s.name != ".nv.info") continue;
    each_attribute(elf, s, [&](std::uint8_t key, std::uint64_t at, std::uint64_t size) {
      constexpr std::uint8_t frame_size = 0x11, register_count = 0x2f;
      if (size != 8 || (key != frame_size && key != register_count)) return;
      const auto value = elf.at<std::uint32_t>(at + 4);
      if (value > 1 << 20) elf.fail("a strange number of registers or bytes");
      (key == frame_size ? frames : registers)[function(elf.at<std::uint32_t>(at))] = static_cast<int>(value);
    });
  }
  for (const Section& s : sections) {
    constexpr std::string_view prefix = ".nv.info.";
    if (!s.name.starts_with(prefix)) continue;
    KernelNeeds k;
    k.symbol = s.name.substr(prefix.size());
    k.vgprs = registers[k.symbol];
    if (k.vgprs == 0) elf.fail(k.symbol + " states no registers");
    k.allocated = (k.vgprs + 7) / 8 * 8;
    k.scratch_bytes = frames[k.symbol];
    each_attribute(elf, s, [&](std::uint8_t key, std::uint64_t at, std::uint64_t size) {
      constexpr std::uint8_t max_threads = 5, required_threads = 16;
      if (size != 12 || (key != max_threads && key != required_threads)) return;
      const std::uint64_t lanes =
          std::uint64_t{elf.at<std::uint16_t>(at)} * elf.at<std::uint16_t>(at + 4) * elf.at<std::uint16_t>(at + 8);
      k.block_lanes = lanes <= 1024 ? static_cast<int>(lanes) : 0;
    });
    for (const Section& other : sections) {
      if (other.name == ".text." + k.symbol) k.code_bytes = other.size;
      if (other.name != ".nv.shared." + k.symbol || other.type != nobits) continue;
      if (other.size > 1 << 20) elf.fail(k.symbol + " has strange shared memory");
      k.lds_bytes = static_cast<int>(other.size);
    }
    code.kernels.push_back(std::move(k));
  }
  return code;
}

void add_image(std::string_view bytes, const std::string& source, std::vector<DeviceCode>& to) {
  const Elf elf(bytes, source);
  const auto machine = elf.at<std::uint16_t>(18);
  if (machine != machine_amdgpu && machine != machine_cuda) return;
  DeviceCode code = machine == machine_amdgpu ? amd_code(elf) : cuda_code(elf);
  if (facts_named(code.arch) != nullptr) to.push_back(std::move(code));
}

/// Magic, count, then {offset, size, length of id, id} each.
void add_bundle(const Bytes& file, std::uint64_t start, std::vector<DeviceCode>& to) {
  const auto count = file.at<std::uint64_t>(start + 24);
  constexpr std::uint64_t most = 64;
  if (count > most) return;  // the words in a program's text
  std::uint64_t at = start + 32;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto offset = file.at<std::uint64_t>(at), size = file.at<std::uint64_t>(at + 8);
    const auto length = file.at<std::uint64_t>(at + 16);
    const std::string_view id = file.part(at + 24, length);
    if (size > 0 && id.find("amdgcn") != id.npos) {
      if (offset > file.all().size()) file.fail("a bundle refers to bytes behind the end");
      add_image(file.part(start + offset, size), file.source(), to);
    }
    at += 24 + length;
  }
}

}  // namespace

std::vector<DeviceCode> parse_binary(std::string_view bytes, const std::string& source) {
  const Bytes file(bytes, source);
  std::vector<DeviceCode> found;
  if (bytes.starts_with("CCOB")) file.fail("a compressed offload bundle: build with --no-offload-compress");
  if (bytes.starts_with(elf_magic)) add_image(bytes, source, found);
  if (found.empty()) {
    for (std::size_t at = bytes.find(bundle_magic); at != bytes.npos; at = bytes.find(bundle_magic, at + 1))
      add_bundle(file, at, found);
  }
  if (found.empty())
    file.fail(bytes.find(".nv_fatbin") != bytes.npos
                  ? "CUDA code in a program: take the cubin (cuobjdump -xelf all, or nvcc -cubin)"
                  : "no uncompressed code for gfx942, gfx950 or sm90 in it");
  return found;
}

std::string demangled(const std::string& symbol) {
#if __has_include(<boost/core/demangle.hpp>)
  std::string name = boost::core::demangle(symbol.c_str());
#else
  std::string name = symbol;
#endif
  if (name.starts_with("void ")) name = name.substr(5);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += (name[i] == '<') - (name[i] == '>');
    if (name[i] == '(' && depth == 0 && name.compare(i, 21, "(anonymous namespace)") != 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace tilewave::tool
