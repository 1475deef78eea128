// SPDX-License-Identifier: MIT
// Bundles, launch files and code objects that are wrong in one place, of every kind a grammar has: each is read, or is one
// Error of one line. The disassembly is written down beforehand: what is broken here is never code.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>

#include "sim/programs/bundle.hpp"
#include "sim/programs/json_values.hpp"
#include "sim/programs/launch_file.hpp"
#include "test/catch_compat.hpp"
#include "toy.hpp"

namespace readers_tests {
namespace {

using namespace tilewave::sim;
using nlohmann::json;
namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// A folder with a bundle of one launch, a launch file for the same, and a disassembly that any code object gets.
struct Folder {
  const fs::path path = fs::temp_directory_path() / ("isa_sim_readers_" + std::to_string(getpid()));
  const Bytes object = bytes_of(ISA_SIM_KERNELS "/toys_gfx950.co");
  const std::string objdump = "cat '" + (path / "text").string() + "' #";
  json bundle, launch;

  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
    write(path / "toys.co", object);
    const std::string command = ISA_SIM_OBJDUMP " -d --disassemble-symbols=vector_add '" + (path / "toys.co").string() +
                                "' >'" + (path / "text").string() + "'";
    REQUIRE(std::system(command.c_str()) == 0);
    for (const char* name : {"a.bin", "c.expected.bin"}) write(path / name, Bytes(256));
    json pointers;
    for (const auto& [offset, file] : {std::pair{0, "a.bin"}, {8, "a.bin"}, {16, "c.bin"}})
      pointers.push_back({{"offset", offset}, {"file", file}, {"file_offset", 0}});
    const auto buffer = [](const char* file, const char* direction, int bytes) {
      return json{{"file", file}, {"bytes", bytes}, {"direction", direction}};
    };
    json table = buffer("t.bin", "out", 16);
    table["pointers"] = json::array({{{"offset", 8}, {"file", "a.bin"}}});
    bundle = {{"schema", "tilewave-bundle/2"},
              {"arch", "gfx950"},
              {"launches", json::array({{{"name", "add"},
                                         {"code_object", "toys.co"},
                                         {"kernel", "vector_add"},
                                         {"symbol", "vector_add.kd"},
                                         {"grid_blocks", {1, 1, 1}},
                                         {"block", {64, 1, 1}},
                                         {"dynamic_lds_bytes", 0},
                                         {"kernarg_bytes", 28},
                                         {"kernarg_hex", std::string(48, '0') + "40000000"},
                                         {"pointers", pointers}}})},
              {"buffers", {buffer("a.bin", "in", 256), buffer("c.bin", "out", 256), table}},
              {"outputs", json::array({{{"file", "c.bin"},
                                        {"expected", "c.expected.bin"},
                                        {"dtype", "f32"},
                                        {"elements", 64},
                                        {"atol", 0},
                                        {"rtol", 0}}})}};
    launch = {
        {"file", "toys.co"},
        {"kernel", "vector_add"},
        {"arch", "gfx950"},
        {"grid", {1, 1}},
        {"block", 64},
        {"dynamic_lds", 0},
        {"buffers",
         {{"a", {{"bytes", 256}, {"fill", "f32"}, {"write", false}}},
          {"t", {{"bytes", 16}, {"fill", "pointers:a,a+8"}}}}},
        {"args", json::array({{{"buffer", "a"}, {"offset", 0}}, {{"buffer", "a"}}, {{"bytes", 256}}, {{"i32", 64}}})}};
  }
  ~Folder() { fs::remove_all(path); }

  void run(const json& bundle_of_test) const { run_text(bundle_of_test.dump()); }
  void run_text(const std::string& text) const {
    std::ofstream(path / "bundle.json") << text;
    const BundleReport report = run_bundle(path.string(), {objdump, "", {}});
    CHECK(report.outputs.size() > 0);
  }
  void run_launch_file(const json& description) const {
    FileLaunch read = read_launch(description, path.string(), objdump);
    run_launch(read.object, read.launch, read.memory, {});
  }
  void load(const Bytes& code) const {
    write(path / "broken.co", code);
    const CodeObject read = load_any_object((path / "broken.co").string(), "", objdump);
    list_kernels(read);
    for (const auto& [symbol, kernel] : read.kernels) hidden_arguments(read, {.symbol = symbol, .kernarg = {}});
  }
};

/// Nothing, or what an Error says, which is one line. Any other exception fails the test.
std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(!text.empty());
    CHECK(text.find('\n') == text.npos);
    CHECK(text.size() < 1000);
    return text;
  }
  return "";
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

json nested(int depth) {
  json value = 1;
  for (int i = 0; i < depth; ++i) value = json::array({std::move(value)});
  return value;
}

/// Values that some reader somewhere takes for another.
json hostile(test::Patterns& random) {
  // None that a machine has as many bytes of memory as.
  constexpr std::uint64_t one = 1, numbers[] = {0,         1,         7,        300,     one << 48, (one << 48) + 1,
                                                one << 62, one << 63, ~one - 6, ~one + 1};
  constexpr const char* texts[] = {"",           "f128",         "nan",   "in",        "out",
                                   "../a.bin",   "/etc/passwd",  "a.bin", "pointers:", "pointers:a,a,a",
                                   "pointers:b", "file:toys.co", "0",     "00000000"};
  if (random.next() % 3 == 0) return numbers[random.next() % std::size(numbers)];
  if (random.next() % 2 == 0) return texts[random.next() % std::size(texts)];
  const json values[] = {-1,
                         -8,
                         1.5,
                         1e308,
                         nullptr,
                         true,
                         json::array(),
                         json::object(),
                         {1, 1, 1},
                         {1, -1, 1.5},
                         {{"bytes", 8}},
                         nested(60),
                         nested(200)};
  return values[random.next() % std::size(values)];
}

/// One value of the document, somewhere, becomes another, goes, or comes twice.
json changed(const json& document, test::Patterns& random) {
  json flat = document.flatten();
  std::vector<json::json_pointer> places;
  for (const auto& [at, value] : flat.items())
    for (json::json_pointer p(at); !p.empty(); p = p.parent_pointer()) places.push_back(p);
  const json::json_pointer place = places[random.next() % places.size()];
  json made = document;
  json& parent = made[place.parent_pointer()];
  switch (random.next() % 5) {
    case 0:
      if (parent.is_object())
        parent.erase(place.back());
      else
        parent.erase(std::stoul(place.back()));
      break;
    case 1:
      if (parent.is_array())
        parent.push_back(document[place]);
      else
        parent["unknown"] = document[place];
      break;
    default: made[place] = hostile(random);
  }
  return made;
}

template <class T>
void put(Bytes& bytes, std::size_t at, T value) {
  REQUIRE(at + sizeof value <= bytes.size());
  std::memcpy(&bytes[at], &value, sizeof value);
}

/// The code object with its first note replaced by metadata of these bytes of MessagePack.
Bytes with_metadata(Bytes object, const Bytes& packed) {
  const std::size_t at = object.size();
  const auto add = [&object](std::uint32_t word) {
    for (int i = 0; i < 4; ++i) object.push_back(static_cast<std::uint8_t>(word >> 8 * i));
  };
  add(4), add(static_cast<std::uint32_t>(packed.size())), add(32), add(0);
  object.insert(object.end(), packed.begin(), packed.end());
  const auto headers = load_bytes<std::uint64_t>(&object[32]);
  for (std::size_t i = 0; i < load_bytes<std::uint16_t>(&object[56]); ++i) {
    const std::size_t header = headers + 56 * i;
    constexpr std::uint32_t pt_note = 4;
    if (load_bytes<std::uint32_t>(&object[header]) != pt_note) continue;
    put<std::uint64_t>(object, header + 8, at);
    put<std::uint64_t>(object, header + 32, object.size() - at);
  }
  return object;
}

}  // namespace

TEST_CASE("a bundle that is right is read, and so are its launch file and object") {
  const Folder folder;
  CHECK(error_of([&] { folder.run(folder.bundle); }) == "");
  CHECK(error_of([&] { folder.run_launch_file(folder.launch); }) == "");
  CHECK(error_of([&] { folder.load(folder.object); }) == "");
}

TEST_CASE("numbers of a bundle are those of its fields") {
  const Folder folder;
  struct Broken {
    const char* place;
    json value;
    const char* said;
  };
  for (const Broken& b :
       {Broken{"/launches/0/pointers/0/offset", -8, "no whole number in range: -8"},
        Broken{"/launches/0/pointers/0/offset", ~std::uint64_t{0} - 7, "outside the kernel arguments"},
        Broken{"/launches/0/pointers/0/offset", 21, "outside the kernel arguments"},
        Broken{"/launches/0/pointers/0/file_offset", -8, "no whole number in range: -8"},
        Broken{"/buffers/2/pointers/0/offset", ~std::uint64_t{0} - 7, "outside the buffer"},
        Broken{"/buffers/2/pointers/0/offset", 9, "outside the buffer"},
        Broken{"/outputs/0/elements", std::uint64_t{1} << 62, "do not fit the buffer"},
        Broken{"/outputs/0/elements", -1, "no whole number"},
        Broken{"/launches/0/grid_blocks/0", 1.5, "grid_blocks is no whole number in range: 1.5"},
        Broken{"/launches/0/block/1", -1, "block is no whole number in range: -1"},
        Broken{"/launches/0/dynamic_lds_bytes", std::uint64_t{1} << 40,
               "dynamic_lds_bytes is no whole number in range"},
        Broken{"/launches/0/dynamic_lds_bytes", 1 << 20, "more LDS"},
        Broken{"/outputs/0/dtype", "f128", "unknown dtype"}, Broken{"/outputs/0/atol", -1, "no tolerance"},
        Broken{"/outputs/0/rtol", "nan", "no tolerance"},
        Broken{"/buffers/1/bytes", std::uint64_t{1} << 60, "more than this machine's"},
        Broken{"/buffers/0/file", "../a.bin", "no file of the bundle"},
        Broken{"/outputs/0/expected", "/etc/passwd", "no file of the bundle"},
        Broken{"/schema", nested(100), "nested deeper than 64"}}) {
    json bundle = folder.bundle;
    bundle[json::json_pointer(b.place)] = b.value;
    const std::string error = error_of([&] { folder.run(bundle); });
    INFO(b.place << ": " << error);
    CHECK(holds(error, b.said));
  }
  json strided = folder.bundle;
  strided["schema"] = "tilewave-bundle/1";
  strided["outputs"][0]["shape"] = {2, 32};
  CHECK(error_of([&] { folder.run(strided); }) == "");
  for (const json& strides : {json{std::int64_t{1} << 62, 1}, json{-32, 1}, json{33, 1}}) {
    strided["outputs"][0]["strides"] = strides;
    CHECK(holds(error_of([&] { folder.run(strided); }), "beyond its end"));
  }
  strided["outputs"][0]["shape"] = {std::int64_t{1} << 32, std::int64_t{1} << 32};
  CHECK(holds(error_of([&] { folder.run(strided); }), "do not fit together"));
}

TEST_CASE("documents nested without end are refused") {
  const Folder folder;
  constexpr std::size_t deep = 100'000;
  for (const std::string& text :
       {std::string(deep, '['), "{\"buffers\":" + std::string(deep, '[') + std::string(deep, ']') + "}",
        "{\"a\":" + std::string(deep, '[')}) {
    CHECK(holds(error_of([&] { folder.run_text(text); }), "nested deeper"));
    CHECK(holds(error_of([&] { parse_json(text, "it"); }), "nested deeper"));
  }
  CHECK(holds(error_of([&] { folder.run_text("{\"a\": "); }), "is no JSON"));
  Bytes arrays(deep, 0x91), maps;  // of one element each
  for (std::size_t i = 0; i < deep; ++i) maps.insert(maps.end(), {0x81, 0xa1, 'a'});
  for (const Bytes& packed : {arrays, maps}) {
    const Bytes object = with_metadata(folder.object, packed);
    CHECK(holds(error_of([&] { folder.load(object); }), "nested deeper"));
  }
  const Bytes damaged = with_metadata(folder.object, {0x81, 0xa1});
  CHECK(holds(error_of([&] { folder.load(damaged); }), "is damaged"));
}

TEST_CASE("every document that a grammar of mistakes makes is read or refused") {
  const Folder folder;
  test::Patterns random(31);
  int refused = 0;
  constexpr int tries = 250;
  for (int i = 0; i < tries; ++i) {
    const json bundle = changed(folder.bundle, random), launch = changed(folder.launch, random);
    INFO(bundle.dump());
    refused += !error_of([&] { folder.run(bundle); }).empty();
    INFO(launch.dump());
    refused += !error_of([&] { folder.run_launch_file(launch); }).empty();
  }
  CHECK(refused > tries);
  CHECK(refused < 2 * tries);
}

TEST_CASE("every code object that a grammar of mistakes makes is read or refused") {
  const Folder folder;
  test::Patterns random(32);
  const Bytes& object = folder.object;
  struct Field {
    std::size_t at;
    int bytes;
  };
  std::vector<Field> fields{{32, 8}, {40, 8}, {56, 2}, {60, 2}};
  const auto add = [&](std::size_t header, std::initializer_list<int> words, int bytes) {
    for (const int at : words) fields.push_back({header + static_cast<std::size_t>(at), bytes});
  };
  const auto programs = load_bytes<std::uint64_t>(&object[32]), sections = load_bytes<std::uint64_t>(&object[40]);
  for (std::size_t i = 0; i < load_bytes<std::uint16_t>(&object[56]); ++i) {
    add(programs + 56 * i, {0}, 4);
    add(programs + 56 * i, {8, 16, 32, 40}, 8);
  }
  for (std::size_t i = 0; i < load_bytes<std::uint16_t>(&object[60]); ++i) {
    const std::size_t section = sections + 64 * i;
    add(section, {4, 40}, 4);
    add(section, {24, 32}, 8);
    constexpr std::uint32_t dynsym = 11, rela = 4;
    const auto type = load_bytes<std::uint32_t>(&object[section + 4]);
    if (type != dynsym && type != rela) continue;
    const auto offset = load_bytes<std::uint64_t>(&object[section + 24]);
    for (std::size_t entry = 0; entry < 4 * 24; entry += 24) {
      add(offset + entry, {0}, 4);
      add(offset + entry, {8, 16}, 8);
    }
    if (type != dynsym) continue;
    for (std::size_t entry = 24; entry < 4 * 24; entry += 24) {  // descriptors, of which the file has the addresses
      const auto at = load_bytes<std::uint64_t>(&object[offset + entry + 8]);
      if (at + 64 > object.size()) continue;
      add(at, {0, 4, 8, 44, 48, 52, 56}, 4);
      add(at, {16}, 8);
    }
  }
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t values[] = {0,
                                    1,
                                    4,
                                    11,
                                    12,
                                    0x7fff,
                                    0xffff,
                                    0x7fffffff,
                                    0xffffffff,
                                    std::uint64_t{1} << 40,
                                    std::uint64_t{1} << 62,
                                    ~std::uint64_t{0} - 63,
                                    ~std::uint64_t{0} - 7,
                                    ~std::uint64_t{0},
                                    object.size(),
                                    object.size() - 1,
                                    object.size() - 12,
                                    random.next()};
    Bytes made = object;
    const Field field = fields[random.next() % fields.size()];
    const std::uint64_t value = values[random.next() % std::size(values)];
    std::memcpy(&made[field.at], &value, static_cast<std::size_t>(field.bytes));
    INFO("byte " << field.at << " is " << value);
    refused += !error_of([&] { folder.load(made); }).empty();
  }
  CHECK(refused > 50);
  // Metadata: what is asked of a kernel, with values of another kind.
  const json argument{{".name", "n"}, {".value_kind", "hidden_block_count_x"}, {".offset", 24}, {".size", 4}};
  const json note{
      {"amdhsa.kernels", json::array({{{".symbol", "vector_add.kd"}, {".args", json::array({argument})}}})}};
  refused = 0;
  for (int i = 0; i < 150; ++i) {
    const json made = changed(note, random);
    INFO(made.dump());
    refused += !error_of([&] { folder.load(with_metadata(object, json::to_msgpack(made))); }).empty();
  }
  CHECK(refused > 25);
}

TEST_CASE("a disassembler that does not end is ended") {
  const Folder folder;
  const std::string path = (folder.path / "toys.co").string();
  setenv("ISA_SIM_OBJDUMP_SECONDS", "1", 1);
  const auto start = std::chrono::steady_clock::now();
  CHECK(holds(error_of([&] { load_code_object(path, "sleep 100; true"); }), "ended after 1 seconds"));
  CHECK(holds(error_of([&] { load_code_object(path, "yes; true"); }), "ended after 1 seconds"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(50));
  setenv("ISA_SIM_OBJDUMP_SECONDS", "soon", 1);
  CHECK(holds(error_of([&] { load_code_object(path, folder.objdump); }), "no number of seconds"));
  unsetenv("ISA_SIM_OBJDUMP_SECONDS");
  CHECK(holds(error_of([&] { load_code_object(path, "false"); }), "failed: false"));
  CHECK(holds(error_of([&] { load_code_object(path, "true"); }), "holds no code"));
}

}  // namespace readers_tests
