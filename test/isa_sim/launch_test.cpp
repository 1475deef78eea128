// SPDX-License-Identifier: MIT
// Any kernel of any file: arguments by order, name and offset, buffers by pattern, and one clear error for a bad launch.
#include "sim/programs/launch_file.hpp"
#include "test/catch_compat.hpp"

namespace launch_tests {
namespace {

using namespace tilewave::sim;
using nlohmann::json;

FileLaunch read(const json& description) { return read_launch(description, ISA_SIM_KERNELS, ISA_SIM_OBJDUMP); }

json vector_add() {
  return {{"file", "toys_gfx942.co"},
          {"kernel", "vector_add"},
          {"grid", 4},
          {"block", json::array({256})},
          {"buffers", {{"a", {{"bytes", 4000}, {"fill", "f32"}, {"write", false}}}}},
          {"args", json::array({{{"buffer", "a"}}, {{"buffer", "a"}, {"offset", 0}}, {{"bytes", 4000}}, 1000})}};
}

std::string error_of(const json& description) {
  try {
    FileLaunch launch = read(description);
    run_launch(launch.object, launch.launch, launch.memory, {});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a launch file runs a kernel of a code object and of a fat binary") {
  for (const char* arch : {"gfx942", "gfx950"})
    for (const bool fat : {false, true}) {
      json description = vector_add();
      description["file"] = fat ? std::string("toys.hipfb") : std::string("toys_") + arch + ".co";
      description["arch"] = arch;
      FileLaunch run = read(description);
      CHECK(run.object.arch == (std::string(arch) == "gfx942" ? Arch::gfx942 : Arch::gfx950));
      run_launch(run.object, run.launch, run.memory, {});
      REQUIRE(run.buffers.size() == 2);
      const auto* a = reinterpret_cast<const float*>(run.buffers[0].second->data());
      const auto* c = reinterpret_cast<const float*>(run.buffers[1].second->data());
      int wrong = 0;
      for (int i = 0; i < 1000; ++i) wrong += c[i] != 2 * a[i] || a[i] == 0;
      CHECK(wrong == 0);
      CHECK(run.hash(0) != run.hash(1));
    }
}

TEST_CASE("pointers in a code object's data point to where it is loaded") {
  for (const char* arch : {"gfx942", "gfx950"}) {
    FileLaunch run = read({{"file", std::string("toys_") + arch + ".co"},
                           {"kernel", "pointers"},
                           {"grid", 1},
                           {"block", 64},
                           {"args", json::array({{{"bytes", 256}}, 1})}});
    CHECK_FALSE(run.object.relocations.empty());
    run_launch(run.object, run.launch, run.memory, {});
    const auto* const out = reinterpret_cast<const int*>(run.buffers[0].second->data());
    for (int i = 0; i < 64; ++i) CHECK(out[i] == (i % 2 ? 1 : 110));
  }
}

TEST_CASE("a buffer holds pointers to others") {
  for (const char* arch : {"gfx942", "gfx950"}) {
    json description = {{"file", std::string("memory_") + arch + ".co"},
                        {"kernel", "through_pointers"},
                        {"grid", 1},
                        {"block", 64},
                        {"buffers", {{"z", {{"bytes", 512}, {"fill", "iota"}}}}},
                        {"args", json::array({{{"bytes", 16}, {"fill", "pointers:z,z+256"}}, {{"bytes", 256}}})}};
    FileLaunch run = read(description);
    run_launch(run.object, run.launch, run.memory, {});
    const auto* const out = reinterpret_cast<const int*>(run.buffers[2].second->data());
    for (int i = 0; i < 64; ++i) CHECK(out[i] == 64 + 2 * i);
    const auto said = [&](const char* fill, const char* part) {
      description["args"][0]["fill"] = fill;
      INFO(fill << ": " << error_of(description));
      CHECK(error_of(description).find(part) != std::string::npos);
    };
    said("pointers:z,z,z", "too few for its pointers");
    said("pointers:y,z", "no buffer is named y");
    said("pointers:z,z+x", "offset of a pointer is no number");
    said("pointers:", "points to nothing");
    said("pointers:z,z+512", "outside every buffer");
  }
  CHECK(argument_from_text("t=buffer:16:pointers:a,b+4") ==
        json{{"name", "t"}, {"value", {{"bytes", 16}, {"fill", "pointers:a,b+4"}}}});
}

TEST_CASE("arguments are named, or placed by offset, or come as text") {
  const std::string names = list_kernels(read(vector_add()).object);
  CHECK(names.find("vector_add") != std::string::npos);
  json description = vector_add();
  description["args"] = json::object({{"@0", {{"u64", 7}}}, {"@24", {{"hex", "0a0b"}}}});
  const FileLaunch placed = read(description);
  CHECK(placed.launch.kernarg[0] == 7);
  CHECK(placed.launch.kernarg[25] == 0x0b);
  CHECK(argument_from_text("buffer:64:bf16") == json{{"bytes", 64}, {"fill", "bf16"}});
  CHECK(argument_from_text("n=f32:1.5") == json{{"name", "n"}, {"value", {{"f32", 1.5}}}});
  CHECK(argument_from_text("12") == json(12));
}

TEST_CASE("hidden arguments describe the launch") {
  CodeObject object;
  object.kernels["k.kd"].kernarg_bytes = 64;
  object.arguments["k.kd"] = {{"", "by_value", 0, 8},
                              {"", "hidden_block_count_y", 8, 4},
                              {"", "hidden_group_size_x", 12, 2},
                              {"", "hidden_grid_dims", 14, 2},
                              {"", "hidden_dynamic_lds_size", 16, 4}};
  const auto segment = hidden_arguments(object, {"k.kd", {3, 5, 1}, {192, 1, 1}, 1024, {}});
  const auto at = [&](std::size_t i) { return segment[i] | segment[i + 1] << 8; };
  CHECK(at(8) == 5);
  CHECK(at(12) == 192);
  CHECK(at(14) == 2);
  CHECK(at(16) == 1024);
}

TEST_CASE("a bad launch is one clear error") {
  CHECK(error_of(vector_add()).empty());
  struct Broken {
    const char* field;
    json value;
    const char* said;
  };
  for (const Broken& b :
       {Broken{"kernel", "no_such", "has no kernel no_such"},
        Broken{"file", "none.co", "cannot read"},
        Broken{"args", json::array({1, 2, 3, 4, 5}), "more arguments"},
        Broken{"args", json::array({1, 2}), "has 4 arguments, given 2"},
        Broken{"args", {{"zz", 1}}, "no argument zz"},
        Broken{"args", json::array({{{"bytes", 8}, {"fill", "prime"}}, 1, 1, 1}), "unknown fill prime"},
        Broken{"args", json::array({{{"f31", 8}}, 1, 1, 1}), "unknown kind f31"},
        Broken{"grid", json::array({1, 1, 1, 1}), "one to three"},
        Broken{"arch", "gfx950", "another chip"},
        Broken{"grid", -1, "no whole number in range: -1"},
        Broken{"grid", 0, "grid has a 0"},
        Broken{"grid", 1.5, "no whole number in range: 1.5"},
        Broken{"grid", "4", "no whole number"},
        Broken{"grid", 4294967295u, "2^32 work-items"},
        Broken{"block", json::array({64, 64}), "1 to 1024"},
        Broken{"dynamic_lds", 4294967295u, "more LDS"},
        Broken{"arg", 1, "unknown key arg"},
        Broken{"args", json::array(), "has 4 arguments, given 0"},
        Broken{"args", json::array({{{"bytes", -1}}, 1, 1, 1}), "bytes of buffer argument 1 is no whole number"},
        Broken{"args", json::array({1, 1, 1, 1ull << 32}), "too few for 4294967296"},
        Broken{"args", json::array({1, 1, 1, {{"u32", -1}}}), "no whole number in range: -1"},
        Broken{"args", json::array({1, 1, 1, {{"hex", "0102030405"}}}), "has 4 bytes, given 5"},
        Broken{"args", json::array({1, 1, 1, {{"hex", "01"}}}), "has 4 bytes, given 1"},
        Broken{"args", json::array({1, 1, 1, nullptr}), "a number or an object is expected"},
        Broken{"args", {{"@-8", 1}}, "offset of an argument is no number in range"},
        Broken{"args", json::array({{{"bytes", 8}, {"fill", "byte:256"}}, 1, 1, 1}), "byte of a fill"},
        Broken{"buffers", {{"a", {{"size", 8}}}}, "buffer a has an unknown key size"}}) {
    json description = vector_add();
    description[b.field] = b.value;
    INFO(b.said << ": " << error_of(description));
    CHECK(error_of(description).find(b.said) != std::string::npos);
  }
}

TEST_CASE("a bad argument of the command line is one clear error") {
  for (const char* text : {"", "foo", "f32:", "f32:x", "u32:1.5x", "buffer:-5", "buffer:99999999999999999999"}) {
    INFO(text);
    CHECK_THROWS_AS(argument_from_text(text), Error);
  }
  CHECK(argument_from_text("0x10") == json(16));
  CHECK(argument_from_text("f32:-inf") == json{{"f32", "-inf"}});
}

TEST_CASE("a truncated bundle is an error") {
  std::vector<std::uint8_t> bundle(40, 0);
  std::memcpy(bundle.data(), "__CLANG_OFFLOAD_BUNDLE__", 24);
  bundle[24] = 1;
  CHECK_THROWS_AS(images_of_bundle(bundle.data(), bundle.size()), Error);
}

}  // namespace launch_tests
