// SPDX-License-Identifier: MIT
#include "bench/harness/chip_kernels.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <boost/core/demangle.hpp>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "sim/programs/launch_file.hpp"

namespace tilewave::bench {
namespace {

namespace fs = std::filesystem;

std::string whole_file(const fs::path& path) {
  std::string text(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

std::uint64_t hash(std::uint64_t h, const std::string& text) {  // the hash is FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}
std::string hash_name(const std::string& text) { return tilewave::sim::hex(hash(0xcbf29ce484222325, text)).substr(2); }

/// Other processes that ask for the same file wait while this exists. Where there are no locks, nobody waits.
class Alone {
 public:
  explicit Alone(const fs::path& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ >= 0) (void)flock(file_, LOCK_EX);
  }
  ~Alone() {
    if (file_ >= 0) close(file_);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  int file_;
};

/// Returns a kernel's type as the chip's compiler reads it. Class-type template arguments are printed as
/// `tilewave::Spec{...}` without the trailing members that are zero. C++ would give those their defaults, so whole()
/// stands for the braces.
std::string for_chip(std::string type, const std::string& arch) {
  const std::string backend = "tilewave::host::Backend<";
  for (std::size_t at; (at = type.find(backend)) != std::string::npos;)
    type.replace(at, type.find('>', at) + 1 - at, "tilewave::" + arch + "::Backend");
  std::string text;
  for (const char c : type) {
    if (c == '{') {
      std::size_t name = text.size();
      while (name > 0 && (std::isalnum(static_cast<unsigned char>(text[name - 1])) || text[name - 1] == '_' ||
                          text[name - 1] == ':'))
        --name;
      text.insert(name, "whole<");
      text += ">(";
    } else {
      text += c == '}' ? ')' : c;
    }
  }
  return text;
}

/// It makes a T of its first members, with all others zero.
constexpr const char* whole = R"(
struct Zero {
  template <class T>
  constexpr operator T() const { return T{}; }
};
template <class T, class... First>
constexpr T whole(First... first) {
  if constexpr (requires { T{first..., Zero{}}; }) return whole<T>(first..., Zero{});
  else return T{first...};
}
)";

/// Precompiles headers. Each kernel would instantiate the templates that they name, which takes longer than its own code.
constexpr const char* precompile = "-fsyntax-only -fpch-instantiate-templates -Xclang -emit-pch -Xclang -o -Xclang ";

}  // namespace

ChipKernels::ChipKernels(ArchId arch, const std::string& options) : arch_(name_of(arch)), options_(options) {
  std::vector<fs::path> headers{TILEWAVE_MODEL_SOURCES "/bench/harness/traffic.hpp",
                                TILEWAVE_MODEL_SOURCES "/bench/ladder/kernels.hpp"};
  for (const auto& file : fs::recursive_directory_iterator(TILEWAVE_MODEL_SOURCES "/include"))
    if (file.path().extension() == ".hpp") headers.push_back(file.path());
  std::sort(headers.begin(), headers.end());
  std::string all = std::string(TILEWAVE_MODEL_COMMAND) + precompile + whole;
  for (const fs::path& header : headers) all += header.string() + whole_file(header);
  headers_folder_ = fs::path(TILEWAVE_MODEL_CACHE) / (arch_ + "-" + hash_name(all));
  folder_ = options_.empty() ? headers_folder_ : headers_folder_ / hash_name(options_);
  fs::create_directories(folder_);
}

fs::path ChipKernels::file_of(const std::type_info& type) {
  const std::string name = for_chip(boost::core::demangle(type.name()), arch_);
  const fs::path file = folder_ / (hash_name(name) + ".co");
  if (!fs::exists(file)) {
    const std::string kernel = "tilewave::" + arch_ + "::entry<" + name + ">(const typename " + name + "::Args)";
    compile(file, "template __global__ void " + kernel + ";\n",
            options_ + " -Xclang -fno-validate-pch -Xclang -include-pch -Xclang '" + headers().string() + "' -o ");
  }
  return file;
}

const tilewave::sim::CodeObject& ChipKernels::object_of(const std::type_info& type) {
  const std::string file = file_of(type).string();
  const auto known = objects_.find(file);
  if (known != objects_.end()) return known->second;
  tilewave::sim::CodeObject object = tilewave::sim::load_code_object(file, TILEWAVE_MODEL_OBJDUMP);
  if (object.kernels.size() != 1) throw std::runtime_error("a code object of one kernel has several");
  return objects_.emplace(file, std::move(object)).first->second;
}

fs::path ChipKernels::headers() {
  const fs::path file = headers_folder_ / "kernels.pch";
  if (fs::exists(file)) return file;
  const Alone alone(headers_folder_ / "kernels.lock");  // it takes seconds, and other benchmarks may want it now
  if (!fs::exists(file)) {
    compile(file,
            "#include <tilewave/arch/" + arch_ + "/backend.hpp>\n#include <tilewave/tilewave.hpp>\n" +
                "#include <bench/harness/traffic.hpp>\n#include <bench/ladder/kernels.hpp>\n" + whole,
            precompile);
  }
  return file;
}

/// Each process puts its name first into file names, because others may write the same files.
void ChipKernels::compile(const fs::path& file, const std::string& text, const std::string& options) const {
  const std::string mine = file.string() + "." + std::to_string(getpid()), log = file.string() + ".log";
  const fs::path source = file.string() + ".hip";
  std::ofstream(mine) << text;
  fs::rename(mine, source);
  const std::string command = std::string(TILEWAVE_MODEL_COMMAND) + " --offload-arch=" + arch_ + " '" +
                              source.string() + "' " + options + "'" + mine + "' 2> '" + log + "'";
  if (std::system(command.c_str()) != 0 || !fs::exists(mine))
    throw std::runtime_error("the kernel does not compile for " + arch_ + ": see " + log);
  fs::rename(mine, file);
}

tilewave::sim::Launch chip_launch(const tilewave::sim::CodeObject& object, const host::SeenLaunch& seen) {
  tilewave::sim::Launch launch{.symbol = object.kernels.begin()->first,
                               .grid_blocks = {static_cast<std::uint32_t>(seen.shape.grid), 1, 1},
                               .block = {static_cast<std::uint32_t>(seen.shape.block), 1, 1},
                               .dynamic_lds_bytes = 0,
                               .kernarg = {}};
  launch.kernarg = tilewave::sim::hidden_arguments(object, launch);
  for (const tilewave::sim::KernelArgument& argument : object.arguments.at(launch.symbol)) {
    if (argument.kind.starts_with("hidden_")) continue;
    if (argument.bytes != seen.args_bytes) throw std::runtime_error("the chip's kernel takes other arguments");
    std::copy_n(static_cast<const std::uint8_t*>(seen.args), seen.args_bytes,
                launch.kernarg.begin() + static_cast<std::ptrdiff_t>(argument.offset));
  }
  return launch;
}

}  // namespace tilewave::bench
