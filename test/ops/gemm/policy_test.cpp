// SPDX-License-Identifier: MIT
// Tests of the laws of GEMM policies: all lists are legal on their chip, and an illegal policy gets its reason.
#include <string_view>

#include "entries/gemm.hpp"
#include "test/catch_compat.hpp"
#if !TILEWAVE_ON_GPU_COMPILER
#include "tilewave/arch/host/backend.hpp"
#endif
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave::test::policy {
namespace {

constexpr GemmPath direct = GemmPath::direct, registers = GemmPath::weights_in_registers;

std::string_view why_not(ArchId arch, const GemmPolicy& policy, const GemmSpec& spec = {}) {
  return gemm_policy_status(arch, spec, policy).reason;
}

template <class F>
void each_entry(const F& f) {
  for (const auto entries : {all_gemm_entries(), all_gemm_feature_entries(), all_gemm_grouped_entries(),
                             all_gemm_gated_entries(), all_gemm_int4_entries(), all_gemm_mx_entries()}) {
    for (const GemmEntry* const e : entries) {
      INFO(name_of(e->arch) << " " << name_of(e->spec) << " " << name_of(e->policy));
      f(*e);
    }
  }
}

TEST_CASE("every entry's policy keeps all laws of its chip") {
  each_entry([](const GemmEntry& e) { CHECK(why_not(e.arch, e.policy, gemm_built_spec(e.arch, e.spec)) == ""); });
}

TEST_CASE("the laws know how much shared memory a tensor kernel takes") {
  each_entry([](const GemmEntry& e) {
    if (e.policy.path == GemmPath::tensor) CHECK(detail::gemm_tensor_shared_bytes(e.spec, e.policy) == e.lds_bytes);
  });
}

TEST_CASE("a refused policy of sm90 says which law it breaks") {
  constexpr ArchId sm90 = ArchId::sm90;
  CHECK(why_not(sm90, {.stages = 3}) == "");
  CHECK(why_not(sm90, {.waves_rows = 1 << 16, .waves_columns = 1 << 16}) ==  // whose product is 0 in 32 bits
        "waves, clusters and splits go up to 1024");
  CHECK(why_not(sm90, {.rows = 96, .stages = 3}) == "rows are a multiple of 64 for each wave group along waves_rows");
  CHECK(why_not(sm90, {.stages = 4}) ==
        "stages and boxes of output exceed shared memory, of which waves_per_simd blocks have a part");
  CHECK(why_not(sm90, {.stages = 0}) == "depth_bytes and stages must be positive");
  CHECK(why_not(sm90, {.columns = 168, .stages = 3}) == "products are 8 or a multiple of 16 wide for a wave group");
  CHECK(why_not(sm90, {.stages = 3, .cluster = 2, .splits = 2}) ==
        "blocks of a cluster share boxes of B, those of A or the K of a tile: of cluster, cluster_columns and splits "
        "two are 1");
  CHECK(why_not(sm90, {.columns = 96, .stages = 6, .cluster_columns = 2}) == "");
  CHECK(why_not(sm90, {.columns = 96, .stages = 6, .cluster = 2, .cluster_columns = 2}) ==
        "blocks of a cluster share boxes of B, those of A or the K of a tile: of cluster, cluster_columns and splits "
        "two are 1");
  CHECK(
      why_not(sm90, {.rows = 24, .columns = 64, .stages = 6, .waves_rows = 1, .swapped = true, .cluster_columns = 2}) ==
      "each block of a cluster along N fetches a multiple of 8 rows of the tile");
  CHECK(why_not(sm90, {.columns = 128, .stages = 4, .cluster_columns = 0}) ==
        "cluster, cluster_columns and splits must be positive");
  CHECK(why_not(sm90, {.stages = 3, .splits = 2, .stream = true}) ==
        "stream-K shares K already: cluster and splits are 1");
  const GemmPolicy pingpong{.columns = 176, .stages = 5, .waves_rows = 1, .pingpong = true};
  CHECK(why_not(sm90, pingpong) == "");
  GemmPolicy swapped = pingpong;
  swapped.columns = 128, swapped.swapped = true;
  CHECK(why_not(sm90, swapped) ==
        "pingpong: a wave group has a whole tile, not swapped, and K is not shared; weights are not int4");
  const GemmSpec blocks{.a = sm90_facts.fp8, .b = sm90_facts.fp8, .scale = Scaling::per_block};
  CHECK(why_not(sm90, {.columns = 128, .stages = 5, .waves_rows = 1, .pingpong = true}, blocks) ==
        "pingpong: sums stay in the matrix unit, since only one wave group multiplies at a time");
  const GemmPolicy late{.stages = 4, .late = true};
  CHECK(why_not(sm90, late) == "");  // a fourth stage, since two boxes of output are enough
  CHECK(why_not(sm90, late, blocks) ==
        "late: sums stay in the matrix unit, tiles are not swapped, K is not shared, and there are no groups");
  CHECK(why_not(sm90, late, {.groups = GemmGroups::contiguous}) ==
        "late: sums stay in the matrix unit, tiles are not swapped, K is not shared, and there are no groups");
  CHECK(why_not(sm90, late, {.out = DType::f32}) == "late: values that wait in registers have 16 bits and no scales");
  GemmSpec quantised = blocks;
  quantised.out = sm90_facts.fp8, quantised.out_scale = Scaling::per_group, quantised.gated = true;
  GemmPolicy halves{.rows = 64, .columns = 256, .waves_rows = 1, .waves_columns = 2};
  CHECK(why_not(sm90, halves, quantised) == "");
  halves.rows = 128, halves.stages = 3;
  CHECK(why_not(sm90, halves, quantised) ==
        "per_group: each wave group has a multiple of 128 columns of C, or in 64 rows each of two half");
  CHECK(why_not(sm90, {.path = direct}) == "this architecture has the paths tensor and weights_in_registers");
}

TEST_CASE("gates of int4 lie beside their ups in a lane where a wave group has 64 rows of them") {
  GemmSpec gated{.b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128};
  gated.activation = ActivationKind::silu, gated.gated = true;
  const GemmPolicy pairs{.rows = 256, .columns = 128, .stages = 4, .swapped = true};
  CHECK(why_not(ArchId::sm90, pairs, gated) == "");
  constexpr const char* law =
      "gates beside their ups in a lane: a multiple of 32 rows of A for a wave group, out not quantised";
  GemmPolicy low = pairs;
  low.rows = 16, low.depth_bytes = 256;
  CHECK(why_not(ArchId::sm90, low, gated) == law);
  gated.out = sm90_facts.fp8, gated.out_scale = Scaling::per_tensor;
  CHECK(why_not(ArchId::sm90, pairs, gated) == law);
}

TEST_CASE("a refused policy of few rows says which law it breaks") {
  GemmSpec codes{.b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128};
  GemmPolicy few{.rows = 8, .columns = 64, .depth_bytes = 256, .stages = 2, .waves_rows = 1, .path = registers};
  few.waves_k = 16;
  const auto with = [&](auto change) {
    GemmPolicy p = few;
    change(p);
    return why_not(ArchId::sm90, p, codes);
  };
  CHECK(why_not(ArchId::sm90, few, codes) == "");
  CHECK(with([](GemmPolicy& p) { p.waves_k = 6; }) ==
        "few rows of int4 weights: a block's waves are a multiple of 4, for four SIMDs, up to 32");
  CHECK(with([](GemmPolicy& p) { p.waves_k = 5; }) ==
        "few rows of int4 weights: sums are added three or four at a time: waves_k is such a multiple");
  CHECK(with([](GemmPolicy& p) { p.waves_columns = 4, p.waves_k = 3; }) == "");
  CHECK(with([](GemmPolicy& p) { p.waves_columns = 3, p.waves_k = 4; }) ==
        "few rows of int4 weights: rows are a multiple of 8, columns of a strip, 16, for each wave beside another");
  CHECK(with([](GemmPolicy& p) { p.waves_rows = 2; }) ==
        "few rows of int4 weights: waves share K, or take strips side by side: waves_rows is 1");
  CHECK(with([](GemmPolicy& p) { p.waves_per_simd = 2; }) ==
        "rings and sums of all waves exceed shared memory, of which waves_per_simd blocks have a part");
  CHECK(with([](GemmPolicy& p) { p.waves_per_simd = 2, p.waves_k = 8; }) == "");
  CHECK(with([](GemmPolicy& p) { p.waves_per_simd = 4, p.waves_k = 20, p.columns = 16; }) ==
        "an SM holds at most 2048 lanes: fewer waves, or fewer blocks (waves_per_simd)");
  codes.activation = ActivationKind::silu, codes.gated = true;
  CHECK(why_not(ArchId::sm90, few, codes) == "");
  CHECK(with([](GemmPolicy& p) { p.columns = 48; }) ==
        "few rows of int4 weights, gated: columns are a multiple of 32, a strip of gates and its ups");
  CHECK(with([](GemmPolicy& p) { p.columns = 32 * 9, p.waves_k = 4, p.stages = 1; }) ==
        "few rows of int4 weights: a wave copies scales of at most eight strips at a time");
  codes.zero_points = true;
  CHECK(why_not(ArchId::sm90, few, codes) == "");
  codes.groups = GemmGroups::contiguous;
  CHECK(why_not(ArchId::sm90, few, codes) == "few rows of int4 weights: scale_k is 128, without groups");
}

TEST_CASE("a refused policy of few rows under weights of 16 or 8 bits says which law it breaks") {
  GemmPolicy few{.rows = 8, .columns = 32, .depth_bytes = 64, .stages = 2, .waves_rows = 1, .path = registers};
  few.waves_k = 8;
  const auto with = [&](auto change, const GemmSpec& spec = {}) {
    GemmPolicy p = few;
    change(p);
    return why_not(ArchId::sm90, p, spec);
  };
  const auto same = [](GemmPolicy&) {};
  const GemmSpec rows{.a = sm90_facts.fp8, .b = sm90_facts.fp8, .scale = Scaling::per_row};
  for (const GemmSpec& spec : {GemmSpec{}, rows}) CHECK(with(same, spec) == "");
  GemmSpec refused = rows;
  refused.scale = Scaling::per_block;
  CHECK(with(same, refused) ==
        "few rows: one product of bf16, f16 or fp8, nt and row-major, without scales of blocks or groups");
  CHECK(with([](GemmPolicy& p) { p.splits = 2; }) ==
        "few rows: not swapped, no stream, no pingpong, not late, one of cluster and splits");
  CHECK(with([](GemmPolicy& p) { p.waves_rows = 2; }) ==
        "few rows: waves share K, so waves_rows and waves_columns are 1");
  CHECK(with([](GemmPolicy& p) { p.waves_k = 6; }) == "few rows: waves_k is a multiple of 4, for four SIMDs, up to 32");
  CHECK(with([](GemmPolicy& p) { p.waves_per_simd = 9; }) ==
        "an SM holds at most 2048 lanes: fewer waves, or fewer blocks (waves_per_simd)");
  CHECK(with([](GemmPolicy& p) { p.columns = 24; }) == "few rows: rows are a multiple of 8, columns of a strip, 16");
  CHECK(with([](GemmPolicy& p) { p.depth_bytes = 128; }) ==
        "few rows: four lanes have 16 bytes each of a row: depth_bytes is 64");
  CHECK(with([](GemmPolicy& p) { p.rows = 64, p.columns = 128; }) ==
        "sums of all waves exceed shared memory, of which waves_per_simd blocks have a part");
  const GemmSpec gated{.activation = ActivationKind::silu, .gated = true};
  CHECK(with(same, gated) == "");
  CHECK(with([](GemmPolicy& p) { p.columns = 48; }, gated) ==
        "few rows, gated: rows are a multiple of 8, columns of 32, a strip of gates and its ups");
}

TEST_CASE("a refused policy of CDNA says which law it breaks") {
  constexpr ArchId gfx942 = ArchId::gfx942, gfx950 = ArchId::gfx950;
  constexpr GemmPolicy tile{
      .rows = 256, .columns = 256, .stages = 2, .waves_rows = 2, .waves_columns = 4, .path = direct};
  const auto with = [&](auto change) {
    GemmPolicy p = tile;
    change(p);
    return why_not(gfx950, p);
  };
  CHECK(why_not(gfx950, tile) == "");
  CHECK(why_not(gfx942, tile) == "path direct needs copies of 16 bytes a lane into LDS, which gfx950 has");
  CHECK(with([](GemmPolicy& p) { p.stages = 4; }) ==
        "stages times a step's bytes exceed LDS, of which waves_per_simd blocks have a part each");
  CHECK(with([](GemmPolicy& p) { p.stages = 1; }) ==
        "direct: a step is copied while another is read: at least 2 stages");
  CHECK(with([](GemmPolicy& p) { p.rows = 250; }) ==
        "each wave has a multiple of 16 rows and of 16 columns of the tile");
  CHECK(with([](GemmPolicy& p) { p.depth_bytes = 64; }) ==
        "a step is 128 bytes of A's k; with mx scales, or int4 weights in registers, it is 128 values of k");
  CHECK(with([](GemmPolicy& p) { p.cluster = 2; }) ==
        "this architecture has no clusters, no swapped products and no stream-K");
  CHECK(with([](GemmPolicy& p) { p.late = true; }) == "pingpong and late are for wave groups, which sm90 has");
  CHECK(with([](GemmPolicy& p) { p.path = GemmPath::tensor; }) ==
        "path tensor needs a tensor copy engine, which this architecture has not");
}

TEST_CASE("no policy serves a spec that the chip does not") {
  constexpr DType fnuz = DType::fp8_e4m3fnuz;
  CHECK(why_not(ArchId::gfx950, {}, {.a = fnuz, .b = fnuz}) == "fp8 flavour is not this architecture's");
}

#if !TILEWAVE_ON_GPU_COMPILER
TEST_CASE("a plan for a spec that the chip does not serve compiles, and says why not") {
  constexpr GemmSpec fnuz{.a = DType::fp8_e4m3fnuz, .b = DType::fp8_e4m3fnuz};
  constexpr GemmSpec mx{.a = DType::fp4_e2m1, .b = DType::fp4_e2m1, .scale = Scaling::mx};
  GemmPlan plan;
  CHECK(gemm_plan<host::Backend<ArchId::gfx950>, fnuz>({.spec = fnuz}, plan).code == StatusCode::unsupported_dtype);
  CHECK(gemm_plan<host::Backend<ArchId::gfx942>, mx>({.spec = mx}, plan).code == StatusCode::unsupported_scaling);
  CHECK(plan.entry == nullptr);
  CHECK(plan.candidates.empty());
}
#endif

}  // namespace
}  // namespace tilewave::test::policy
