// SPDX-License-Identifier: MIT
// What quant_check refuses, and that nothing is written then.
#include "entries/quant.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/quant/registry.hpp"

namespace tilewave::test {
namespace {

using P = QuantProblem;
using C = StatusCode;

template <class T>
T* off_by_a_byte(T* p) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(p) + 1);
}

const Wrong<P> any[] = {
    {"no scale", C::unsupported_quant_mode, [](P& p) { p.spec.scale = ScaleMode::none; }},
    {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"columns -1", C::bad_extent, [](P& p) { p.columns = -1; }},
    {"columns 2^31 - 1", C::bad_extent, [](P& p) { p.columns = 0x7fffffff; }},
    {"inner_rows 0", C::bad_extent, [](P& p) { p.inner_rows = 0; }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"scale null", C::null_pointer, [](P& p) { p.scale = nullptr; }},
    {"scale off by a byte", C::misaligned, [](P& p) { p.scale = off_by_a_byte(p.scale); }},
};
const Wrong<P> quantising[] = {
    {"out of f32", C::unsupported_dtype, [](P& p) { p.spec.out = DType::f32; }},
    {"out of x's type", C::unsupported_dtype, [](P& p) { p.spec.out = p.spec.x; }},
    {"x off by a byte", C::misaligned, [](P& p) { p.x = off_by_a_byte(p.x); }},
    {"smooth off by a byte", C::misaligned, [](P& p) { p.smooth = off_by_a_byte(p.x); }},
};
const Wrong<P> dequantising[] = {
    {"out of i8", C::unsupported_dtype, [](P& p) { p.spec.out = DType::i8; }},
    {"out off by a byte", C::misaligned, [](P& p) { p.out = off_by_a_byte(p.out); }},
    {"smooth", C::bad_value, [](P& p) { p.smooth = p.out; }},
    {"find_scale", C::bad_value, [](P& p) { p.find_scale = true; }},
};
const Wrong<P> with_found_scale[] = {
    {"workspace null", C::null_pointer, [](P& p) { p.workspace = nullptr; }},
    {"workspace too small", C::workspace_too_small, [](P& p) { --p.workspace_bytes; }},
    {"workspace off by a byte", C::misaligned, [](P& p) { p.workspace = off_by_a_byte(p.workspace); }},
};

void check_refused(const QuantEntry& e, const P& good, std::span<const Wrong<P>> wrongs) {
  check_refused<QuantEntry, P>(e, good, wrongs, quant_check, quant_select, all_quant_entries());
}

TEST_CASE("bad quant problems get a named status and a reason, and nothing is written") {
  for (const QuantEntry* e : all_quant_entries()) {
    if (e->policy.lanes != 256) continue;
    constexpr std::int32_t columns = 64;
    Tensor x(e->spec.x, columns), out(e->spec.out, columns), scale(DType::f32, 1);
    const bench::DeviceBuffer workspace(quant_partials * sizeof(float));
    P good;
    good.spec = e->spec;
    good.x = x.device();
    good.out = out.device();
    good.scale = static_cast<float*>(scale.device());
    good.workspace = workspace.data();
    good.workspace_bytes = workspace.bytes();
    good.rows = 1;
    good.columns = columns;
    good.x_strides = good.out_strides = {columns, 0};
    check_refused(*e, good, any);
    const bool quantises = e->spec.kind() == QuantKind::quantise;
    check_refused(*e, good,
                  quantises ? std::span<const Wrong<P>>(quantising) : std::span<const Wrong<P>>(dequantising));

    P found = good;
    found.find_scale = true;
    CHECK(quant_workspace_size(good) == 0);
    CHECK(quant_workspace_size(found) == workspace.bytes());
    if (e->spec.output().scale == ScaleMode::per_tensor) {
      check_refused(*e, found, with_found_scale);
    } else {
      CHECK(e->launch(found, {}).code == C::bad_value);
    }
    if (e->spec.output().scale == ScaleMode::per_group) {
      P overlapping = good;
      overlapping.rows = 2;
      CHECK(e->launch(overlapping, {}).code == C::bad_stride);
    }
    check_empty(*e, good, out);
    scale.download();
    CHECK(scale.gaps_kept(0, 0));
  }
}

TEST_CASE("the other architecture's fp8 flavour is refused, as codes and as values") {
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
    const DType other = facts_of(arch).fp8 == DType::fp8_e4m3fn ? DType::fp8_e4m3fnuz : DType::fp8_e4m3fn;
    P p;
    p.spec = {DType::bf16, other, ScaleMode::per_token};
    CHECK(quant_check(p, facts_of(arch)).code == C::unsupported_dtype);
    p.spec = {other, DType::bf16, ScaleMode::per_token};
    CHECK(quant_check(p, facts_of(arch)).code == C::unsupported_dtype);
    p.spec.x = facts_of(arch).fp8;
    CHECK(quant_check(p, facts_of(arch)).ok());
  }
}

}  // namespace
}  // namespace tilewave::test
