// SPDX-License-Identifier: MIT
// Tests of every entry against the reference in double precision: boundary shapes, strides, epilogues, closed forms.
#include "entries/gemm.hpp"

#include "test/ops/gemm/call.hpp"
#include "test/turns.hpp"

namespace tilewave::test {
namespace {

/// Calls f(entry) for each entry that this build can run and that is sampled.
template <class F>
void each_entry(const F& f) {
#if defined(GEMM_ENTRIES)
  for (const auto entries : {GEMM_ENTRIES()}) {
#else
  for (const auto entries : {all_gemm_entries(), all_gemm_feature_entries(), all_gemm_grouped_entries(),
                             all_gemm_gated_entries(), all_gemm_int4_entries(), all_gemm_mx_entries()}) {
#endif
    for (const GemmEntry* const entry : in_turn(entries)) {
      INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
      f(*entry);
    }
  }
}
std::int32_t step_of(const GemmEntry& e) { return e.policy.depth_bytes / size_of(e.spec.a) * packing_of(e.spec.a); }
bool preshuffled(const GemmEntry& e) { return e.spec.in_strips(); }
/// Rounds a shape up to what preshuffled weights, scales and pairs of gates and ups need.
GemmShape taken(const GemmEntry& e, GemmShape s) {
  const bool whole_blocks = e.spec.scale == Scaling::per_block && !s.interleaved;
  if (e.spec.gated) s.n = align_up(s.n, whole_blocks ? gemm_scale_block : e.spec.mx() ? 64 : 2);
  if (e.spec.mx()) s.k = align_up(s.k, mx_group);
  if (!preshuffled(e)) return s;
  s.n = align_up(s.n, e.spec.gated ? 32 : 16);
  s.k = align_up(s.k, e.spec.four_bit() ? e.spec.scale_k : 32);
  return s;
}
void check_one(const GemmEntry& e, GemmShape s, GemmValues values) {
  s = taken(e, s);
  if (e.spec.groups != GemmGroups::one && s.rows.empty()) {
    s.batch = 1;
    s.rows = {s.m};
  }
  INFO(name_of(s));
  CHECK(GemmCall(e.spec, s, values).run(e) == "");
}
/// Runs a shape. Gated entries run it with gates and ups in halves, and interleaved.
void check(const GemmEntry& e, const GemmShape& s, GemmValues values = gemm_random) {
  check_one(e, s, values);
  if (!e.spec.gated || e.spec.four_bit() || e.spec.mx() || (preshuffled(e) && e.arch == ArchId::sm90)) return;
  GemmShape interleaved = s;
  interleaved.interleaved = true;
  check_one(e, interleaved, values);
}

TEST_CASE("every entry is right where its tile ends") {
  each_entry([](const GemmEntry& e) {
    const GemmPolicy& p = e.policy;
    const std::int32_t step = step_of(e);
    check(e, {.m = 1, .n = 1, .k = 1});
    check(e, {.m = p.rows - 1, .n = p.columns + 1, .k = step + 3, .gap = 3});
    check(e, {.m = p.rows, .n = p.columns, .k = step});
    check(e, {.m = p.rows + 1, .n = p.columns - 1, .k = 2 * step - 1, .gap = 1});
    check(e, {.m = 7, .n = 37, .k = 13 * step, .gap = 5});
    check(e, {.m = 3, .n = 5, .k = 15 * step + 17});
  });
}

TEST_CASE("values that leave late are right where blocks take several tiles") {
  each_entry([](const GemmEntry& e) {
    if (!e.policy.late) return;
    // 134 tiles for 132 blocks, whose last column ends within a box and within 16 bytes. K has fewer stages than the
    // tile has boxes, and more.
    const std::int32_t n = 133 * e.policy.columns + 20, step = step_of(e);
    check(e, {.m = 5, .n = n, .k = 2 * step + 1, .gap = 3});
    check(e, {.m = 5, .n = n, .k = 7 * step, .bias = true, .residual = true, .alpha = 0.5f});
  });
}

TEST_CASE("every entry applies bias, residual and alpha, and takes batches") {
  each_entry([](const GemmEntry& e) {
    check(e, {.m = 5,
              .n = e.policy.columns + 4,
              .k = 2 * step_of(e) + 40,
              .batch = 2,
              .gap = 4,
              .bias = true,
              .residual = true,
              .transposed_scales = true,
              .alpha = -0.75f});
  });
}

/// Puts the residual into out, whose rows the product then adds to and writes.
void add_in_place(GemmProblem& p) {
  const int size = size_of(p.spec.out);
  for (std::int32_t row = 0; row < p.m; ++row) {
    auto* const to = static_cast<char*>(p.out) + row * p.out_stride * size;
    const auto* const from = static_cast<const char*>(p.residual) + row * p.residual_stride * size;
    bench::check_hip(hipMemcpy(to, from, static_cast<std::size_t>(p.n) * size, hipMemcpyDeviceToDevice),
                     "a row of out");
  }
  p.residual = p.out, p.residual_stride = p.out_stride;
}

TEST_CASE("tiles that end with the matrix lie over others, but not where the residual is out itself") {
  each_entry([](const GemmEntry& e) {
    const GemmSpec& s = e.spec;
    if (e.arch != ArchId::sm90 || s.groups != GemmGroups::one || s.gated || s.out != s.extra()) return;
    const GemmShape shape =
        taken(e, {.m = e.policy.rows + 3, .n = e.policy.columns + 16, .k = step_of(e), .bias = true, .residual = true});
    INFO(name_of(shape));
    CHECK(GemmCall(s, shape).run(e) == "");
    CHECK(GemmCall(s, shape).run(e, add_in_place) == "");
  });
}

TEST_CASE("groups have their own rows, and no others are written") {
  each_entry([](const GemmEntry& e) {
    if (e.spec.groups == GemmGroups::one) return;
    const std::int32_t rows = e.policy.rows;
    if (e.spec.groups == GemmGroups::contiguous) {
      check(e, {.m = rows + 24, .n = 40, .k = 48, .rows = {0, 5, rows + 1, 0, 3}, .gap = 2, .bias = true});
    } else {
      check(e, {.m = rows + 2, .n = 40, .k = 48, .rows = {rows + 1, 0, 1}, .gap = 2, .residual = true});
    }
  });
}

TEST_CASE("a table that says more rows than there are ends with them") {
  each_entry([](const GemmEntry& e) {
    const std::int32_t m = 24;
    if (e.spec.groups == GemmGroups::contiguous) {
      check(e, {.m = m, .n = 40, .k = 48, .rows = {9, m - 9}, .gap = 2, .beyond = 1000});
    } else if (e.spec.groups == GemmGroups::masked) {
      check(e, {.m = m, .n = 40, .k = 48, .rows = {m, 0, m}, .gap = 2, .beyond = e.policy.rows});
    }
  });
}

TEST_CASE("batches may lie within each other's rows") {
  each_entry([](const GemmEntry& e) {  // Rows of the heads of a token lie side by side.
    if (e.spec.groups != GemmGroups::one || e.spec.layout != GemmLayout::nt || e.spec.mx()) return;
    check(e, {.m = 19, .n = 40, .k = 64, .batch = 3, .heads = true});
  });
}

TEST_CASE("blocks that share K add up in order") {
  each_entry([](const GemmEntry& e) {
    if (e.policy.splits == 1) return;
    const std::int32_t step = step_of(e);
    check(e, {.m = 3, .n = e.policy.columns + 1, .k = 9 * step + 5, .bias = true, .splits = 2});
    check(e, {.m = 17, .n = 20, .k = 3 * step, .splits = e.policy.splits});
  });
}

TEST_CASE("a product with the identity is exact") {
  each_entry([](const GemmEntry& e) {
    if (e.spec.scale != Scaling::none || e.spec.groups != GemmGroups::one ||
        e.spec.activation != ActivationKind::none || e.spec.a == DType::i8) {
      return;
    }
    GemmCall call(e.spec, taken(e, {.m = 40, .n = 48, .k = 40}), [](char tensor, std::int64_t r, std::int64_t c) {
      return tensor == 'a' ? float(r == c) : std::ldexp(1.0f + float(r % 7) / 8, int(c % 9) - 4);
    });
    REQUIRE(call.run(e) == "");
    for (int r = 0; r < 40; ++r)
      for (int c = 0; c < 48; ++c)
        if (call.out().at(r, c) != std::ldexp(1.0 + c % 7 / 8.0, r % 9 - 4)) FAIL("row " << r << " column " << c);
  });
}

TEST_CASE("weights of i4 are their values, less zero points, times the scales of their groups, exactly") {
  each_entry([](const GemmEntry& e) {
    if (e.spec.b != DType::i4 || e.spec.groups != GemmGroups::one || e.spec.gated) return;
    constexpr std::int32_t k = 384, n = 48;  // A has rows of the identity for some k of each scale.
    GemmCall call(e.spec, {.m = 36, .n = n, .k = k}, [](char tensor, std::int64_t r, std::int64_t c) {
      if (tensor == 'a') return float(c == 11 * r % k);
      if (tensor == 'b') return float((3 * r + 5 * c) % 16 - 8) / 4;
      if (tensor == 'z') return float((5 * r + 3 * c) % 17 - 8) / 8;  // all of -8 to 8
      return tensor == 's' ? 1.0f : std::ldexp(1.0f, int((r + c) % 7) - 3);
    });
    REQUIRE(call.run(e) == "");
    for (int r = 0; r < 36; ++r) {
      for (int c = 0; c < n; ++c) {
        const int at = 11 * r % k;
        const int group = at / e.spec.scale_k, zero = e.spec.zero_points ? (5 * group + 3 * c) % 17 - 8 : 0;
        const double right = std::ldexp((3 * c + 5 * at) % 16 - 8 - zero, (group + c) % 7 - 3);
        if (call.out().at(r, c) != right) FAIL("row " << r << " column " << c << ": " << call.out().at(r, c));
      }
    }
  });
}

/// Scales of all sizes of bf16 or f16, those that are large for `exponent` -7 and those that are small for 7: 2 to that
/// power is the one element of a row of A, so that no sum is too large or too small.
template <bool f16, int exponent>
float of_all_sizes(char tensor, std::int64_t r, std::int64_t c) {
  constexpr int least = f16 ? -24 : -133, normal = f16 ? -14 : -126, most = f16 ? 15 : 127;
  if (tensor == 'a') return c == 11 * r % 384 ? std::ldexp(1.0f, exponent) : 0.0f;
  if (tensor == 'b') return float((3 * r + 5 * c) % 16 - 8) / 4;
  if (tensor == 'z') return float((5 * r + 3 * c) % 17 - 8) / 8;
  if (tensor == 's') return 1.0f;
  switch ((3 * r + c) % 7) {
    case 0: return 0.0f;
    case 1: return -1.125f;
    case 2: return exponent < 0 ? std::ldexp(-1.75f, most) : std::ldexp(1.0f, least);
    case 3: return -0.0f;
    case 4: return exponent < 0 ? std::ldexp(1.25f, most - 1) : std::ldexp(1.5f, normal);
    case 5: return exponent < 0 ? 1.5f : std::ldexp(-3.0f, least);
    default: return exponent < 0 ? -7.0f : std::ldexp(1.875f, normal + 3);
  }
}
TEST_CASE("scales of i4 may be of any size, negative or none") {
  each_entry([](const GemmEntry& e) {
    // The largest scales have weights beyond bf16, so those that are rounded to it are not tried.
    if (e.spec.b != DType::i4 || e.spec.groups != GemmGroups::one || e.spec.gated || e.spec.rounds_weights()) return;
    const bool f16 = e.spec.group_scale() == DType::f16;
    for (const GemmValues values :
         {f16 ? of_all_sizes<true, -7> : of_all_sizes<false, -7>, f16 ? of_all_sizes<true, 7> : of_all_sizes<false, 7>})
      CHECK(GemmCall(e.spec, {.m = 36, .n = 64, .k = 384}, values).run(e) == "");
  });
}

/// Rows of A differ by powers of two, and so do runs of 128 values in one of them.
float rows_of_all_sizes(char tensor, std::int64_t r, std::int64_t c) {
  constexpr int exponents[] = {0, 100, -40, 31, 32, 112, -80};
  const float value = gemm_random(tensor, r, c);
  if (tensor != 'a') return value;
  return std::ldexp(value, r % 8 == 7 ? exponents[c / 128 % 7] : exponents[r % 8]);
}

TEST_CASE("few rows by weights of i4 may have values of any size") {
  each_entry([](const GemmEntry& e) {
    if (e.arch != ArchId::sm90 || e.policy.path != GemmPath::weights_in_registers || !e.spec.four_bit() ||
        e.spec.a != DType::bf16 || e.spec.gated)
      return;
    CHECK(GemmCall(e.spec, {.m = 16, .n = 64, .k = 128 * (e.policy.waves_k + 5)}, rows_of_all_sizes).run(e) == "");
  });
}

TEST_CASE("all codes of mxfp4 under all scales are exact") {
  each_entry([](const GemmEntry& e) {
    if (!e.spec.mxfp4() || e.spec.groups != GemmGroups::one || e.spec.out != DType::bf16) return;
    // A has rows of the identity, for each k of two groups. The 254 scales are dealt out to columns, 127 in a group.
    // Those that only a fraction of fp4 would bring back into f32 come with none of it: 2^127 times 6 is infinite.
    constexpr std::int32_t k = 64, n = 128, m = 64;
    GemmCall call(e.spec, {.m = m, .n = n, .k = k}, [](char tensor, std::int64_t r, std::int64_t c) {
      if (tensor == 'a') return float(r == c);
      if (tensor == 'b') return fp4_to_f32(static_cast<std::uint8_t>((r + c) % 16));
      return tensor == 's' ? 1.0f
                           : e8m0_to_f32(static_cast<std::uint8_t>(r % 2 * 127 + std::min<std::int64_t>(c, 127)));
    });
    call.run(e);
    for (int r = 0; r < m; ++r) {
      for (int c = 0; c < n; ++c) {
        const double right = fp4_to_f32(static_cast<std::uint8_t>((r + c) % 16)) *
                             double{e8m0_to_f32(static_cast<std::uint8_t>(r / 32 * 127 + std::min(c, 127)))};
        const double rounded = bf16_to_f32(f32_to_bf16(static_cast<float>(right)));
        if (!(call.out().at(r, c) == rounded))
          FAIL("row " << r << " column " << c << ": " << call.out().at(r, c) << ", not " << rounded);
      }
    }
  });
}

TEST_CASE("passes of blocks that stay are right where K and strips end in the middle") {
  each_entry([](const GemmEntry& e) {
    if (e.arch != ArchId::sm90 || e.policy.path != GemmPath::weights_in_registers || !e.spec.four_bit()) return;
    const std::int32_t step = step_of(e), strips = e.policy.columns / 16;
    check(e, {.m = 3, .n = 16 * 132 * strips + 16, .k = step});         // The last pass is one strip in few blocks.
    check(e, {.m = 2, .n = 16 * (132 * strips + 133), .k = 3 * step});  // There are fewer stages than waves.
    check(e, {.m = e.policy.rows + 2, .n = 48, .k = (2 * e.policy.waves_k + 3) * step, .batch = 2, .bias = true});
  });
}

TEST_CASE("few rows are right where a wave has no run of steps, one or several, and a part of one") {
  each_entry([](const GemmEntry& e) {
    if (e.arch != ArchId::sm90 || e.policy.path != GemmPath::weights_in_registers || e.spec.four_bit()) return;
    const std::int32_t run = step_of(e) * e.policy.stages, all = run * e.policy.waves_k;
    check(e, {.m = 1, .n = 33, .k = run - 1});
    check(e, {.m = e.policy.rows, .n = e.policy.columns + 2, .k = all + run + 3, .gap = 5, .bias = true});
    check(e, {.m = e.policy.rows + 3, .n = 31, .k = 2 * all + run / 2, .batch = 2, .gap = 1, .residual = true});
  });
}

TEST_CASE("each 32 k of a row have their own mx scale, exactly") {
  each_entry([](const GemmEntry& e) {
    if (!e.spec.mx() || e.spec.gated) return;
    constexpr std::int32_t m = 70, n = 80, k = 480;  // A has a row of ones for some k of each scale.
    GemmCall call(e.spec, {.m = m, .n = n, .k = k}, [](char tensor, std::int64_t r, std::int64_t c) {
      if (tensor == 'a') return float(c == 11 * r % k);
      if (tensor == 'b') return float((3 * r + 5 * c) % 4) - 1.5f;
      return std::ldexp(1.0f, static_cast<int>(tensor == 'x' ? (3 * r + c) % 5 - 2 : (r + 2 * c) % 7 - 3));
    });
    REQUIRE(call.run(e) == "");
    for (int r = 0; r < m; ++r) {
      for (int c = 0; c < n; ++c) {
        const int at = 11 * r % k, group = at / 32;
        const double right = std::ldexp((3 * c + 5 * at) % 4 - 1.5, (3 * r + group) % 5 - 2 + (c + 2 * group) % 7 - 3);
        if (call.out().at(r, c) != right) FAIL("row " << r << " column " << c << ": " << call.out().at(r, c));
      }
    }
  });
}

TEST_CASE("sums of i8 are exact, whoever shares K") {
  each_entry([](const GemmEntry& e) {
    if (e.spec.a != DType::i8 || e.spec.out != DType::f32) return;
    const auto extremes = [](char, std::int64_t r, std::int64_t c) {  // An f32 sum of +-126 and 1 would round.
      return (r + c) % 5 == 0 ? 1.5f / 63 : (r * c) % 3 == 0 ? -2.0f : 2.0f;
    };
    constexpr std::int32_t m = 9, n = 21, k = 1500;
    for (int splits = 1; splits <= e.policy.splits; splits += 3) {
      GemmCall call(e.spec, {.m = m, .n = n, .k = k, .splits = splits}, extremes);
      REQUIRE(call.run(e) == "");
      const auto code = [&](std::int64_t r, std::int64_t c) {
        return static_cast<std::int64_t>(operand(DType::i8, extremes(0, r, c)));
      };
      for (int r = 0; r < m; ++r) {
        for (int c = 0; c < n; ++c) {
          std::int64_t sum = 0;
          for (int i = 0; i < k; ++i) sum += code(r, i) * code(c, i);
          if (call.out().at(r, c) != static_cast<double>(static_cast<float>(sum))) FAIL("row " << r << " column " << c);
        }
      }
    }
  });
}

TEST_CASE("strides of what counts one may be anything") {
  each_entry([](const GemmEntry& e) {
    GemmShape s = taken(e, {.m = 1, .n = 40, .k = 32});
    if (e.spec.groups != GemmGroups::one) s.rows = {1};
    INFO(name_of(s));
    GemmCall call(e.spec, s);
    const auto far = [](GemmProblem& p) {
      constexpr std::int64_t any = std::int64_t{1} << 40;
      if (!transposed_a(p.spec.layout)) p.a_stride = any;
      p.out_stride = any;
      p.a_batch_stride = p.b_batch_stride = p.out_batch_stride = any;
      if (p.spec.four_bit()) p.b_scale_k_stride = any;
      if (p.spec.scale == Scaling::per_block)
        p.a_scale_stride = p.a_scale_k_stride = p.b_scale_stride = p.b_scale_k_stride = any;
      if (p.a_scale_batch_stride != 0) p.a_scale_batch_stride = any;
      if (p.b_scale_batch_stride != 0) p.b_scale_batch_stride = any;
      if (p.out_scale_stride != 0) p.out_scale_stride = p.out_scale_batch_stride = any;
    };
    CHECK(call.run(e, far) == "");
  });
}

#if !TILEWAVE_ON_GPU_COMPILER  // out spans 80 GiB, but only the pages in use exist.
TEST_CASE("what lies beyond a K of one is 0, however far its rows are apart") {
  each_entry([](const GemmEntry& e) {
    if (e.spec.layout == GemmLayout::tn) check(e, {.m = 40, .n = 48, .k = 1, .gap = (1 << 30) - 40});
  });
}
TEST_CASE("rows and batches lie beyond 2^32 bytes") {
  each_entry([](const GemmEntry& e) {
    if (e.spec == GemmSpec{} && e.spec.layout == GemmLayout::nt)
      check(e, {.m = 5, .n = 300, .k = 72, .batch = 2, .gap = (1 << 22) - 80});
  });
}
#endif

TEST_CASE("nothing is written for nothing, and K of 0 leaves the epilogue") {
  each_entry([](const GemmEntry& e) {
    check(e, {.m = 2, .n = 3, .k = 0, .bias = true});
    check(e, {.m = 0, .n = 3, .k = 8});
    check(e, {.m = 2, .n = 0, .k = 8});
  });
}

}  // namespace
}  // namespace tilewave::test
