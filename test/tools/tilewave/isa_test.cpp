// SPDX-License-Identifier: MIT
// Code objects made here, with what a parser looks at and nothing else; listings as llvm-objdump and nvdisasm print them.

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/code_object.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/isa/report.hpp"

namespace isa_tests {
namespace {
using namespace tilewave::tool;
using tilewave::test::amd_object;
using tilewave::test::fuzz;
using tilewave::test::put;
using tilewave::test::status_of;

std::string bundle(const std::string& object) {
  const std::string id = "hipv4-amdgcn-amd-amdhsa--gfx950";
  std::string b = "__CLANG_OFFLOAD_BUNDLE__";
  put<std::uint64_t>(b, 24, 1);
  put<std::uint64_t>(b, 32, 128), put<std::uint64_t>(b, 40, object.size()), put<std::uint64_t>(b, 48, id.size());
  b += id;
  b.resize(128, '\0');
  return "a program " + b + object;
}

// A loop of four that is entered at its head, skips a mask most of the time, and repeats.
const std::string amd = R"(
0000000000001b00 <k>:
	s_mov_b32 s0, 0                // 000000001B00: BE800080
	global_load_dwordx4 v[0:3], v4, s[0:1]   // 000000001B04: DC5C8000 00000004
	v_mfma_f32_16x16x32_bf16 a[0:3], v[0:3], v[4:7], a[0:3]  // 000000001B0C: D3B58000 04020900
	s_cbranch_scc1 1               // 000000001B14: BF850001 <k+0x1c>
	v_max_f32_e32 v8, v8, v9       // 000000001B18: 16101308
	s_waitcnt vmcnt(0)             // 000000001B1C: BF8C0F70
	s_cbranch_scc0 65528           // 000000001B20: BF84FFF8 <k+0x4>
	s_endpgm                       // 000000001B24: BF810000
)";
const std::string cuda = R"(	.section	.text._Z1kv,"ax",@progbits
_Z1kv:
.text._Z1kv:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_4:
        /*0010*/                   LDG.E.128 R4, desc[UR6][R4.64] ;
        /*0020*/                   FADD R6, R7, R6 ;
        /*0030*/               @P1 BRA `(.L_x_4) ;
        /*0040*/                   EXIT ;
)";
}  // namespace

TEST_CASE("a code object says what its kernels reserve, alone and in a program's bundle") {
  const std::string object = amd_object(97, 40000);
  for (const std::string& file : {object, bundle(object)}) {
    const auto found = parse_binary(file, "file");
    REQUIRE(found.size() == 1);
    CHECK(found[0].arch == "gfx950");
    CHECK(found[0].compiler == "clang 22");
    REQUIRE(found[0].kernels.size() == 1);
    const KernelNeeds& k = found[0].kernels[0];
    CHECK(k.symbol == "k");
    CHECK((k.vgprs == 97 && k.allocated == 104 && k.sgprs == 40 && k.lds_bytes == 40000 && k.block_lanes == 256));
    CHECK((k.address == 1900 && k.code_bytes == 16));
  }
  std::string message;
  CHECK(status_of([] { parse_binary("CCOB..", "f"); }, &message) == Exit::usage);
  CHECK(message.find("--no-offload-compress") != message.npos);
  CHECK(status_of([] { parse_binary("", "f"); }) == Exit::usage);
}

TEST_CASE("waves per SIMD, what limits them, and the next step") {
  KernelNeeds k{.symbol = "k", .vgprs = 97, .sgprs = 40, .allocated = 104, .lds_bytes = 40000, .block_lanes = 256};
  const Waves w = waves_of(k, "gfx950");
  CHECK(w.per_simd == 4);  // 163840 / 40960 blocks of a wave each on a SIMD, and 512 / 104
  REQUIRE(w.limits.size() == 4);
  for (const Limit& limit : w.limits) {
    if (limit.what == "registers") CHECK((limit.waves == 4 && limit.at_most == 96 && limit.wanted == 5));
    if (limit.what == "LDS") CHECK((limit.needed == 40960 && limit.waves == 4 && limit.at_most == 32000));
    if (limit.what == "SGPRs") CHECK((limit.waves == 8 && limit.wanted == 0));
  }
  CHECK(waves_of(k, "gfx942").per_simd == 1);
  CHECK(waves_of(k, "gfx950", 20000).limits.front().what == "LDS");
  k.block_lanes = 128, k.lds_bytes = 76 * 1024, k.allocated = 64;
  const Waves hopper = waves_of(k, "sm90");
  CHECK((hopper.per_simd == 3 && hopper.limits.front().what == "LDS"));  // 228 KiB: three blocks of four warps
  CHECK(hopper.limits.front().at_most == 57 * 1024);
}

TEST_CASE("the steady loop of a listing and the way once round it") {
  const Listing lines = parse_amd_listing(amd);
  REQUIRE(lines.size() == 8);
  CHECK(lines[3].target == 0x1b1c);
  CHECK(lines[6].target == 0x1b04);
  const Listing loop = steady_loop(lines), path = steady_path(loop);
  CHECK(loop.size() == 6);
  REQUIRE(path.size() == 5);
  const Mix mix = mix_of(path);
  CHECK((mix.matrix.at("f32_16x16x32_bf16") == 1 && mix.loads.at(16) == 1 && mix.kinds.at("wait") == 1));
  CHECK(mix.kinds.count("vector") == 0);

  const auto kernels = parse_cuda_listing(cuda);
  REQUIRE(kernels.count("_Z1kv") == 1);
  const Listing hopper = steady_loop(kernels.at("_Z1kv"));
  REQUIRE(hopper.size() == 3);
  CHECK((hopper[0].mnemonic == "LDG.E.128" && load_bytes(hopper[0].mnemonic) == 16));
  CHECK(steady_loop(parse_amd_listing("\ts_endpgm // 000000001B24: BF810000\n")).empty());
}

TEST_CASE("loops are set side by side with the fewest changes") {
  const auto steps = aligned({"a", "b", "c"}, {"a", "x", "c", "d"});
  std::vector<std::pair<int, int>> wanted{{0, 0}, {1, -1}, {-1, 1}, {2, 2}, {-1, 3}};
  CHECK(steps == wanted);
}

TEST_CASE("code objects and listings may hold anything") {
  const std::string object = amd_object(97, 40000);
  CHECK(fuzz(object, [](const std::string& text) { parse_binary(text, "f"); }) > 0);
  CHECK(fuzz(bundle(object), [](const std::string& text) { parse_binary(text, "f"); }) > 0);
  CHECK(fuzz(amd, [](const std::string& text) { steady_path(steady_loop(parse_amd_listing(text))); }) > 0);
  CHECK(fuzz(cuda, [](const std::string& text) {
          for (const auto& [name, lines] : parse_cuda_listing(text)) steady_path(steady_loop(lines));
        }) > 0);
}

}  // namespace isa_tests
