// SPDX-License-Identifier: MIT
#include "tools/tilewave/isa/listing.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <list>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

bool any_prefix(std::string_view word, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return word.starts_with(p); });
}

bool is_cuda(std::string_view mnemonic) { return !mnemonic.empty() && mnemonic[0] >= 'A' && mnemonic[0] <= 'Z'; }

const char* cuda_kind(std::string_view m) {
  const std::string_view op = m.substr(0, m.find('.'));
  const auto is = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), op) != words.end();
  };
  if (is({"HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "IMMA", "QMMA", "DMMA"})) return "matrix";
  if (is({"LDG", "LD", "UTMALDG", "UBLKCP", "LDGSTS", "TLD"})) return "load";
  if (is({"STG", "ST", "RED", "ATOM", "ATOMG", "UTMASTG", "UTMAREDG"})) return "store";
  if (is({"LDS", "STS", "LDSM", "STSM", "ATOMS", "LDSLK"})) return "lds";
  if (is({"SHFL", "VOTE", "REDUX", "MATCH"})) return "exchange";
  if (is({"BAR", "WARPSYNC", "UCGABAR_ARV", "UCGABAR_WAIT", "BARRIER"})) return "barrier";
  if (is({"DEPBAR", "LDGDEPBAR", "SYNCS", "WARPGROUP", "UTMACMDFLUSH", "NANOSLEEP"}) || m.starts_with("WARPGROUP"))
    return "wait";
  if (is({"LDL", "STL"})) return "scratch";
  if (is({"CALL", "RET"})) return "call";
  if (is({"NOP"})) return "nop";
  if (op[0] == 'U' ||
      is({"BRA", "BSSY", "BSYNC", "EXIT", "LDC", "S2R", "S2UR", "R2UR", "JMP", "BRX", "BREAK", "ELECT"}))
    return "scalar";
  return "vector";
}

std::string shape_of(std::string_view mnemonic) {
  for (const std::string_view part : {"v_mfma_", "v_smfmac_"})
    if (mnemonic.starts_with(part)) mnemonic.remove_prefix(part.size());
  for (const std::string_view part : {"_e64", "_e32", "_1k"})
    if (mnemonic.ends_with(part)) mnemonic.remove_suffix(part.size());
  return std::string(mnemonic);
}

/// Returns the width of an AMD vector memory instruction from the last word of its mnemonic; 0: unknown.
int width_of(std::string_view m) {
  for (const auto& [word, bytes] :
       {std::pair{"dwordx4", 16}, {"dwordx3", 12}, {"dwordx2", 8}, {"dword", 4}, {"short", 2}, {"byte", 1}})
    if (m.find(word) != m.npos) return bytes;
  return 0;
}

/// A file that goes when this does.
struct Scratch {
  std::string path = (std::filesystem::temp_directory_path() / "tilewave_isa_XXXXXX").string();
  Scratch() {
    const int file = mkstemp(path.data());
    if (file < 0) throw Error(Exit::failed, "cannot create " + path);
    close(file);
  }
  ~Scratch() { unlink(path.c_str()); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

std::string objdump() {
  std::vector<std::string> names;
  for (int version = 25; version >= 20; --version) names.push_back("llvm-objdump-" + std::to_string(version));
  names.insert(names.end(), {"/opt/rocm/llvm/bin/llvm-objdump", "llvm-objdump"});
  for (const std::string& name : names)
    if (name[0] == '/' ? access(name.c_str(), X_OK) == 0 : on_path(name)) return name;
  throw Error(Exit::failed, "no llvm-objdump from 20 on (package llvm-22, or ROCm): --resources does without");
}

/// Divides the lines of a code object, which are in the order of their addresses, among its kernels.
std::map<std::string, Listing> by_kernel(const DeviceCode& code, const Listing& all) {
  std::map<std::string, Listing> kernels;
  const auto from = [&](std::uint64_t address) {
    return std::lower_bound(all.begin(), all.end(), address,
                            [](const AsmLine& line, std::uint64_t at) { return line.address < at; });
  };
  for (const KernelNeeds& k : code.kernels) {
    std::uint64_t covered = 0;
    Listing& lines = kernels[k.symbol];
    lines.assign(from(k.address), from(k.address + k.code_bytes));
    for (const AsmLine& line : lines) covered += static_cast<std::uint64_t>(line.bytes);
    if (covered != k.code_bytes) refuse(code.file + ": the listing does not cover the code of " + k.symbol);
  }
  return kernels;
}

template <class T>
bool hex(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace

const char* kind_of(std::string_view m) {
  if (is_cuda(m)) return cuda_kind(m);
  // Most instructions are told by their first letters, so few words are compared.
  if (m.starts_with("v_")) {
    if (m.size() < 3) return "vector";
    if (m[2] == 'm' || m[2] == 's') return any_prefix(m, {"v_mfma_", "v_smfmac_"}) ? "matrix" : "vector";
    if (m[2] == 'a') return m.starts_with("v_accvgpr_") ? "acc_move" : "vector";
    if (m[2] == 'r' || m[2] == 'w')
      return any_prefix(m, {"v_readlane_b32", "v_writelane_b32"}) ? "lane_move" : "vector";
    return "vector";
  }
  if (m.starts_with("s_")) {
    if (m.starts_with("s_waitcnt")) return "wait";
    if (m == "s_barrier") return "barrier";
    if (m == "s_swappc_b64" || m == "s_call_b64") return "call";
    return m == "s_nop" ? "nop" : "scalar";
  }
  if (m.starts_with("ds_")) return any_prefix(m, {"ds_bpermute", "ds_permute", "ds_swizzle"}) ? "exchange" : "lds";
  if (m.starts_with("scratch_")) return "scratch";
  if (any_prefix(m, {"global_", "buffer_", "flat_", "tbuffer_"})) {
    if (m.find("_load_") != m.npos) return "load";
    return m.find("_store") != m.npos || m.find("_atomic") != m.npos ? "store" : "scalar";
  }
  return "scalar";
}

int load_bytes(std::string_view m) {
  if (std::string_view(kind_of(m)) != "load") return 0;
  if (is_cuda(m)) {
    if (!any_prefix(m, {"LDG", "LD."}) || m.starts_with("LDGSTS")) return 0;  // bulk copies state no width
    if (m.find(".128") != m.npos) return 16;
    if (m.find(".64") != m.npos) return 8;
    return m.find(".U8") != m.npos || m.find(".S8") != m.npos     ? 1
           : m.find(".U16") != m.npos || m.find(".S16") != m.npos ? 2
                                                                  : 4;
  }
  return width_of(m);
}

int store_bytes(std::string_view m) { return !is_cuda(m) && m.find("_store_") != m.npos ? width_of(m) : 0; }

int left_by_wait(const AsmLine& line) {
  constexpr std::string_view counter = "vmcnt(";
  const std::size_t at = line.operands.find(counter);
  if (!line.mnemonic.starts_with("s_waitcnt") || at == line.operands.npos) return -1;
  int left = -1;
  const char* const end = line.operands.data() + line.operands.size();
  std::from_chars(line.operands.data() + at + counter.size(), end, left);
  return left;
}

std::int64_t Mix::of(const char* kind) const {
  const auto found = kinds.find(kind);
  return found == kinds.end() ? 0 : found->second;
}

std::int64_t Mix::products() const {
  std::int64_t sum = 0;
  for (const auto& [name, n] : matrix) sum += n;
  return sum;
}

Mix mix_of(const Listing& lines) {
  Mix mix;
  mix.instructions = static_cast<std::int64_t>(lines.size());
  for (const AsmLine& line : lines) {
    const std::string kind = kind_of(line.mnemonic);
    const std::string_view name = line.mnemonic;
    ++mix.kinds[kind];
    if (kind == "matrix") {
      ++mix.matrix[shape_of(name)];
    } else if (kind == "load") {
      const int bytes = load_bytes(name);
      if (bytes > 0) ++mix.loads[bytes];
      if (bytes == 0 && !is_cuda(name)) mix.unknown_width = name;
    } else if (kind == "store") {
      if (const int bytes = store_bytes(name); bytes > 0) ++mix.stores[bytes];
    } else if (kind == "wait") {
      if (const int left = left_by_wait(line); left >= 0) mix.waits.push_back(left);
    } else if (kind == "lds") {
      mix.lds_writes += name.starts_with("ds_write");
    } else if (kind == "vector") {
      mix.dpp += name.ends_with("_dpp");
      mix.quarter_rate += any_prefix(name, {"v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos", "v_mul_lo",
                                            "v_mul_hi", "v_mad_u64_u32", "v_mad_i64_i32"});
    }
  }
  return mix;
}

/// `\tmnemonic operands // 000000001B00: C00200C0 00000018 <label>`
Listing parse_amd_listing(std::string_view text) {
  Listing lines;
  for (std::size_t end; !text.empty(); text.remove_prefix(std::min(end + 1, text.size()))) {
    end = std::min(text.find('\n'), text.size());
    const std::string_view raw = text.substr(0, end);
    const std::size_t comment = raw.rfind("// ");
    if (raw.empty() || raw[0] != '\t' || comment == raw.npos) continue;
    std::string_view words = raw.substr(comment + 3);
    const std::size_t colon = words.find(':');
    AsmLine line;
    if (colon == words.npos || !hex(words.substr(0, colon), line.address)) continue;
    words.remove_prefix(colon + 1);
    std::uint32_t word;
    while (words.size() >= 9 && words[0] == ' ' && hex(words.substr(1, 8), word)) {
      line.bytes += 4;
      words.remove_prefix(9);
    }
    const std::string_view said = trim(raw.substr(1, comment - 1));
    const std::size_t space = std::min(said.find(' '), said.size());
    line.mnemonic = said.substr(0, space);
    line.operands = trim(said.substr(space));
    line.falls_through = line.mnemonic != "s_branch" && line.mnemonic != "s_endpgm" && line.mnemonic != "s_setpc_b64";
    if (line.mnemonic == "s_branch" || line.mnemonic.starts_with("s_cbranch")) {
      // Signed 16 bits, in words from the next instruction.
      const auto offset = integer(std::string_view(line.operands).substr(0, line.operands.find(' ')));
      if (!offset || *offset < 0 || *offset > 0xffff) refuse("a listing has a branch to nowhere: " + printable(raw));
      line.target = static_cast<std::int64_t>(line.address) + 4 + 4 * (*offset >= 0x8000 ? *offset - 0x10000 : *offset);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// `        /*0230*/              @P1 BRA `(.L_x_4) ;`, sections and labels between.
std::map<std::string, Listing> parse_cuda_listing(std::string_view text) {
  std::map<std::string, Listing> kernels;
  struct Branch {
    std::string kernel, label;
    std::size_t line;
  };
  std::vector<Branch> branches;
  std::map<std::string, std::uint64_t> labels;  // with the kernel in front
  std::vector<std::string> waiting;
  std::string kernel;
  for (const std::string& raw : lines_of(text)) {
    const std::string_view said = trim(raw);
    if (said.starts_with(".section")) {
      const std::size_t at = said.find(".text."), end = said.find_first_of(",\" \t", at == said.npos ? 0 : at);
      kernel = at == said.npos ? "" : std::string(said.substr(at + 6, end == said.npos ? said.npos : end - at - 6));
    } else if (said.ends_with(':') && said.find(' ') == said.npos) {
      waiting.emplace_back(said.substr(0, said.size() - 1));
    } else if (said.starts_with("/*") && !kernel.empty()) {
      const std::size_t close = said.find("*/");
      AsmLine line;
      if (close == said.npos || !hex(said.substr(2, close - 2), line.address)) continue;
      line.bytes = 16;
      std::string_view rest = trim(said.substr(close + 2));
      if (rest.ends_with(';')) rest = trim(rest.substr(0, rest.size() - 1));
      const bool guarded = rest.starts_with('@');
      std::string guard;
      if (guarded) {
        guard = rest.substr(0, rest.find(' '));
        rest = trim(rest.substr(std::min(rest.find(' '), rest.size())));
      }
      if (rest.empty()) continue;
      const std::size_t space = std::min(rest.find(' '), rest.size());
      line.mnemonic = rest.substr(0, space);
      line.operands = std::string(trim(rest.substr(space))) + (guarded ? " " + guard : "");
      for (const std::string& label : waiting) labels[kernel + "\n" + label] = line.address;
      waiting.clear();
      Listing& lines = kernels[kernel];
      const bool jump = any_prefix(line.mnemonic, {"BRA", "EXIT", "RET", "BRX", "JMP"});
      line.falls_through = !jump || guarded || line.operands.find("UP") == 0 || line.operands.find("P") == 0;
      if (line.mnemonic.starts_with("BRA")) {
        const std::size_t open = rest.find("`("), end = rest.find(')', open == rest.npos ? 0 : open);
        if (open != rest.npos && end != rest.npos)
          branches.push_back({kernel, std::string(rest.substr(open + 2, end - open - 2)), lines.size()});
      }
      lines.push_back(std::move(line));
    }
  }
  for (const Branch& branch : branches) {
    const auto found = labels.find(branch.kernel + "\n" + branch.label);
    if (found != labels.end()) kernels[branch.kernel][branch.line].target = static_cast<std::int64_t>(found->second);
  }
  return kernels;
}

std::map<std::string, Listing> listings_of(const DeviceCode& code) {
  const Scratch file;
  write_atomically(file.path, code.image);
  const bool cuda = code.arch == "sm90";
  if (cuda && !on_path("nvdisasm")) throw Error(Exit::failed, "no nvdisasm (CUDA toolkit): --resources does without");
  const std::vector<std::string> command =
      cuda ? std::vector<std::string>{"nvdisasm", "-c", file.path}
           : std::vector<std::string>{objdump(), "-d", "--mcpu=" + code.arch, file.path};
  const ProcessResult done = run_process(command, {.timeout_s = 600});
  if (done.status != 0) throw Error(Exit::failed, code.file + ": " + command[0] + " cannot read it");
  return cuda ? parse_cuda_listing(done.out) : by_kernel(code, parse_amd_listing(done.out));
}

std::vector<std::map<std::string, Listing>> listings_of(const std::vector<DeviceCode>& codes) {
  std::vector<std::map<std::string, Listing>> all(codes.size());
  std::vector<bool> listed(codes.size());
  for (const char* const arch : {"gfx942", "gfx950"}) {
    std::list<Scratch> files;
    std::vector<std::size_t> of_file;
    std::vector<std::string> command{objdump(), "-d", std::string("--mcpu=") + arch};
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (codes[i].arch != arch) continue;
      command.push_back(files.emplace_back().path);
      write_atomically(files.back().path, codes[i].image);
      of_file.push_back(i);
    }
    if (of_file.size() < 2) continue;
    const ProcessResult done = run_process(command, {.timeout_s = 600, .quiet = true});
    if (done.status != 0) continue;
    // Each file's listing follows a line `path:<tab>file format ...`.
    std::vector<std::size_t> begins;
    for (const Scratch& file : files) {
      const std::size_t from = begins.empty() ? 0 : begins.back();
      begins.push_back(done.out.find("\n" + file.path + ":\tfile format ", from));
      if (begins.back() == done.out.npos) break;
    }
    if (begins.back() == done.out.npos) continue;
    begins.push_back(done.out.size());
    for (std::size_t n = 0; n < of_file.size(); ++n) {
      const std::string_view text = std::string_view(done.out).substr(begins[n], begins[n + 1] - begins[n]);
      all[of_file[n]] = by_kernel(codes[of_file[n]], parse_amd_listing(text));
      listed[of_file[n]] = true;
    }
  }
  for (std::size_t i = 0; i < codes.size(); ++i)
    if (!listed[i]) all[i] = listings_of(codes[i]);
  return all;
}

}  // namespace tilewave::tool
