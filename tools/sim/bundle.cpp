// SPDX-License-Identifier: MIT
#include "bundle.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "../tilewave/common/write_file.hpp"
#include "lanes.hpp"

namespace isa_sim {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

Bytes read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

Bytes from_hex(const std::string& text) {
  if (text.size() % 2) throw Error("kernarg_hex has an odd number of digits");
  Bytes bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    char* end;
    const std::string pair = text.substr(i, 2);
    bytes.push_back(static_cast<std::uint8_t>(std::strtoul(pair.c_str(), &end, 16)));
    if (*end) throw Error("kernarg_hex holds something that is no hex digit");
  }
  return bytes;
}

std::array<std::uint32_t, 3> three(const json& values, const char* what) {
  const auto list = values.get<std::vector<std::uint32_t>>();
  if (list.size() != 3) throw Error(std::string(what) + " must have three numbers");
  return {list[0], list[1], list[2]};
}

/// The bundle's buffers in simulated memory. Inputs are read-only; everything else starts as 0xff, a NaN in every type.
class Buffers {
 public:
  Buffers(const fs::path& directory, const json& list, Memory& memory) : memory_(memory) {
    for (const json& buffer : list) {
      const std::string file = buffer.at("file"), direction = buffer.at("direction");
      const auto bytes = buffer.at("bytes").get<std::size_t>();
      if (direction != "in" && direction != "inout" && direction != "out" && direction != "scratch")
        throw Error(file + ": direction " + direction + " is none of in, inout, out, scratch");
      Bytes data(bytes, 0xff);
      if (direction.starts_with("in")) {
        data = read_file(directory / file);
        if (data.size() != bytes)
          throw Error(file + " has " + std::to_string(data.size()) + " bytes, the bundle says " +
                      std::to_string(bytes));
      }
      if (!data_.emplace(file, std::move(data)).second) throw Error("two buffers are named " + file);
      memory.map(file, data_.at(file).data(), bytes, direction != "in");
    }
  }
  const Bytes& operator[](const std::string& file) const {
    const auto found = data_.find(file);
    if (found == data_.end()) throw Error("no buffer is named " + file);
    return found->second;
  }
  const std::map<std::string, Bytes>& all() const { return data_; }

  void patch(const json& pointers, Bytes& kernarg) const {
    for (const json& pointer : pointers) {
      const std::string file = pointer.at("file");
      const auto offset = pointer.at("offset").get<std::size_t>(),
                 within = pointer.value("file_offset", std::size_t{0});
      if (offset + 8 > kernarg.size()) throw Error("pointer to " + file + " outside the kernel arguments");
      if (within > (*this)[file].size()) throw Error("pointer beyond the end of " + file);
      const std::uint64_t address = memory_.address_of(file) + within;
      std::memcpy(kernarg.data() + offset, &address, 8);
    }
  }

 private:
  Memory& memory_;
  std::map<std::string, Bytes> data_;  // nodes do not move, so the mapped addresses stay valid
};

std::size_t size_of(const std::string& dtype) {
  if (dtype == "bf16" || dtype == "f16") return 2;
  if (dtype == "f32" || dtype == "i32") return 4;
  throw Error("outputs of type " + dtype + " are not compared");
}
double element(const std::string& dtype, const std::uint8_t* at) {
  if (dtype == "bf16") return std::bit_cast<float>(std::uint32_t{load_bytes<std::uint16_t>(at)} << 16);
  if (dtype == "f16") return static_cast<float>(Half::from_bits(load_bytes<std::uint16_t>(at)));
  if (dtype == "i32") return load_bytes<std::int32_t>(at);
  return load_bytes<float>(at);
}

/// e4m3, with a bias of 7 (fn: NaN is 0x7f and 0xff) or 8 (fnuz: NaN is 0x80).
double fp8_value(bool fnuz, std::uint8_t code) {
  if (fnuz ? code == 0x80 : (code & 0x7f) == 0x7f) return NAN;
  const int exponent = code >> 3 & 15, mantissa = code & 7, bias = fnuz ? 8 : 7;
  const double size = exponent > 0 ? std::ldexp(8 + mantissa, exponent - bias - 3) : std::ldexp(mantissa, -bias - 2);
  return code & 0x80 ? -size : size;
}

/// Compares a buffer with the one expected of schema 2: elements with the same bits are equal, NaN or not.
OutputReport compare_whole(const fs::path& directory, const json& output, const Buffers& buffers) {
  OutputReport report;
  report.file = output.at("file");
  const std::string dtype = output.at("dtype");
  const std::size_t width = dtype == "f32" || dtype == "i32" ? 4 : dtype == "f16" || dtype == "bf16" ? 2 : 1;
  const auto value = [&](const std::uint8_t* at) -> double {
    if (width > 1) return element(dtype, at);
    if (dtype.starts_with("fp8")) return fp8_value(dtype == "fp8_e4m3fnuz", *at);
    return dtype == "i8" ? static_cast<std::int8_t>(*at) : *at;
  };
  const Bytes &actual = buffers[report.file],
              expected = read_file(directory / output.at("expected").get<std::string>());
  report.elements = output.at("elements");
  if (expected.size() != actual.size() || report.elements * width > actual.size() || report.elements == 0)
    throw Error(report.file + ": elements and expected file do not fit the buffer");
  const double atol = output.at("atol"), rtol = output.at("rtol");
  for (std::size_t i = 0; i < report.elements; ++i) {
    if (std::memcmp(actual.data() + i * width, expected.data() + i * width, width) == 0) continue;
    const double got = value(actual.data() + i * width), wanted = value(expected.data() + i * width);
    double error = got == wanted ? 0 : std::fabs(got - wanted);
    if (std::isnan(error)) error = INFINITY;
    report.max_abs_err = std::max(report.max_abs_err, error);
    if (error == 0 || error <= atol + rtol * std::fabs(wanted)) continue;
    ++report.outside;
    if (report.first.empty())
      report.first =
          "element " + std::to_string(i) + " is " + std::to_string(got) + " instead of " + std::to_string(wanted);
  }
  return report;
}

/// Compares the elements of one output with its expected f32 file, in the order of the shape.
OutputReport compare(const fs::path& directory, const json& output, const Buffers& buffers) {
  OutputReport report;
  report.file = output.at("file");
  const std::string dtype = output.at("dtype");
  const Bytes &actual = buffers[report.file],
              expected = read_file(directory / output.at("expected").get<std::string>());
  const auto shape = output.at("shape").get<std::vector<std::int64_t>>();
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  if (output.contains("strides")) strides = output.at("strides").get<std::vector<std::int64_t>>();
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  if (shape.empty() || strides.size() != shape.size() || expected.size() != static_cast<std::size_t>(count) * 4)
    throw Error(report.file + ": shape, strides and expected file do not fit together");
  const double atol = output.at("atol"), rtol = output.at("rtol"), row_rtol = output.value("row_rtol", INFINITY);
  const std::int64_t row_length = output.contains("row_rtol") ? shape.back() : 1;
  const auto found = [&](std::int64_t i, double value, double wanted, const char* what) {
    if (report.first.empty())
      report.first = std::string(what) + " " + std::to_string(i) + " is " + std::to_string(value) + " instead of " +
                     std::to_string(wanted);
  };
  double row_error = 0, row_norm = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = 0, rest = i;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) at += rest % shape[d] * strides[d];
    const std::size_t byte = static_cast<std::size_t>(at) * size_of(dtype);
    if (at < 0 || byte + size_of(dtype) > actual.size())
      throw Error(report.file + ": the shape reaches beyond its end");
    const double value = element(dtype, actual.data() + byte), wanted = load_bytes<float>(expected.data() + 4 * i);
    double error = value == wanted ? 0 : std::fabs(value - wanted);  // equal infinities are equal
    if (std::isnan(error)) error = INFINITY;
    report.max_abs_err = std::max(report.max_abs_err, error);
    if (error != 0 && !(error <= atol + rtol * std::fabs(wanted))) ++report.outside, found(i, value, wanted, "element");
    row_error += error * error;
    row_norm += wanted * wanted;
    if ((i + 1) % row_length) continue;
    const double relative = row_error == 0 ? 0 : std::sqrt(row_error / row_norm);
    if (row_length > 1) report.max_row_err = std::max(report.max_row_err, relative);
    if (!(relative <= row_rtol)) ++report.rows_outside, found(i / row_length, relative, 0, "the error norm of row");
    row_error = row_norm = 0;
  }
  report.elements = static_cast<std::uint64_t>(count);
  return report;
}

BundleReport run(const fs::path& directory, const json& bundle, const BundleOptions& options) {
  const std::string schema = bundle.at("schema");
  if (schema != "tilewave-bundle/1" && schema != "tilewave-bundle/2")
    throw Error("schema is neither tilewave-bundle/1 nor tilewave-bundle/2");
  BundleReport report;
  report.arch = bundle.at("arch");
  Memory memory;
  const Buffers buffers(directory, bundle.at("buffers"), memory);
  std::map<std::string, CodeObject> objects;
  for (const json& entry : bundle.at("launches")) {
    const std::string file = entry.at("code_object");
    if (!objects.contains(file)) objects[file] = load_code_object((directory / file).string(), options.objdump);
    const CodeObject& object = objects.at(file);
    if (report.arch != (object.arch == Arch::gfx942 ? "gfx942" : "gfx950"))
      throw Error(file + " was compiled for another chip than " + report.arch);
    Launch launch{.symbol = entry.at("symbol"),
                  .grid_blocks = three(entry.at("grid_blocks"), "grid_blocks"),
                  .block = three(entry.at("block"), "block"),
                  .dynamic_lds_bytes = entry.at("dynamic_lds_bytes"),
                  .kernarg = from_hex(entry.at("kernarg_hex"))};
    if (launch.kernarg.size() != entry.at("kernarg_bytes")) throw Error("kernarg_hex is not kernarg_bytes long");
    buffers.patch(entry.at("pointers"), launch.kernarg);
    const auto start = std::chrono::steady_clock::now();
    LaunchReport done{.name = entry.at("name"), .kernel = entry.at("kernel"), .counts = {}};
    try {
      done.counts = run_launch(object, launch, memory, options.machine);
    } catch (const Error& error) {
      throw Error(done.name + ": " + error.what());
    }
    done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report.launches.push_back(std::move(done));
  }
  if (!options.write_outputs.empty()) {
    fs::create_directories(options.write_outputs);
    for (const json& output : bundle.at("outputs")) {
      const std::string file = output.at("file");
      const std::string_view bytes(reinterpret_cast<const char*>(buffers[file].data()), buffers[file].size());
      const std::string why = tilewave::tool::write_whole_file(fs::path(options.write_outputs) / file, bytes);
      if (!why.empty()) throw Error("cannot write " + file + ": " + why);
    }
  }
  const auto judge = schema == "tilewave-bundle/1" ? compare : compare_whole;
  for (const json& output : bundle.at("outputs")) report.outputs.push_back(judge(directory, output, buffers));
  if (report.outputs.empty()) throw Error("the bundle names no outputs to compare");
  return report;
}

}  // namespace

bool BundleReport::pass() const {
  return std::all_of(outputs.begin(), outputs.end(),
                     [](const auto& o) { return o.outside == 0 && o.rows_outside == 0; });
}

nlohmann::ordered_json to_json(const Counts& counts) {
  nlohmann::ordered_json classes, loaded;
  for (int i = 0; i < class_count; ++i) classes[std::string(class_names[i])] = counts.instructions[i];
  for (const auto& [width, bytes] : counts.loaded) loaded[std::to_string(width)] = bytes;
  return {{"waves", counts.waves},           {"wave_instructions", counts.total()}, {"instructions", classes},
          {"loaded_bytes_by_width", loaded}, {"stored_bytes", counts.stored},       {"lds_bytes", counts.lds_bytes},
          {"barriers", counts.barriers}};
}

nlohmann::ordered_json BundleReport::to_json() const {
  nlohmann::ordered_json out{{"arch", arch}, {"pass", pass()}};
  for (const LaunchReport& l : launches) {
    nlohmann::ordered_json entry{{"name", l.name}, {"kernel", l.kernel}};
    entry.update(isa_sim::to_json(l.counts));
    entry["seconds"] = l.seconds;
    out["launches"].push_back(std::move(entry));
  }
  for (const OutputReport& o : outputs)
    out["outputs"].push_back({{"file", o.file},
                              {"elements", o.elements},
                              {"outside", o.outside},
                              {"rows_outside", o.rows_outside},
                              {"max_abs_err", o.max_abs_err},
                              {"max_row_err", o.max_row_err},
                              {"first", o.first}});
  return out;
}

BundleReport run_bundle(const std::string& directory, const BundleOptions& options) {
  const fs::path path = fs::path(directory) / "bundle.json";
  try {
    std::ifstream in(path);
    if (!in) throw Error("cannot read " + path.string());
    return run(directory, json::parse(in), options);
  } catch (const json::exception& error) {
    throw Error(path.string() + ": " + error.what());
  }
}

}  // namespace isa_sim
