// SPDX-License-Identifier: MIT
#include "bench/harness/launch_bundle.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "bench/harness/bundle_files.hpp"
#include "bench/harness/chip_kernels.hpp"
#include "bench/harness/element.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// A launch of a call that was recorded and not run.
struct Recorded {
  const std::type_info* kernel;
  ArchId arch;
  LaunchShape shape;
  Bytes args;
};

class Recorder final : private host::LaunchWatcher {
 public:
  static std::vector<Recorded> record(const std::function<Status()>& call) {
    Recorder recorder;
    watching = &recorder;
    const Status status = call();
    watching = nullptr;
    if (!status.ok()) throw std::runtime_error(std::string(name_of(status.code)) + ": " + status.reason);
    if (recorder.seen_.empty()) throw std::runtime_error("the call launches nothing");
    return std::move(recorder.seen_);
  }

 private:
  Status launched(const host::SeenLaunch& seen) override {
    const auto* bytes = static_cast<const std::uint8_t*>(seen.args);
    seen_.push_back({&seen.kernel, seen.arch, seen.shape, Bytes(bytes, bytes + seen.args_bytes)});
    return {};
  }

  std::vector<Recorded> seen_;
};

/// An allocation that a launch has a pointer into, and its contents before the call.
struct Tensor {
  const std::uint8_t* data;
  std::size_t bytes;
  std::string file;
  Bytes before;
};

class Tensors {
 public:
  /// Returns the tensor that contains an address, or null if none does. The first tensor that is asked for gets file
  /// tensor0.bin, and so on.
  Tensor* holding(std::uint64_t address) {
    for (const auto& tensor : found_)
      if (inside(*tensor, address)) return tensor.get();
    host::detail::Allocations& all = host::detail::allocations();
    const std::lock_guard lock(all.mutex);
    for (const auto& [pointer, pages] : all.pages) {
      auto* const first = static_cast<const std::uint8_t*>(pointer);
      Tensor tensor{first,
                    static_cast<std::size_t>(reinterpret_cast<const std::uint8_t*>(pages.end()) - first),
                    "tensor" + std::to_string(found_.size()) + ".bin",
                    {}};
      if (!inside(tensor, address)) continue;
      tensor.before.assign(tensor.data, tensor.data + tensor.bytes);
      found_.push_back(std::make_unique<Tensor>(std::move(tensor)));
      return found_.back().get();
    }
    return nullptr;
  }
  const std::vector<std::unique_ptr<Tensor>>& all() const { return found_; }

 private:
  static bool inside(const Tensor& tensor, std::uint64_t address) {
    const auto first = reinterpret_cast<std::uint64_t>(tensor.data);
    return address >= first && address < first + tensor.bytes;
  }

  std::vector<std::unique_ptr<Tensor>> found_;
};

/// Moves addresses in the arguments of a launch to entries of `pointers` and zeroes them. 8 bytes that lie in a tensor
/// count as an address.
ordered_json take_pointers(Tensors& tensors, std::size_t arguments, std::size_t bytes, Bytes& kernarg) {
  ordered_json pointers = ordered_json::array();
  for (std::size_t at = align_up<std::size_t>(arguments, 8); at + 8 <= arguments + bytes; at += 8) {
    std::uint64_t address;
    std::memcpy(&address, kernarg.data() + at, 8);
    const Tensor* tensor = tensors.holding(address);
    if (tensor == nullptr) continue;
    const std::size_t within = address - reinterpret_cast<std::uint64_t>(tensor->data);
    pointers.push_back(
        {{"offset", at}, {"file", tensor->file}, {"file_offset", within}, {"bytes", tensor->bytes - within}});
    std::memset(kernarg.data() + at, 0, 8);
  }
  return pointers;
}

struct Tolerance {
  double relative, absolute;  // absolute is in root mean squares of the finite values; for codes it is in units
};
/// Returns one step of the type where sums differ in their last bits. For f32 it is the error of another order and of
/// other approximations.
Tolerance tolerance_of(std::string_view element) {
  if (element == "f32") return {1e-5, 1e-5};
  if (element == "bf16") return {0x1p-7, 0x1p-8};
  if (element == "f16") return {0x1p-10, 0x1p-11};
  if (element == "i8") return {0, 1};
  if (element.starts_with("fp8")) return {0x1p-3, 0x1p-9};
  return {0, 0};  // integers and bytes must be equal
}

double root_mean_square(std::string_view element, const std::uint8_t* data, std::size_t bytes) {
  const DType type = element == "f32" ? DType::f32 : element == "f16" ? DType::f16 : DType::bf16;
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < bytes / size_of(type); ++i) {
    const double value = reference::element(type, data, static_cast<std::int64_t>(i));
    if (std::isfinite(value)) sum += value * value, ++count;
  }
  return count > 0 ? std::sqrt(sum / static_cast<double>(count)) : 0;
}

void write_bundle(const BundleRequest& request, ArchId arch, const std::vector<Recorded>& launches,
                  const std::function<Status()>& call, std::span<const TwinBuffer* const> outputs) {
  const fs::path dir(request.directory);
  ordered_json json{
      {"schema", "tilewave-bundle/2"},
      {"arch", name_of(arch)},
      {"config", request.config},
      {"policy", request.policy},
      {"description", "run the launches in order, then compare the outputs; docs/reference/bundle.md says how"},
      {"problem", ordered_json::parse(request.problem)}};
  ChipKernels kernels(arch);
  Tensors tensors;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Recorded& seen = launches[i];
    const tilewave::sim::CodeObject& object = kernels.object_of(*seen.kernel);
    tilewave::sim::Launch launch =
        chip_launch(object, {*seen.kernel, seen.arch, seen.shape, seen.args.data(), seen.args.size()});
    const std::string name = "launch" + std::to_string(i), file = name + ".co";
    fs::copy_file(kernels.file_of(*seen.kernel), dir / file, fs::copy_options::overwrite_existing);
    std::size_t arguments = 0;
    for (const tilewave::sim::KernelArgument& argument : object.arguments.at(launch.symbol))
      if (!argument.kind.starts_with("hidden_")) arguments = argument.offset;
    ordered_json pointers = take_pointers(tensors, arguments, seen.args.size(), launch.kernarg);
    json["launches"].push_back({{"name", name},
                                {"code_object", file},
                                {"kernel", launch.symbol.substr(0, launch.symbol.size() - 3)},  // without `.kd`
                                {"symbol", launch.symbol},
                                {"grid_blocks", launch.grid_blocks},
                                {"block", launch.block},
                                {"dynamic_lds_bytes", 0},
                                {"static_lds_bytes", object.kernels.at(launch.symbol).lds_bytes},
                                {"kernarg_bytes", launch.kernarg.size()},
                                {"kernarg_hex", hex_of(launch.kernarg)},
                                {"pointers", std::move(pointers)}});
  }

  if (const Status status = call(); !status.ok()) throw std::runtime_error(status.reason);
  json["outputs"] = ordered_json::array();
  bool any_changed = false;
  for (const auto& tensor : tensors.all()) {
    const auto output = std::find_if(outputs.begin(), outputs.end(), [&](const TwinBuffer* b) {
      return b->bytes() > 0 && static_cast<const std::uint8_t*>(b->device()) == tensor->data;
    });
    const bool is_output = output != outputs.end();
    const bool changed = std::memcmp(tensor->data, tensor->before.data(), tensor->bytes) != 0;
    write_file(dir / tensor->file, tensor->before.data(), tensor->bytes);
    json["buffers"].push_back(  // an output may hold its old value, -1 for example
        {{"file", tensor->file}, {"bytes", tensor->bytes}, {"direction", changed || is_output ? "inout" : "in"}});
    if (!is_output) continue;
    any_changed = any_changed || changed;
    const std::string expected = fs::path(tensor->file).stem().string() + ".expected.bin";
    write_file(dir / expected, tensor->data, tensor->bytes);
    const std::string_view element = (*output)->element();
    Tolerance tolerance = tolerance_of(element);
    if (element == "f32" || element == "bf16" || element == "f16")
      tolerance.absolute *= root_mean_square(element, tensor->data, (*output)->bytes());
    json["outputs"].push_back({{"file", tensor->file},
                               {"expected", expected},
                               {"dtype", element},
                               {"elements", (*output)->bytes() / bytes_of_element(element)},
                               {"rtol", tolerance.relative},
                               {"atol", tolerance.absolute}});
  }
  if (!any_changed) throw std::runtime_error("the call changes none of its outputs");
  for (ordered_json& launch : json["launches"])
    for (ordered_json& pointer : launch["pointers"])
      for (const ordered_json& buffer : json["buffers"])
        if (buffer["file"] == pointer["file"]) pointer["direction"] = buffer["direction"];
  const std::string text = json.dump(1) + "\n";
  write_file(dir / "bundle.json", text.data(), text.size());
}

void export_bundle(const BundleRequest& request, ArchId arch, const std::function<Status()>& call,
                   std::span<const TwinBuffer* const> outputs) {
  const std::vector<Recorded> launches = Recorder::record(call);
  prepare_bundle(request.directory);
  try {
    write_bundle(request, arch, launches, call, outputs);
  } catch (...) {
    clear_bundle(request.directory);  // an incomplete bundle is useless
    throw;
  }
}

const bool registered = (export_launches = export_bundle, true);

}  // namespace
}  // namespace tilewave::bench
