// SPDX-License-Identifier: MIT
// Rotary position embeddings: every entry against the reference, in place and not, closed forms, odd positions.
#include "tilewave/reference/rope.hpp"

#include "entries/rope.hpp"
#include "test/ops/rows.hpp"

namespace tilewave::test::rope_tests {
namespace {

template <class F>
void each_entry(F f) {
  for (const RopeEntry* e : all_rope_entries()) {
    INFO("entry " << name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy));
    f(*e);
  }
}

/// Returns what the device has in a vector of plain values.
template <class T>
bench::DeviceBuffer uploaded(const std::vector<T>& values) {
  bench::DeviceBuffer buffer(values.size() * sizeof(T));
  bench::check_hip(hipMemcpy(buffer.data(), values.data(), buffer.bytes(), hipMemcpyHostToDevice), "copying over");
  return buffer;
}

struct Shape {
  int tokens, q_heads, k_heads, head_size, rotary;
  bool odd = false;  // strides that no wide access can take
};

constexpr int table_rows = 37;

/// A call with gaps in every tensor; positions from [0, table_rows), of more than three tokens one in four outside.
class Call {
 public:
  Call(const RopeSpec& spec, const Shape& s, IndexType index, bool in_place)
      : heads_(strides(s, std::max(s.q_heads, 1))),
        q_(spec.x, s.tokens * s.q_heads, s.head_size, std::max(s.q_heads, 1), heads_),
        k_(spec.x, s.tokens * s.k_heads, s.head_size, std::max(s.k_heads, 1), heads_),
        q_out_(spec.x, s.tokens * s.q_heads, s.head_size, std::max(s.q_heads, 1), heads_),
        k_out_(spec.x, s.tokens * s.k_heads, s.head_size, std::max(s.k_heads, 1), heads_),
        columns_(spec.full_table ? s.rotary : s.rotary / 2),
        cos_(spec.table, table_rows, columns_, 1, {table_stride(s), 0}),
        sin_(spec.table, table_rows, columns_, 1, {table_stride(s), 0}),
        in_place_(in_place) {
    q_.set(s.tokens * s.q_heads, s.head_size, [](auto r, auto c) { return drawn('q', r, c); });
    k_.set(s.tokens * s.k_heads, s.head_size, [](auto r, auto c) { return drawn('k', r, c); });
    const reference::RopeAngles angles = reference::rope_yarn_angles(s.rotary, 10000, 4, 64);
    set_tables([&](int row, int c) { return static_cast<float>(reference::rope_cos(spec, angles, row, c)); },
               [&](int row, int c) { return static_cast<float>(reference::rope_sin(spec, angles, row, c)); });
    for (int t = 0; t < s.tokens; ++t) {
      positions_.push_back(t % 4 == 3 ? outside_table(index, table_rows, t / 4) : t * 11 % table_rows);
      narrow_positions_.push_back(static_cast<std::int32_t>(positions_.back()));
    }
    device_positions_ = index == IndexType::i64 ? uploaded(positions_) : uploaded(narrow_positions_);
    host = {
        .spec = spec,
        .q = q_.host(),
        .k = k_.host(),
        .cos = cos_.host(),
        .sin = sin_.host(),
        .positions = index == IndexType::i64 ? static_cast<const void*>(positions_.data()) : narrow_positions_.data(),
        .position_type = index,
        .tokens = s.tokens,
        .q_heads = s.q_heads,
        .k_heads = s.k_heads,
        .head_size = s.head_size,
        .rotary = s.rotary,
        .table_rows = table_rows,
        .q_strides = {heads_.outer, heads_.inner},
        .k_strides = {heads_.outer, heads_.inner},
        .q_out_strides = {heads_.outer, heads_.inner},
        .k_out_strides = {heads_.outer, heads_.inner},
        .table_stride = table_stride(s)};
    device = host;
    device.q = q_.device();
    device.k = k_.device();
    device.q_out = in_place ? q_.device() : q_out_.device();
    device.k_out = in_place ? k_.device() : k_out_.device();
    device.cos = cos_.device();
    device.sin = sin_.device();
    device.positions = device_positions_.data();
  }

  template <class Cos, class Sin>
  void set_tables(const Cos& cos, const Sin& sin) {
    cos_.set(table_rows, columns_, cos);
    sin_.set(table_rows, columns_, sin);
  }

  RopeProblem host, device;

  /// Compares with `wanted(token, head)`, heads of k behind those of q; a NaN is wanted where it has one.
  template <class Wanted>
  void check(const Wanted& wanted) {
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    q_out_.download(in_place_ ? q_ : q_out_);  // q_ keeps on the host what is expected from
    k_out_.download(in_place_ ? k_ : k_out_);
    for (int t = 0; t < host.tokens; ++t)
      for (int h = 0; h < host.q_heads + host.k_heads; ++h) {
        const bool is_k = h >= host.q_heads;
        const std::vector<double> want = wanted(t, h);
        const Tensor& got = is_k ? k_out_ : q_out_;
        const int row = is_k ? t * host.k_heads + h - host.q_heads : t * host.q_heads + h;
        for (int d = 0; d < host.head_size; ++d) {
          const double value = got.at(row, d);
          const double slack = half_step(host.spec.x, want[d]) * 1.001 + (d < host.rotary ? 1e-6 : 0);
          if (std::isnan(want[d]) ? std::isnan(value) : std::abs(value - want[d]) <= slack) continue;
          FAIL("token " << t << ", head " << h << ", dimension " << d << ": " << value << ", not " << want[d]);
        }
      }
    CHECK(q_out_.gaps_kept(host.tokens * host.q_heads, host.head_size));
    CHECK(k_out_.gaps_kept(host.tokens * host.k_heads, host.head_size));
  }

 private:
  static RowStrides strides(const Shape& s, int heads) {
    const std::int64_t head = s.head_size + (s.odd ? 1 : 16);
    return {head * std::max(heads, s.k_heads) + (s.odd ? 3 : 32), head};
  }
  static std::int64_t table_stride(const Shape& s) { return align_up(s.rotary, 16) + (s.odd ? 1 : 16); }

  RowStrides heads_;
  Tensor q_, k_, q_out_, k_out_;
  int columns_;
  Tensor cos_, sin_;
  bool in_place_;
  std::vector<std::int64_t> positions_;
  std::vector<std::int32_t> narrow_positions_;
  bench::DeviceBuffer device_positions_;
};

const Shape shapes[] = {{1, 1, 0, 64, 64},  {3, 4, 2, 128, 128}, {5, 3, 1, 128, 64},   {2, 2, 1, 80, 80},
                        {9, 1, 1, 256, 96}, {1, 0, 2, 512, 64},  {9, 3, 1, 64, 6},     {2, 1, 1, 10, 4},
                        {33, 5, 3, 64, 32}, {5, 2, 2, 96, 96},   {3, 2, 1, 64, 64, 1}, {2, 1, 1, 2, 2}};

TEST_CASE("rope: every entry computes the reference, in place and not") {
  each_entry([&](const RopeEntry& e) {
    int variant = 0, taken = 0;
    for (const Shape& s : shapes) {
      const bool in_place = variant % 2 == 0;
      const IndexType index = variant++ % 3 == 0 ? IndexType::i64 : IndexType::i32;
      INFO("tokens " << s.tokens << " heads " << s.q_heads << "/" << s.k_heads << " of " << s.head_size << ", "
                     << s.rotary << " rotated, " << (in_place ? "in place" : "apart") << ", odd " << s.odd);
      Call call(e.spec, s, index, in_place);
      const Status status = e.launch(call.device, {});
      if (!policy_takes(e.policy, e.spec.x, s.head_size, rope_aligned(call.device))) {
        CHECK(name_of(status.code) == "no_matching_entry");
        continue;
      }
      INFO(status.reason);
      REQUIRE(status.ok());
      call.check([&](int t, int h) { return reference::rope_head(call.host, t, h); });
      ++taken;
    }
    CHECK(taken > 0);
  });
}

TEST_CASE("rope: angle 0 is the identity and a quarter turn swaps, to the bit") {
  each_entry([](const RopeEntry& e) {
    const Shape s{3, 2, 1, 64, 32};
    for (const bool quarter : {false, true}) {
      Call call(e.spec, s, IndexType::i32, true);
      call.set_tables([&](int, int) { return quarter ? 0.0f : 1.0f; }, [&](int, int) { return quarter ? 1.0f : 0.0f; });
      const RopeProblem host = call.host;
      REQUIRE(e.launch(call.device, {}).ok());
      RopeProblem still = host;
      still.rotary = 0;  // the reference turns nothing then
      call.check([&](int t, int h) {
        std::vector<double> head = reference::rope_head(still, t, h);
        if (!quarter) return head;
        const std::vector<double> x = head;
        for (int i = 0; i < 16; ++i) {
          const bool halves = e.spec.pairs == RopePairs::halves;
          const int a = halves ? i : 2 * i, b = halves ? i + 16 : 2 * i + 1;
          head[a] = -x[b];
          head[b] = x[a];
        }
        return head;
      });
    }
  });
}

TEST_CASE("rope: q and k are slices of a fused qkv tensor, in every order of waves") {
  each_entry([](const RopeEntry& e) {
    constexpr int tokens = 9, q_heads = 5, k_heads = 2, all = q_heads + 2 * k_heads, size = 128;
    if (e.policy.chunks != 2 || e.policy.columns(e.spec.x) != size) return;
    each_schedule([&] {
      Tensor qkv(e.spec.x, tokens * all, size, all, {all * size + 16, size});
      qkv.set(tokens * all, size, [](auto r, auto c) { return drawn('x', r, c); });
      Call call(e.spec, {tokens, q_heads, k_heads, size, 64}, IndexType::i64, true);
      const auto slice = [&](const void* base, int heads) {
        return static_cast<const std::byte*>(base) + heads * size * size_of(e.spec.x);
      };
      RopeProblem p = call.device, host = call.host;
      p.q = p.q_out = qkv.device();
      p.k = p.k_out = const_cast<std::byte*>(slice(qkv.device(), q_heads));
      p.q_strides = p.q_out_strides = p.k_strides = p.k_out_strides = {all * size + 16, size};
      host.q = qkv.host();
      host.k = slice(qkv.host(), q_heads);
      host.q_strides = host.k_strides = p.q_strides;
      const RopeEntry* chosen = nullptr;
      REQUIRE(rope_select(p, all_rope_entries(), facts_of(e.arch), chosen).ok());
      CHECK(name_of(chosen->policy) == name_of(e.policy));
      REQUIRE(chosen->launch(p, {}).ok());
      bench::check_hip(hipDeviceSynchronize(), "running the kernel");
      Tensor got(e.spec.x, tokens * all, size, all, {all * size + 16, size});
      got.download(qkv);
      for (int t = 0; t < tokens; ++t)
        for (int h = 0; h < all; ++h) {
          const bool turned = h < q_heads + k_heads;
          const std::vector<double> want = turned ? reference::rope_head(host, t, h) : std::vector<double>();
          for (int d = 0; d < size; ++d) {
            const double value = got.at(t * all + h, d);
            const double w = turned ? want[d] : qkv.at(t * all + h, d);
            const double slack = turned ? half_step(e.spec.x, w) * 1.001 + 1e-6 : 0;
            if (std::isnan(w) ? std::isnan(value) : std::abs(value - w) <= slack) continue;
            FAIL("token " << t << ", head " << h << ", dimension " << d << ": " << value << ", not " << w);
          }
        }
      CHECK(got.gaps_kept(tokens * all, size));
    });
  });
}

TEST_CASE("rope: tokens and heads beyond 2^31 elements") {
  each_entry([](const RopeEntry& e) {
    if (e.policy.chunks != 2 || e.policy.columns(e.spec.x) != 64 || e.spec.table != e.spec.x) return;
    if (!has_memory(std::size_t{26} << 30)) return;
    Call call(e.spec, {2, 2, 1, 64, 64}, IndexType::i32, true);
    const RowStrides far = far_strides(2);
    Tensor q(e.spec.x, 4, 64, 2, far);
    q.set(4, 64, [](auto r, auto c) { return drawn('f', r, c); });
    RopeProblem p = call.device, host = call.host;
    p.q = p.q_out = q.device();
    p.q_strides = p.q_out_strides = {far.outer, far.inner};
    host.q = q.host();
    host.q_strides = {q.host_strides().outer, q.host_strides().inner};
    REQUIRE(e.launch(p, {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    Tensor got(e.spec.x, 4, 64, 2, far);
    got.download(q);
    for (int row = 0; row < 4; ++row) {
      const std::vector<double> want = reference::rope_head(host, row / 2, row % 2);
      for (int d = 0; d < 64; ++d) CHECK(got.at(row, d) == Approx(want[d]).margin(0.02));
    }
  });
}

}  // namespace
}  // namespace tilewave::test::rope_tests
