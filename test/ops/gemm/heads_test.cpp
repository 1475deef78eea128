// SPDX-License-Identifier: MIT
// Products of attention heads, as latent attention has them: slices of heads by strides, the halves of one tensor of
// weights, and one A for all heads.
#include "entries/gemm.hpp"
#include "test/ops/rows.hpp"
#include "test/turns.hpp"
#include "test/uploads.hpp"

namespace tilewave::test {
namespace {

constexpr std::int32_t heads = 3, nope = 128, whole = 192, latent = 512;

std::vector<std::uint16_t> drawn_bf16(char name, std::int64_t count, float scale = 1) {
  std::vector<std::uint16_t> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = f32_to_bf16(scale * drawn(name, i / 512, i % 512));
  return values;
}

/// The operands and the output of a product of heads, on the device and on the host.
struct Heads {
  Uploads upload;
  std::vector<std::uint16_t> a, b = drawn_bf16('u', heads * 2 * nope * latent, 0.0625f), out;
  GemmProblem p;

  Heads(const GemmSpec& spec, std::vector<std::uint16_t> of_a, std::int32_t m, std::int32_t n, std::int32_t k,
        std::int64_t out_elements)
      : a(std::move(of_a)), out(out_elements, 0x7fff) {
    p.spec = spec, p.m = m, p.n = n, p.k = k;
    p.a = upload(a), p.b = upload(b), p.out = upload(out);
    p.b_stride = latent;
    if (spec.groups == GemmGroups::one) {
      p.batch = heads;
    } else {
      p.groups = heads;
    }
  }
  /// Runs the product by an entry, and returns the first element that is wrong, or "". `b_first`: where the weights of a
  /// head begin. `rows`: one number, of all groups. What belongs to no product must stay as it was.
  std::string run(const GemmEntry& entry, std::int64_t b_first, const std::vector<std::int32_t>& rows = {}) {
    p.b = static_cast<const std::uint16_t*>(p.b) + b_first;
    if (!rows.empty()) p.group_rows = static_cast<const std::int32_t*>(upload(rows));
    const GemmEntry* const only = &entry;
    GemmPlan plan;
    if (const Status s = gemm_select(p, {&only, 1}, facts_of(entry.arch), plan); !s.ok()) return s.reason;
    const bench::DeviceBuffer workspace(std::max<std::size_t>(16, plan.workspace_bytes(p)));
    p.workspace = workspace.data(), p.workspace_bytes = plan.workspace_bytes(p);
    if (const Status s = plan.launch(p, {}); !s.ok()) return s.reason;
    bench::check_hip(hipDeviceSynchronize(), "running a product");
    bench::check_hip(hipMemcpy(out.data(), p.out, 2 * out.size(), hipMemcpyDeviceToHost), "copying back");
    std::vector<bool> written(out.size());
    for (std::int32_t h = 0; h < heads; ++h) {
      for (std::int32_t m = 0; m < (rows.empty() ? p.m : std::min(rows[0], p.m)); ++m) {
        for (std::int32_t n = 0; n < p.n; ++n) {
          const bool nn = p.spec.layout == GemmLayout::nn;
          const auto [want, magnitude] =
              dot_of_bf16(&a[h * p.a_batch_stride + m * p.a_stride], 1,
                          &b[b_first + h * p.b_batch_stride + (nn ? n : n * p.b_stride)], nn ? p.b_stride : 1, p.k);
          const std::int64_t at = h * p.out_batch_stride + m * p.out_stride + n;
          written[at] = true;
          const double got = bf16_to_f32(out[at]);
          if (!(std::abs(got - want) <= 0x1p-8 * std::abs(want) + 0x1p-20 * magnitude))
            return "head " + std::to_string(h) + ", row " + std::to_string(m) + ", column " + std::to_string(n) + ": " +
                   std::to_string(got) + ", not " + std::to_string(want);
        }
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!written[i] && out[i] != 0x7fff) return "wrote element " + std::to_string(i) + ", which is of no head";
    return "";
  }
};

template <class F>
void each_entry(const GemmSpec& spec, std::span<const GemmEntry* const> entries, const F& f) {
  int ran = 0;
  for (const GemmEntry* e : in_turn(entries)) {
    if (!(e->spec == spec) || e->policy.leaves_room()) continue;  // whose calls are of one layer
    INFO(name_of(e->arch) << " " << name_of(e->spec) << " " << name_of(e->policy));
    f(*e);
    ++ran;
  }
  CHECK(ran > 0);
}
GemmSpec with(GemmLayout layout, GemmGroups groups = GemmGroups::one) {
  GemmSpec s;
  s.layout = layout, s.groups = groups;
  return s;
}

TEST_CASE("queries of heads are absorbed, and sums of latent rows become values, by strides alone") {
  for (const std::int32_t tokens : {1, 70}) {
    each_entry(with(GemmLayout::nn), all_gemm_feature_entries(), [&](const GemmEntry& e) {
      Heads call(e.spec, drawn_bf16('q', tokens * heads * whole), tokens, latent, nope, tokens * heads * 576);
      call.p.a_stride = heads * whole, call.p.a_batch_stride = whole;
      call.p.b_batch_stride = 2 * nope * latent;
      call.p.out_stride = heads * 576, call.p.out_batch_stride = 576;
      CHECK(call.run(e, 0) == "");
    });
    each_entry(with(GemmLayout::nt), all_gemm_entries(), [&](const GemmEntry& e) {
      Heads call(e.spec, drawn_bf16('l', tokens * heads * latent), tokens, nope, latent, tokens * heads * nope);
      call.p.a_stride = heads * latent, call.p.a_batch_stride = latent;
      call.p.b_batch_stride = 2 * nope * latent;
      call.p.out_stride = heads * nope, call.p.out_batch_stride = nope;
      CHECK(call.run(e, nope * latent) == "");
    });
  }
}

TEST_CASE("batches and masked groups may share one a") {
  constexpr std::int32_t tokens = 77;
  const auto share = [&](const GemmEntry& e) {
    Heads call(e.spec, drawn_bf16('c', tokens * latent), tokens, nope, latent, tokens * heads * whole);
    call.p.shared_a = true, call.p.a_stride = latent;
    call.p.b_batch_stride = 2 * nope * latent;
    call.p.out_stride = heads * whole, call.p.out_batch_stride = whole;
    return call;
  };
  each_entry(with(GemmLayout::nt), all_gemm_entries(), [&](const GemmEntry& e) { CHECK(share(e).run(e, 0) == ""); });
  each_entry(with(GemmLayout::nt, GemmGroups::masked), all_gemm_grouped_entries(), [&](const GemmEntry& e) {
    for (const std::int32_t rows : {tokens, 65, 0, tokens + 9}) CHECK(share(e).run(e, 0, {rows}) == "");
  });
}

TEST_CASE("an a that is shared wrongly is refused by name") {
  const GemmEntry* const e = all_gemm_entries().front();
  Heads call(with(GemmLayout::nt), drawn_bf16('c', 9 * latent), 9, nope, latent, 9 * heads * nope);
  GemmProblem& p = call.p;
  p.shared_a = true, p.a_stride = latent, p.b_batch_stride = 2 * nope * latent;
  p.out_stride = heads * nope, p.out_batch_stride = nope;
  REQUIRE(gemm_check(p, facts_of(e->arch)).ok());
  p.a_batch_stride = 8;
  CHECK(gemm_check(p, facts_of(e->arch)).code == StatusCode::bad_value);
  p.a_batch_stride = 0, p.shared_a = false;
  CHECK(gemm_check(p, facts_of(e->arch)).code == StatusCode::bad_stride);
  p.shared_a = true, p.out = const_cast<void*>(p.a);
  CHECK(gemm_check(p, facts_of(e->arch)).code == StatusCode::bad_value);
}

}  // namespace
}  // namespace tilewave::test
