// SPDX-License-Identifier: MIT
#include "sim/programs/bundle.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "../../tilewave/common/write_file.hpp"
#include "sim/machine/lanes.hpp"
#include "sim/programs/json_values.hpp"

namespace tilewave::sim {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

Bytes read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || !fs::is_regular_file(path)) throw Error("cannot read " + path.string());
  Bytes bytes(fs::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return bytes;
}

std::array<std::uint32_t, 3> three(const json& values, const std::string& what) {
  if (!values.is_array() || values.size() != 3) throw Error(what + " must have three numbers");
  std::array<std::uint32_t, 3> out{};
  for (std::size_t i = 0; i < 3; ++i) out[i] = integer_of<std::uint32_t>(values[i], what);
  return out;
}

/// A file of the bundle, below its folder.
std::string file_of(const json& object, const char* key, const std::string& what) {
  const std::string file = text_of(member(object, key, what), what);
  const fs::path path(file);
  if (file.empty() || path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end())
    throw Error(what + " names no file of the bundle: " + shown(file));
  return file;
}

/// The bundle's buffers in simulated memory. Inputs are read-only; everything else starts as 0xff, a NaN in every type.
class Buffers {
 public:
  Buffers(const fs::path& directory, const json& list, Memory& memory) : memory_(memory) {
    for (const json& buffer : list) {
      const std::string file = file_of(buffer, "file", "a buffer");
      const std::string direction = text_of(member(buffer, "direction", file), "the direction of " + file);
      const auto bytes = integer_of<std::uint64_t>(member(buffer, "bytes", file), "bytes of " + file);
      if (direction != "in" && direction != "inout" && direction != "out" && direction != "scratch")
        throw Error(file + ": direction " + direction + " is none of in, inout, out, scratch");
      Bytes data;
      if (direction.starts_with("in")) {
        data = read_file(directory / file);
        if (data.size() != bytes)
          throw Error(file + " has " + std::to_string(data.size()) + " bytes, the bundle says " +
                      std::to_string(bytes));
      } else {
        check_memory(bytes, file);
        data.assign(bytes, 0xff);
      }
      if (!data_.emplace(file, std::move(data)).second) throw Error("two buffers are named " + file);
      memory.map(file, data_.at(file).data(), bytes, direction != "in");
    }
    for (const json& buffer : list)
      if (buffer.contains("pointers"))
        patch(list_of(buffer, "pointers", "a buffer"), data_.at(buffer.at("file")), "the buffer");
  }
  const Bytes& operator[](const std::string& file) const {
    const auto found = data_.find(file);
    if (found == data_.end()) throw Error("no buffer is named " + file);
    return found->second;
  }

  /// Puts addresses of buffers where `pointers` says.
  void patch(const json& pointers, Bytes& into, const std::string& what) const {
    for (const json& pointer : pointers) {
      const std::string file = file_of(pointer, "file", "a pointer");
      const auto offset =
          integer_of<std::uint64_t>(member(pointer, "offset", file), "offset of the pointer to " + file);
      const auto within = pointer.contains("file_offset")
                              ? integer_of<std::uint64_t>(pointer["file_offset"], "file_offset of " + file)
                              : 0;
      if (into.size() < sizeof within || offset > into.size() - sizeof within)
        throw Error("pointer to " + file + " outside " + what);
      if (within > (*this)[file].size()) throw Error("pointer beyond the end of " + file);
      const std::uint64_t address = memory_.address_of(file) + within;
      std::memcpy(into.data() + offset, &address, sizeof address);
    }
  }

 private:
  Memory& memory_;
  std::map<std::string, Bytes> data_;  // nodes do not move, so the mapped addresses stay valid
};

/// A limit that a difference may be held against.
double tolerance_of(const json& output, const char* key, const std::string& file) {
  const double value = real_of(member(output, key, file), std::string(key) + " of " + file);
  if (!(value >= 0) || std::isinf(value)) throw Error(std::string(key) + " of " + file + " is no tolerance");
  return value;
}

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

/// Bytes of what an output may hold, of fp4 of two elements.
constexpr std::pair<std::string_view, std::size_t> element_types[] = {
    {"f32", 4},          {"i32", 4}, {"f16", 2},      {"bf16", 2}, {"fp8_e4m3fn", 1},
    {"fp8_e4m3fnuz", 1}, {"i8", 1},  {"fp4_e2m1", 1}, {"bytes", 1}};

/// Compares a buffer with the one expected of schema 2: elements with the same bits are equal, NaN or not.
OutputReport compare_whole(const fs::path& directory, const json& output, const Buffers& buffers) {
  OutputReport report;
  report.file = file_of(output, "file", "an output");
  const std::string dtype = text_of(member(output, "dtype", report.file), "dtype of " + report.file);
  const auto known = std::find_if(std::begin(element_types), std::end(element_types),
                                  [&](const auto& type) { return type.first == dtype; });
  if (known == std::end(element_types)) throw Error(report.file + ": unknown dtype " + shown(dtype));
  const std::size_t width = known->second;
  const auto value = [&](const std::uint8_t* at) -> double {
    if (width > 1) return element(dtype, at);
    if (dtype.starts_with("fp8")) return fp8_value(dtype == "fp8_e4m3fnuz", *at);
    return dtype == "i8" ? static_cast<std::int8_t>(*at) : *at;
  };
  const Bytes &actual = buffers[report.file],
              expected = read_file(directory / file_of(output, "expected", "an output"));
  report.elements = integer_of<std::uint64_t>(member(output, "elements", report.file), "elements of " + report.file);
  if (expected.size() != actual.size() || report.elements > actual.size() / width || report.elements == 0)
    throw Error(report.file + ": elements and expected file do not fit the buffer");
  const double atol = tolerance_of(output, "atol", report.file), rtol = tolerance_of(output, "rtol", report.file);
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
  report.file = file_of(output, "file", "an output");
  const std::string dtype = text_of(member(output, "dtype", report.file), "dtype of " + report.file);
  const Bytes &actual = buffers[report.file],
              expected = read_file(directory / file_of(output, "expected", "an output"));
  const auto width = static_cast<std::int64_t>(size_of(dtype));
  const json& extents = list_of(output, "shape", report.file);
  std::vector<std::int64_t> shape, strides;
  for (const json& extent : extents) shape.push_back(integer_of<std::int64_t>(extent, "shape of " + report.file));
  if (output.contains("strides")) {
    for (const json& stride : list_of(output, "strides", report.file))
      strides.push_back(integer_of<std::int64_t>(stride, "strides of " + report.file));
  }
  const auto misfit = [&] { return Error(report.file + ": shape, strides and expected file do not fit together"); };
  std::int64_t count = 1, last = 0;  // the place of the last element
  std::vector<std::int64_t> packed(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 0;) {
    packed[d] = count;
    if (shape[d] < 1 || __builtin_mul_overflow(count, shape[d], &count)) throw misfit();
  }
  if (!output.contains("strides")) strides = packed;
  if (shape.empty() || strides.size() != shape.size() || expected.size() % 4 ||
      static_cast<std::uint64_t>(count) != expected.size() / 4)
    throw misfit();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t reach;
    if (strides[d] < 0 || __builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last) || last >= static_cast<std::int64_t>(actual.size()) / width)
      throw Error(report.file + ": the shape reaches beyond its end");
  }
  const double atol = tolerance_of(output, "atol", report.file), rtol = tolerance_of(output, "rtol", report.file);
  const double row_rtol = output.contains("row_rtol") ? tolerance_of(output, "row_rtol", report.file) : INFINITY;
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
    const double value = element(dtype, actual.data() + at * width),
                 wanted = load_bytes<float>(expected.data() + 4 * i);
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
  const std::string what = "the bundle", schema = text_of(member(bundle, "schema", what), "schema");
  if (schema != "tilewave-bundle/1" && schema != "tilewave-bundle/2")
    throw Error("schema is neither tilewave-bundle/1 nor tilewave-bundle/2");
  BundleReport report;
  report.arch = text_of(member(bundle, "arch", what), "arch");
  Memory memory;
  const Buffers buffers(directory, list_of(bundle, "buffers", what), memory);
  const json& outputs = list_of(bundle, "outputs", what);
  std::map<std::string, const CodeObject*> objects;
  LoadedObjects own;
  LoadedObjects& loaded = options.loaded != nullptr ? *options.loaded : own;
  constexpr std::size_t most_kept = 8;
  if (loaded.size() > most_kept) loaded.clear();
  const auto object_of = [&](const std::string& path) -> const CodeObject& {
    Bytes bytes = read_file(path);
    auto found = loaded.find(bytes);
    if (found == loaded.end()) found = loaded.emplace(std::move(bytes), load_code_object(path, options.objdump)).first;
    return found->second;
  };
  for (const json& entry : list_of(bundle, "launches", what)) {
    const auto text = [&](const char* key) { return text_of(member(entry, key, "a launch"), key); };
    const auto count = [&](const char* key) { return integer_of<std::uint32_t>(member(entry, key, "a launch"), key); };
    LaunchReport done{.name = text("name"), .kernel = text("kernel"), .counts = {}};
    Launch launch{.symbol = text("symbol"),
                  .grid_blocks = three(member(entry, "grid_blocks", "a launch"), "grid_blocks"),
                  .block = three(member(entry, "block", "a launch"), "block"),
                  .dynamic_lds_bytes = count("dynamic_lds_bytes"),
                  .kernarg = bytes_from_hex(text("kernarg_hex"))};
    if (launch.kernarg.size() != count("kernarg_bytes")) throw Error("kernarg_hex is not kernarg_bytes long");
    buffers.patch(list_of(entry, "pointers", "a launch"), launch.kernarg, "the kernel arguments");
    const std::string file = file_of(entry, "code_object", "a launch");
    if (!objects.contains(file)) objects[file] = &object_of((directory / file).string());
    const CodeObject& object = *objects.at(file);
    if (report.arch != (object.arch == Arch::gfx942 ? "gfx942" : "gfx950"))
      throw Error(file + " was compiled for another chip than " + report.arch);
    const auto start = std::chrono::steady_clock::now();
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
    for (const json& output : outputs) {
      const std::string file = file_of(output, "file", "an output");
      const std::string_view bytes(reinterpret_cast<const char*>(buffers[file].data()), buffers[file].size());
      const std::string why = tilewave::tool::write_whole_file(fs::path(options.write_outputs) / file, bytes);
      if (!why.empty()) throw Error("cannot write " + file + ": " + why);
    }
  }
  const auto judge = schema == "tilewave-bundle/1" ? compare : compare_whole;
  for (const json& output : outputs) report.outputs.push_back(judge(directory, output, buffers));
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
    entry.update(tilewave::sim::to_json(l.counts));
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
    const Bytes text = read_file(path);
    return run(directory, parse_json({text.begin(), text.end()}, path.string()), options);
  } catch (const json::exception& error) {
    throw Error(path.string() + ": " + error.what());
  }
}

}  // namespace tilewave::sim
