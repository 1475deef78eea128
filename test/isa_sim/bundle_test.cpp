// SPDX-License-Identifier: MIT
// Bundles: outputs are compared as the bundle says, and a broken bundle is one clear error.
#include "sim/programs/bundle.hpp"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "test/catch_compat.hpp"

namespace bundle_tests {
namespace {

using namespace tilewave::sim;
using nlohmann::json;
using tilewave::test::thrown_by;
namespace fs = std::filesystem;

template <class T>
void write_file(const fs::path& path, const std::vector<T>& values) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

/// A bundle of two launches: t = a + b, then c = t + a, with n = 300 elements as 3 rows of 100.
struct TwoAdds {
  fs::path directory = fs::temp_directory_path() / ("isa_sim_bundle_" + std::to_string(getpid()));
  json bundle;
  std::vector<float> a = std::vector<float>(300), b = a, expected = a;

  TwoAdds() {
    fs::remove_all(directory);
    fs::create_directories(directory);
    fs::copy_file(ISA_SIM_KERNELS "/toys_gfx950.co", directory / "toys.co");
    for (int i = 0; i < 300; ++i) {
      a[i] = 1.0f + static_cast<float>(i), b[i] = 0.5f;
      expected[i] = a[i] + b[i] + a[i];
    }
    write_file(directory / "a.bin", a);
    write_file(directory / "b.bin", b);
    const auto launch = [](const char* name, const char* x, const char* y, const char* z) {
      std::string kernarg(28 * 2, '0');
      kernarg.replace(48, 8, "2c010000");  // n = 300
      json pointers;
      int offset = 0;
      for (const char* file : {x, y, z}) {
        pointers.push_back(
            {{"offset", offset}, {"file", file}, {"file_offset", 0}, {"bytes", 1200}, {"direction", "in"}});
        offset += 8;
      }
      return json{{"name", name},
                  {"code_object", "toys.co"},
                  {"kernel", "vector_add"},
                  {"symbol", "vector_add.kd"},
                  {"grid_blocks", {2, 1, 1}},
                  {"block", {256, 1, 1}},
                  {"dynamic_lds_bytes", 0},
                  {"static_lds_bytes", 0},
                  {"kernarg_bytes", 28},
                  {"kernarg_hex", kernarg},
                  {"pointers", pointers}};
    };
    const auto buffer = [](const char* file, const char* direction) {
      return json{{"file", file}, {"bytes", 1200}, {"direction", direction}};
    };
    bundle = {
        {"schema", "tilewave-bundle/1"},
        {"arch", "gfx950"},
        {"launches", {launch("first", "a.bin", "b.bin", "t.bin"), launch("second", "t.bin", "a.bin", "c.bin")}},
        {"buffers", {buffer("a.bin", "in"), buffer("b.bin", "in"), buffer("t.bin", "scratch"), buffer("c.bin", "out")}},
        {"outputs",
         {{{"file", "c.bin"},
           {"expected", "c.expected.bin"},
           {"dtype", "f32"},
           {"shape", {3, 100}},
           {"atol", 1e-3},
           {"rtol", 0.0},
           {"row_rtol", 1e-3}}}}};
  }
  ~TwoAdds() { fs::remove_all(directory); }

  BundleReport run() const {
    write_file(directory / "c.expected.bin", expected);
    std::ofstream(directory / "bundle.json") << bundle;
    return run_bundle(directory.string(), {ISA_SIM_OBJDUMP, (directory / "written").string(), {}});
  }
};

/// The message of a bundle that was changed.
std::string error_of(const std::function<void(TwoAdds&)>& change) {
  TwoAdds two;
  change(two);
  try {
    two.run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("launches run in order on the same buffers") {
  TwoAdds two;
  const BundleReport report = two.run();
  CHECK(report.pass());
  REQUIRE(report.outputs.size() == 1);
  CHECK(report.outputs[0].elements == 300);
  CHECK(report.outputs[0].max_abs_err == 0);
  REQUIRE(report.launches.size() == 2);
  CHECK(report.launches[1].counts.loaded.at(4) == 2 * 1200);
  CHECK(report.to_json()["outputs"][0]["outside"] == 0);
  std::vector<float> written(300);
  std::ifstream(two.directory / "written" / "c.bin", std::ios::binary)
      .read(reinterpret_cast<char*>(written.data()), 1200);
  CHECK(written == two.expected);
}

TEST_CASE("elements and rows outside the tolerance are counted") {
  TwoAdds two;
  two.expected[7] += 5.0f;
  two.expected[250] = NAN;
  const BundleReport report = two.run();
  CHECK(!report.pass());
  CHECK(report.outputs[0].outside == 2);
  CHECK(report.outputs[0].rows_outside == 2);
  CHECK(std::isinf(report.outputs[0].max_abs_err));
  CHECK(holds(report.outputs[0].first, "element 7 is 16.5"));

  // A small error everywhere: every element passes, no row does.
  TwoAdds drift;
  for (float& x : drift.expected) x *= 1.0005f;
  drift.bundle["outputs"][0]["rtol"] = 1e-3;
  drift.bundle["outputs"][0]["row_rtol"] = 1e-4;
  const BundleReport drifted = drift.run();
  CHECK(drifted.outputs[0].outside == 0);
  CHECK(drifted.outputs[0].rows_outside == 3);
  CHECK(!drifted.pass());
}

TEST_CASE("equal infinities are equal") {
  TwoAdds two;
  two.a[5] = -INFINITY;
  two.expected[5] = -INFINITY;
  write_file(two.directory / "a.bin", two.a);
  two.bundle["outputs"][0].erase("row_rtol");
  CHECK(two.run().pass());
  two.expected[5] = INFINITY;
  CHECK(two.run().outputs[0].outside == 1);
}

TEST_CASE("what nobody wrote is not a number") {
  TwoAdds two;
  two.bundle["launches"].erase(1);
  CHECK(two.run().outputs[0].outside == 300);
}

TEST_CASE("outputs are found by their strides") {
  TwoAdds two;
  two.bundle["outputs"][0]["shape"] = {3, 50};
  two.bundle["outputs"][0]["strides"] = {100, 2};
  for (int i = 0; i < 150; ++i) two.expected[i] = two.expected[i / 50 * 100 + i % 50 * 2];
  two.expected.resize(150);
  CHECK(two.run().pass());
}

TEST_CASE("a buffer of a bundle holds pointers to others") {
  TwoAdds two;
  fs::copy_file(ISA_SIM_KERNELS "/memory_gfx950.co", two.directory / "memory.co");
  std::vector<int> a(64), b(64), sums(64);
  for (int i = 0; i < 64; ++i) a[i] = i, b[i] = 1000 * i, sums[i] = a[i] + b[i];
  write_file(two.directory / "a.bin", a);
  write_file(two.directory / "b.bin", b);
  write_file(two.directory / "t.bin", std::vector<int>(4));
  write_file(two.directory / "sums.bin", sums);
  const auto to = [](const char* file, int offset) { return json{{"file", file}, {"offset", offset}}; };
  json& launch = two.bundle["launches"][0];
  two.bundle["launches"].erase(1);
  launch["code_object"] = "memory.co";
  launch["symbol"] = "through_pointers.kd";
  launch["grid_blocks"] = {1, 1, 1};
  launch["block"] = {64, 1, 1};
  launch["kernarg_bytes"] = 16;
  launch["kernarg_hex"] = std::string(32, '0');
  launch["pointers"] = {to("t.bin", 0), to("c.bin", 8)};
  for (json& buffer : two.bundle["buffers"]) buffer["bytes"] = 256;
  two.bundle["buffers"][2] = {
      {"file", "t.bin"}, {"bytes", 16}, {"direction", "in"}, {"pointers", {to("a.bin", 0), to("b.bin", 8)}}};
  two.bundle["schema"] = "tilewave-bundle/2";
  two.bundle["outputs"][0] = {
      {"file", "c.bin"}, {"expected", "sums.bin"}, {"dtype", "i32"}, {"elements", 64}, {"atol", 0}, {"rtol", 0}};
  const BundleReport report = two.run();
  CHECK(report.pass());
  two.bundle["buffers"][2]["pointers"][1]["offset"] = 9;
  CHECK(thrown_by([&] { two.run(); }) == "pointer to b.bin outside the buffer");
}

TEST_CASE("a broken bundle is one clear error") {
  CHECK(error_of([](TwoAdds&) {}) == "");
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["schema"] = "other/1"; }), "schema"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle.erase("buffers"); }), "buffers"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["arch"] = "gfx942"; }), "compiled for another chip"));
  CHECK(holds(error_of([](TwoAdds& t) { fs::remove(t.directory / "b.bin"); }), "b.bin"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["buffers"][1]["bytes"] = 1204; }), "b.bin has 1200 bytes"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["launches"][0]["code_object"] = "a.bin"; }), "not an ELF file"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["launches"][0]["symbol"] = "nothing.kd"; }), "nothing.kd"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["launches"][0]["kernarg_hex"] = "00"; }), "kernarg_bytes"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["launches"][0]["pointers"][0]["file"] = "z.bin"; }), "z.bin"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["launches"][0]["pointers"][0]["offset"] = 24; }),
              "outside the kernel arg"));
  CHECK(holds(error_of([](TwoAdds& t) { t.expected.pop_back(); }), "do not fit together"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["outputs"] = json::array(); }), "no outputs"));
  // A pointer one element in: the last lane falls off the end.
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["launches"][0]["pointers"][0]["file_offset"] = 4; }),
              "nearest is a.bin"));
  CHECK(holds(error_of([](TwoAdds& t) { t.bundle["buffers"][3]["direction"] = "in"; }), "c.bin"));
}

}  // namespace bundle_tests
