// SPDX-License-Identifier: MIT
// Tests of what gemm_check refuses, that a refused launch writes nothing, and the plan of a spec that is compiled in.
#include <vector>

#include "entries/gemm.hpp"
#include "test/ops/gemm/lists.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::test::check {
namespace {

using P = GemmProblem;
using C = StatusCode;
constexpr std::int64_t beyond = std::int64_t{1} << 60;  // A multiple of 16 bytes, too large for any address.

void* writable(const void* p) { return const_cast<void*>(p); }
const float* floats(const void* p) { return static_cast<const float*>(p); }

const Wrong<P> any[] = {
    {"a of no type", C::bad_value, [](P& p) { p.spec.a = static_cast<DType>(99); }},
    {"b of no type", C::bad_value, [](P& p) { p.spec.b = static_cast<DType>(-1); }},
    {"out of no type", C::bad_value, [](P& p) { p.spec.out = static_cast<DType>(99); }},
    {"scale 9", C::bad_value, [](P& p) { p.spec.scale = static_cast<Scaling>(9); }},
    {"layout 9", C::bad_value, [](P& p) { p.spec.layout = static_cast<GemmLayout>(9); }},
    {"weights 9", C::bad_value, [](P& p) { p.spec.weights = static_cast<GemmWeights>(9); }},
    {"groups 9", C::bad_value, [](P& p) { p.spec.groups = static_cast<GemmGroups>(9); }},
    {"activation 9", C::bad_value, [](P& p) { p.spec.activation = static_cast<ActivationKind>(9); }},
    {"b of another type", C::unsupported_dtype,
     [](P& p) { p.spec.b = p.spec.a == DType::f16 ? DType::bf16 : DType::f16; }},
    {"operands of f32", C::unsupported_dtype, [](P& p) { p.spec.a = p.spec.b = DType::f32; }},
    {"scales of out 9", C::bad_value, [](P& p) { p.spec.out_scale = static_cast<Scaling>(9); }},
    {"sums 9", C::bad_value, [](P& p) { p.spec.sums = static_cast<GemmSums>(9); }},
    {"fast sums of bf16", C::bad_value, [](P& p) { p.spec = {.sums = GemmSums::fast}; }},
    {"out of one scale a row", C::unsupported_scaling,
     [](P& p) {
       p.spec.out = DType::i8;
       p.spec.out_scale = Scaling::per_token;
     }},
    {"mx scales of out", C::unsupported_scaling,
     [](P& p) { p.spec.out = DType::fp4_e2m1, p.spec.out_scale = Scaling::mx; }},
    {"m -1", C::bad_extent, [](P& p) { p.m = -1; }},
    {"n -1", C::bad_extent, [](P& p) { p.n = -1; }},
    {"k -1", C::bad_extent, [](P& p) { p.k = -1; }},
    {"m 2^31 - 1", C::bad_extent, [](P& p) { p.m = 0x7fffffff; }},
    {"n 2^31 - 1", C::bad_extent, [](P& p) { p.n = 0x7fffffff; }},
    {"k 2^31 - 1", C::bad_extent, [](P& p) { p.k = 0x7fffffff; }},
    {"alpha NaN", C::bad_value, [](P& p) { p.alpha = std::numeric_limits<float>::quiet_NaN(); }},
    {"a null", C::null_pointer, [](P& p) { p.a = nullptr; }},
    {"b null", C::null_pointer, [](P& p) { p.b = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"a off by 8 bytes", C::misaligned, [](P& p) { p.a = moved(p.a, 8); }},
    {"b off by 8 bytes", C::misaligned, [](P& p) { p.b = moved(p.b, 8); }},
    {"residual off by a byte", C::misaligned, [](P& p) { p.residual = moved(p.residual, 1); }},
    {"bias off by a byte", C::misaligned, [](P& p) { p.bias = moved(p.bias, 1); }},
    {"rows of a not whole 16 bytes apart", C::bad_stride, [](P& p) { p.a_stride += 1; }},
    {"rows of a in one place", C::bad_stride, [](P& p) { p.a_stride = 0; }, "a_stride is 0"},
    {"rows of a that overlap", C::bad_stride, [](P& p) { p.a_batch_stride = p.a_stride = 16; }},
    {"rows of a backwards", C::bad_stride, [](P& p) { p.a_stride = -p.a_stride; }},
    {"a stride of a that nothing addresses", C::bad_stride, [](P& p) { p.a_stride = beyond; }, "stride of a "},
    {"rows of out in one place", C::bad_stride, [](P& p) { p.out_stride = 0; }, "out_stride is 0"},
    {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_stride = gemm_out_columns(p) - 1; }},
    {"rows of out backwards", C::bad_stride, [](P& p) { p.out_stride = -p.out_stride; }},
    {"a stride of out that nothing addresses", C::bad_stride, [](P& p) { p.out_stride = beyond; }, "stride of out "},
    {"rows of residual in one place", C::bad_stride, [](P& p) { p.residual_stride = 0; }, "residual_stride is 0"},
    {"a stride of residual that nothing addresses", C::bad_stride, [](P& p) { p.residual_stride = beyond; },
     "stride of residual "},
    {"strides of a residual that is not there", C::bad_value, [](P& p) { p.residual = nullptr; }, "residual is null"},
    {"a stride of a bias that is not there", C::bad_value, [](P& p) { p.bias = nullptr; }, "bias is null"},
    {"out is a", C::bad_value, [](P& p) { p.out = writable(p.a); }},
    {"out starts inside b", C::bad_value, [](P& p) { p.out = moved(writable(p.b), 16); }},
    {"out is bias", C::bad_value, [](P& p) { p.bias = p.out; }},
    {"out starts inside residual", C::bad_value, [](P& p) { p.residual = moved(p.out, 4); }},
    {"out is residual with other strides", C::bad_value,
     [](P& p) {
       p.residual = p.out;
       p.residual_stride += 8;
       p.residual_batch_stride += 8 * p.m;
     }},
    {"workspace_bytes -1", C::bad_value, [](P& p) { p.workspace_bytes = ~std::size_t{0}; }},
    {"workspace is out", C::bad_value, [](P& p) { p.workspace = p.out; }},
    {"workspace is out, of 2^62 bytes", C::bad_value,
     [](P& p) { p.workspace = p.out, p.workspace_bytes = std::int64_t{1} << 62; }, "workspace_bytes"},
    {"workspace ends inside a", C::bad_value,
     [](P& p) { p.workspace = moved(writable(p.a), 16 - static_cast<int>(p.workspace_bytes)); }},
    {"workspace is residual", C::bad_value, [](P& p) { p.workspace = writable(p.residual); }},
};
const Wrong<P> not_of_fp8[] = {
    {"block scales of others than fp8", C::unsupported_scaling, [](P& p) { p.spec.scale = Scaling::per_block; }}};
const Wrong<P> of_bytes[] = {
    {"another layout than nt", C::unsupported_layout, [](P& p) { p.spec.layout = GemmLayout::nn; }}};
const Wrong<P> of_i8[] = {{"sums that leave 32 bits", C::bad_extent, [](P& p) { p.k = 1 << 17; }}};
const Wrong<P> of_fp8[] = {{"the other flavour", C::unsupported_dtype, [](P& p) {
                              const bool fn = p.spec.a == DType::fp8_e4m3fn;
                              p.spec.a = p.spec.b = fn ? DType::fp8_e4m3fnuz : DType::fp8_e4m3fn;
                            }}};
const Wrong<P> one[] = {
    {"batch 0", C::bad_extent, [](P& p) { p.batch = 0; }},
    {"groups", C::bad_value, [](P& p) { p.groups = 1; }},
    {"group_offsets", C::bad_value, [](P& p) { p.group_offsets = reinterpret_cast<const std::int32_t*>(p.bias); }},
    {"group_rows", C::bad_value, [](P& p) { p.group_rows = reinterpret_cast<const std::int32_t*>(p.bias); }},
    {"expected_group_rows", C::bad_value, [](P& p) { p.expected_group_rows = 1; }},
    {"batches of a in one place", C::bad_stride, [](P& p) { p.a_batch_stride = 0; }},
    {"batches of a not whole 16 bytes apart", C::bad_stride, [](P& p) { p.a_batch_stride += 1; }},
    {"batches of out that overlap", C::bad_stride, [](P& p) { p.out_batch_stride -= 1; }},
    {"batches of out backwards", C::bad_stride, [](P& p) { p.out_batch_stride = -p.out_batch_stride; }},
};
const Wrong<P> of_groups[] = {
    {"batch 2", C::bad_value, [](P& p) { p.batch = 2; }},
    {"groups -1", C::bad_extent, [](P& p) { p.groups = -1; }},
    {"expected_group_rows -1", C::bad_value, [](P& p) { p.expected_group_rows = -1; }},
    {"table null", C::null_pointer, [](P& p) { p.group_offsets = p.group_rows = nullptr; }},
    {"table off by a byte", C::misaligned,
     [](P& p) {
       (p.group_rows != nullptr ? p.group_rows : p.group_offsets) =
           moved(p.group_rows != nullptr ? p.group_rows : p.group_offsets, 1);
     }},
    {"both tables", C::bad_value,
     [](P& p) { p.group_offsets = p.group_rows = p.group_rows != nullptr ? p.group_rows : p.group_offsets; }},
    {"out is the table", C::bad_value,
     [](P& p) { p.out = const_cast<std::int32_t*>(p.group_rows != nullptr ? p.group_rows : p.group_offsets); }},
    {"workspace is the table", C::bad_value,
     [](P& p) { p.workspace = const_cast<std::int32_t*>(p.group_rows != nullptr ? p.group_rows : p.group_offsets); }},
};
const Wrong<P> of_contiguous[] = {
    {"rows of [K, M], which groups cut anywhere", C::unsupported_layout,
     [](P& p) { p.spec.layout = p.spec.layout == GemmLayout::nn ? GemmLayout::tt : GemmLayout::tn; }},
};
const Wrong<P> of_layers[] = {
    {"products of b in one place", C::bad_stride, [](P& p) { p.b_batch_stride = 0; }},
    {"products of b not whole 16 bytes apart", C::bad_stride, [](P& p) { p.b_batch_stride += 1; }},
    {"products of bias in one place", C::bad_stride, [](P& p) { p.bias_batch_stride = 0; }},
};
const Wrong<P> row_major[] = {
    {"rows of b in one place", C::bad_stride, [](P& p) { p.b_stride = 0; }},
    {"rows of b that overlap", C::bad_stride, [](P& p) { p.b_stride = 16; }},
    {"rows of b not whole 16 bytes apart", C::bad_stride, [](P& p) { p.b_stride += 1; }},
};
const Wrong<P> preshuffled[] = {
    {"b_stride", C::bad_value, [](P& p) { p.b_stride = p.k; }},
    {"another layout than nt", C::unsupported_layout, [](P& p) { p.spec.layout = GemmLayout::tt; }},
    {"n no multiple of 16", C::bad_extent, [](P& p) { p.n -= 8; }},
    {"k no multiple of 32", C::bad_extent, [](P& p) { p.k -= 16; }},
};
const Wrong<P> of_strips[] = {
    {"products not whole strips apart", C::bad_stride, [](P& p) { p.b_batch_stride += 32; }},
};
const Wrong<P> unscaled[] = {
    {"a_scale", C::bad_value, [](P& p) { p.a_scale = floats(p.bias); }},
    {"b_scale", C::bad_value, [](P& p) { p.b_scale = floats(p.bias); }},
};
const Wrong<P> scaled[] = {
    {"a_scale null", C::null_pointer, [](P& p) { p.a_scale = nullptr; }},
    {"b_scale null", C::null_pointer, [](P& p) { p.b_scale = nullptr; }},
    {"a_scale off by a byte", C::misaligned, [](P& p) { p.a_scale = moved(p.a_scale, 1); }},
    {"b_scale off by a byte", C::misaligned, [](P& p) { p.b_scale = moved(p.b_scale, 1); }},
    {"out is a_scale", C::bad_value, [](P& p) { p.a_scale = floats(p.out); }},
    {"out is b_scale", C::bad_value, [](P& p) { p.b_scale = floats(p.out); }},
};
const Wrong<P> not_of_blocks[] = {
    {"a_scale_stride", C::bad_value, [](P& p) { p.a_scale_stride = 1; }},
    {"a batch stride of scales that each product has not", C::bad_value,
     [](P& p) { (p.spec.scale == Scaling::per_row ? p.a_scale_stride : p.b_scale_batch_stride) = 128; }},
    {"b_scale_k_stride", C::bad_value, [](P& p) { p.b_scale_k_stride = 1; }},
};
const Wrong<P> of_rows[] = {
    {"products of b_scale in one place", C::bad_stride, [](P& p) { p.b_scale_batch_stride = 0; }},
};
const Wrong<P> of_blocks[] = {
    {"a_scale_stride forgotten", C::bad_stride, [](P& p) { p.a_scale_stride = 0; }},
    {"a_scale_k_stride as long as a_scale_stride", C::bad_stride, [](P& p) { p.a_scale_k_stride = p.a_scale_stride; }},
    {"b_scale_k_stride forgotten", C::bad_stride, [](P& p) { p.b_scale_k_stride = 0; }},
    {"a_scale_stride that nothing addresses", C::bad_stride, [](P& p) { p.a_scale_stride = beyond; }},
};

const Wrong<P> not_of_int4[] = {
    {"scales of groups", C::unsupported_scaling, [](P& p) { p.spec.scale = Scaling::per_group; }},
    {"a group", C::bad_value, [](P& p) { p.spec.scale_k = 32; }},
    {"b_group_scale", C::bad_value, [](P& p) { p.b_group_scale = p.bias; }},
    {"zero points", C::unsupported_dtype, [](P& p) { p.spec.zero_points = true; }},
};
const Wrong<P> of_int4[] = {
    {"rows of i8", C::unsupported_dtype, [](P& p) { p.spec.a = DType::i8; }},
    {"scales of rows", C::unsupported_scaling, [](P& p) { p.spec.scale = Scaling::per_row; }},
    {"group 48", C::bad_value, [](P& p) { p.spec.scale_k = 48; }},
    {"row-major", C::unsupported_layout, [](P& p) { p.spec.weights = GemmWeights::row_major; }},
    {"k no multiple of the group", C::bad_extent, [](P& p) { p.k -= p.spec.scale_k / 2; }},
    {"b_scale", C::bad_value, [](P& p) { p.b_scale = floats(p.bias); }},
    {"b_group_scale null", C::null_pointer, [](P& p) { p.b_group_scale = nullptr; }},
    {"b_group_scale off by 4 bytes", C::misaligned, [](P& p) { p.b_group_scale = moved(p.b_group_scale, 4); }},
    {"out is b_group_scale", C::bad_value, [](P& p) { p.b_group_scale = p.out; }},
    {"groups no multiple of 4 apart", C::bad_stride, [](P& p) { p.b_scale_k_stride += 2; }},
    {"groups in one place", C::bad_stride, [](P& p) { p.b_scale_k_stride = 0; }},
    {"products of b_group_scale in one place", C::bad_stride, [](P& p) { p.b_scale_batch_stride = 0; }},
    {"a_scale_stride", C::bad_value, [](P& p) { p.a_scale_stride = 1; }},
    {"products no whole strips apart", C::bad_stride, [](P& p) { p.b_batch_stride += 16; }},
};
const Wrong<P> int4_of_16_bits[] = {{"a_scale", C::bad_value, [](P& p) { p.a_scale = floats(p.bias); }}};
const Wrong<P> int4_of_fp8[] = {{"a_scale null", C::null_pointer, [](P& p) { p.a_scale = nullptr; }}};
const Wrong<P> gated_int4[] = {
    {"interleaved", C::unsupported_layout, [](P& p) { p.interleaved = true; }},
    {"half a strip of gates", C::bad_extent, [](P& p) { p.n -= 16; }},
};

const Wrong<P> not_gated[] = {
    {"interleaved", C::bad_value, [](P& p) { p.interleaved = true; }},
    {"swigluoai of one value", C::bad_value, [](P& p) { p.spec.activation = ActivationKind::swigluoai; }},
};
const Wrong<P> gated[] = {
    {"an odd n", C::bad_extent, [](P& p) { p.n -= 1; }},
    {"gates in another layout than nt", C::unsupported_layout, [](P& p) { p.spec.layout = GemmLayout::tn; }},
};
const Wrong<P> gated_blocks[] = {
    {"ups that begin within a block of scales", C::bad_extent, [](P& p) { p.n -= 64; }},
};
const Wrong<P> not_quantised[] = {
    {"out off by a byte", C::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
    {"i8 without scales", C::unsupported_scaling, [](P& p) { p.spec.out = DType::i8; }},
    {"scales of no code", C::unsupported_scaling, [](P& p) { p.spec.out_scale = Scaling::per_tensor; }},
    {"out_scale", C::bad_value, [](P& p) { p.out_scale = const_cast<float*>(floats(p.bias)); }},
};
const Wrong<P> quantised[] = {
    {"codes without scales", C::unsupported_scaling, [](P& p) { p.spec.out_scale = Scaling::none; }},
    {"out_scale null", C::null_pointer, [](P& p) { p.out_scale = nullptr; }},
    {"out_scale off by a byte", C::misaligned, [](P& p) { p.out_scale = moved(p.out_scale, 1); }},
    {"out is out_scale", C::bad_value, [](P& p) { p.out = p.out_scale; }},
    {"workspace is out_scale", C::bad_value, [](P& p) { p.workspace = p.out_scale; }},
};
const Wrong<P> out_of_fp8[] = {
    {"out of the other flavour", C::unsupported_dtype,
     [](P& p) { p.spec.out = p.spec.out == DType::fp8_e4m3fn ? DType::fp8_e4m3fnuz : DType::fp8_e4m3fn; }},
};
const Wrong<P> per_tensor[] = {
    {"out_scale_stride", C::bad_value, [](P& p) { p.out_scale_stride = 1; }},
};
const Wrong<P> per_group[] = {
    {"out_scale is bias", C::bad_value, [](P& p) { p.out_scale = const_cast<float*>(floats(p.bias)); }},
    {"scales of rows of out in one place", C::bad_stride, [](P& p) { p.out_scale_stride = 0; }},
};
const Wrong<P> per_group_of_layers[] = {
    {"scales of batches of out in one place", C::bad_stride, [](P& p) { p.out_scale_batch_stride = 0; }},
};
const Wrong<P> not_of_swigluoai[] = {
    {"swiglu_alpha 1", C::bad_value, [](P& p) { p.swiglu_alpha = 1; }},
    {"swiglu_limit 1", C::bad_value, [](P& p) { p.swiglu_limit = 1; }},
};
const Wrong<P> of_swigluoai[] = {
    {"swiglu_alpha NaN", C::bad_value, [](P& p) { p.swiglu_alpha = std::numeric_limits<float>::quiet_NaN(); }},
    {"swiglu_limit NaN", C::bad_value, [](P& p) { p.swiglu_limit = std::numeric_limits<float>::quiet_NaN(); }},
    {"swiglu_limit 0", C::bad_value, [](P& p) { p.swiglu_limit = 0; }},
};

/// Checks that a problem is refused by the check, with its status and a reason, by the launch and by the selection.
void check_refused(const GemmEntry& e, const P& good, std::span<const Wrong<P>> wrongs) {
  const ArchFacts& facts = facts_of(e.arch);
  REQUIRE(gemm_check(good, facts).reason == std::string());
  for (const Wrong<P>& wrong : wrongs) {
    INFO(wrong.what);
    P p = good;
    wrong.make(p);
    const Status status = gemm_check(p, facts);
    CHECK(name_of(status.code) == name_of(wrong.code));
    CHECK(std::string(status.reason) != "");
    CHECK(std::string(status.reason).find(wrong.reason) != std::string::npos);
    CHECK_FALSE(e.launch(p, 1, {}).ok());
    const GemmEntry* const entries[] = {&e};
    GemmPlan plan{&e, 1};
    CHECK_FALSE(gemm_select(p, entries, facts, plan).ok());
    CHECK(plan.entry == nullptr);
  }
}

TEST_CASE("bad GEMM problems get a named status and a reason, and nothing is written") {
  for (const GemmEntry* const e : first_entries()) {
    INFO(name_of(e->arch) << " " << name_of(e->spec));
    const GemmSpec& spec = e->spec;
    const bool groups = spec.groups != GemmGroups::one, block = spec.scale == Scaling::per_block;
    constexpr std::int32_t m = 3, layers = 2, workspace_bytes = 64;
    const std::int32_t k = spec.four_bit() ? 256 : 288;
    const std::int32_t n = spec.gated && block ? 256 : 160, columns = spec.gated ? n / 2 : n;
    constexpr std::int32_t a_row = 32;  // the length of a row of [K, M]
    Tensor a(spec.a, layers * a_row * k), b(spec.b, layers * n * k), group_scale(DType::bf16, layers * n * 8),
        out(spec.out, layers * m * n);
    Tensor residual(spec.extra(), layers * m * (n + 8)), bias(spec.extra(), layers * n), table(DType::f32, layers + 1);
    Tensor out_scale(DType::f32, layers * m * 2);
    Tensor a_scale(DType::f32, layers * m * 3), b_scale(DType::f32, layers * n * 3), workspace(DType::f32, 16);
    P good;
    good.spec = spec;
    good.m = m, good.n = n, good.k = k;
    (groups ? good.groups : good.batch) = layers;
    good.a = a.device(), good.b = b.device(), good.out = out.device();
    good.residual = residual.device(), good.bias = bias.device();
    good.a_stride = transposed_a(spec.layout) ? a_row : k, good.a_batch_stride = a_row * k;
    good.b_stride = spec.in_strips() ? 0 : transposed_b(spec.layout) ? n : k;
    good.b_batch_stride = n * k / packing_of(spec.b);
    good.out_stride = columns, good.out_batch_stride = m * columns;
    good.residual_stride = columns, good.residual_batch_stride = m * columns;
    good.bias_batch_stride = n;
    if (spec.four_bit()) {
      if (is_fp8(spec.a)) good.a_scale = floats(a_scale.device()), good.a_scale_batch_stride = m;
      good.b_group_scale = group_scale.device();
      if (spec.zero_points) good.b_zero = static_cast<const std::int8_t*>(b_scale.device());
      good.b_scale_k_stride = n, good.b_scale_batch_stride = 8 * n;
    } else if (spec.scale != Scaling::none) {
      good.a_scale = floats(a_scale.device()), good.b_scale = floats(b_scale.device());
    }
    if (block) {
      good.a_scale_stride = 1, good.a_scale_k_stride = m, good.a_scale_batch_stride = 3 * m;
      good.b_scale_stride = 3, good.b_scale_k_stride = 1, good.b_scale_batch_stride = 6;
    } else if (spec.scale == Scaling::per_row) {
      good.a_scale_batch_stride = m, good.b_scale_batch_stride = n;
    }
    if (spec.out_scale != Scaling::none) good.out_scale = static_cast<float*>(out_scale.device());
    if (spec.out_scale == Scaling::per_group) good.out_scale_stride = 2, good.out_scale_batch_stride = 2 * m;
    const auto* const on_device = static_cast<const std::int32_t*>(table.device());
    if (spec.groups == GemmGroups::contiguous) good.group_offsets = on_device;
    if (spec.groups == GemmGroups::masked) good.group_rows = on_device;
    good.workspace = workspace.device(), good.workspace_bytes = workspace_bytes;

    const auto refused = [&](std::span<const Wrong<P>> wrongs) { check_refused(*e, good, wrongs); };
    refused(any);
    refused(is_fp8(spec.a) ? std::span<const Wrong<P>>(of_fp8) : not_of_fp8);
    if (spec.a == DType::i8) refused(of_i8);
    if (size_of(spec.a) == 1) refused(of_bytes);
    refused(groups ? std::span<const Wrong<P>>(of_groups) : one);
    if (spec.groups == GemmGroups::contiguous && spec.layout == GemmLayout::nt && size_of(spec.a) == 2 && !spec.gated)
      refused(of_contiguous);
    refused(of_layers);
    refused(spec.in_strips() ? std::span<const Wrong<P>>(preshuffled) : row_major);
    if (spec.in_strips() && e->arch == ArchId::sm90) refused(of_strips);
    refused(spec.four_bit() ? std::span<const Wrong<P>>(of_int4) : not_of_int4);
    if (spec.four_bit()) {
      refused(is_fp8(spec.a) ? std::span<const Wrong<P>>(int4_of_fp8) : int4_of_16_bits);
      if (spec.gated) refused(gated_int4);
    } else {
      refused(spec.scale == Scaling::none ? std::span<const Wrong<P>>(unscaled) : scaled);
      refused(block ? std::span<const Wrong<P>>(of_blocks) : not_of_blocks);
    }
    if (spec.scale == Scaling::per_row) refused(of_rows);
    refused(spec.gated ? std::span<const Wrong<P>>(gated) : not_gated);
    if (spec.gated && block) refused(gated_blocks);
    refused(spec.out_scale != Scaling::none ? std::span<const Wrong<P>>(quantised) : not_quantised);
    if (is_fp8(spec.out)) refused(out_of_fp8);
    if (spec.out_scale == Scaling::per_tensor) refused(per_tensor);
    if (spec.out_scale == Scaling::per_group) {
      refused(per_group);
      if (spec.groups != GemmGroups::contiguous) refused(per_group_of_layers);
    }
    refused(spec.activation == ActivationKind::swigluoai ? std::span<const Wrong<P>>(of_swigluoai) : not_of_swigluoai);

    P nothing = good;
    nothing.m = 0;
    CHECK(e->launch(nothing, 1, {}).ok());
    CHECK_FALSE(e->launch(good, 0, {}).ok());
    CHECK_FALSE(e->launch(good, e->policy.splits + 1, {}).ok());
    P in_place = good;  // Residual may be out itself.
    in_place.residual = in_place.out;
    CHECK(gemm_check(in_place, facts_of(e->arch)).ok() == (spec.extra() == spec.out));
    P other = good;
    other.spec.activation = spec.activation == ActivationKind::relu ? ActivationKind::silu : ActivationKind::relu;
    CHECK(e->launch(other, 1, {}).code == StatusCode::no_matching_entry);
    for (Tensor* const untouched : {&out, &residual, &workspace, &out_scale}) {
      untouched->download();
      CHECK(untouched->gaps_kept(0, 0));
    }
  }
}

TEST_CASE("blocks that share K need a workspace of a size, aligned and apart") {
  for (const GemmEntry* const e : all_gemm_entries()) {
    if (e->policy.path == GemmPath::tensor || e->policy.splits < 2 || !(e->spec == GemmSpec{})) continue;
    INFO(name_of(e->arch) << " " << name_of(e->policy));
    constexpr std::int32_t m = 2, n = 16, k = 512;
    Tensor a(DType::bf16, m * k), b(DType::bf16, n * k), out(DType::bf16, m * n);
    P p;
    p.a = a.device(), p.b = b.device(), p.out = out.device();
    p.m = m, p.n = n, p.k = k;
    p.a_stride = p.b_stride = k, p.out_stride = n;
    const std::size_t bytes = gemm_workspace_size(p, e->policy, 2);
    REQUIRE(bytes > 0);
    CHECK(gemm_workspace_size(p, e->policy, 1) == 0);
    CHECK(e->launch(p, 2, {}).code == StatusCode::null_pointer);
    const bench::DeviceBuffer workspace(static_cast<std::size_t>(bytes) + 16);
    p.workspace = workspace.data();
    p.workspace_bytes = bytes - 1;
    CHECK(e->launch(p, 2, {}).code == StatusCode::workspace_too_small);
    p.workspace = moved(workspace.data(), 4);
    p.workspace_bytes = bytes;
    CHECK(e->launch(p, 2, {}).code == StatusCode::misaligned);
    p.workspace = workspace.data();
    p.batch_invariant = true;
    CHECK(e->launch(p, 2, {}).code == StatusCode::bad_value);
    p.batch_invariant = false;
    CHECK(e->launch(p, 2, {}).ok());
  }
}

}  // namespace
}  // namespace tilewave::test::check
