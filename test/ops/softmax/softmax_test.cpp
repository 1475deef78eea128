// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference in double: boundary columns, strides, masks, rows that see nothing,
// -inf and NaN.
#include "entries/softmax.hpp"

#include "test/ops/rows.hpp"
#include "test/turns.hpp"
#include "tilewave/ops/softmax/registry.hpp"

namespace tilewave::test::softmax_tests {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int32_t rows = 3, columns = 256, inner_rows = 1;
  int gap = 0;       // elements between two rows
  bool far = false;  // see far_strides
  std::vector<std::int32_t> lengths = {};
  std::int32_t rows_per_length = 1, causal_rows = 0;
  float scale = 1, amplitude = 1;
  float (*value)(int row, int column) = nullptr;  // instead of random ones
  bool lse = true, in_place = false;
};

/// Runs the entry, or the one that is selected if null, and compares all it wrote with the reference; what is wrong.
std::string run(const ArchFacts& facts, const SoftmaxSpec& spec, const SoftmaxEntry* entry, const Shape& s) {
  const std::int64_t inner = s.columns + s.gap;
  const RowStrides strides = s.far               ? far_strides(s.inner_rows)
                             : s.inner_rows == 1 ? RowStrides{inner, 0}
                                                 : RowStrides{inner * s.inner_rows + s.gap, inner};
  Tensor x(spec.x, s.rows, s.columns, s.inner_rows, strides), out(spec.x, s.rows, s.columns, s.inner_rows, strides);
  Tensor lse(DType::f32, s.rows);
  x.set(s.rows, s.columns, [&](int r, int c) { return s.value ? s.value(r, c) : s.amplitude * drawn('x', r, c); });
  bench::DeviceBuffer lengths(s.lengths.size() * sizeof(std::int32_t));
  if (!s.lengths.empty()) {
    bench::check_hip(hipMemcpy(lengths.data(), s.lengths.data(), lengths.bytes(), hipMemcpyHostToDevice), "copying");
  }
  SoftmaxProblem p;
  p.spec = spec;
  p.x = x.device();
  p.out = s.in_place ? x.device() : out.device();
  if (s.lse) p.lse = static_cast<float*>(lse.device());
  p.lengths = static_cast<const std::int32_t*>(lengths.data());
  p.scale = s.scale;
  p.rows = s.rows;
  p.columns = s.columns;
  p.rows_per_length = s.rows_per_length;
  p.causal_rows = s.causal_rows;
  p.inner_rows = s.inner_rows;
  p.x_strides = p.out_strides = strides;
  SoftmaxProblem host = p;
  host.x = x.host();
  host.x_strides = x.host_strides();
  host.lengths = s.lengths.empty() ? nullptr : s.lengths.data();
  if (entry == nullptr) {
    if (!softmax_select(p, all_softmax_entries(), facts, entry).ok()) return "no entry selected";
  } else if (!policy_takes(entry->policy, spec.x, s.columns, softmax_aligned(p))) {
    return entry->launch(p, {}).code == StatusCode::no_matching_entry ? "" : "took rows that it does not take";
  }
  const Status status = entry->launch(p, {});
  if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
  bench::check_hip(hipDeviceSynchronize(), "running the kernel");
  out.download(s.in_place ? x : out);
  lse.download();
  if (!out.gaps_kept(s.rows, s.columns)) return "wrote between rows";

  const auto same = [](double got, double wanted, double tolerance) {
    return std::isnan(wanted)   ? std::isnan(got)
           : std::isinf(wanted) ? got == wanted
                                : std::abs(got - wanted) <= tolerance;
  };
  for (int r = 0; r < s.rows; ++r) {
    const reference::SoftmaxRow wanted = reference::softmax_row(host, r);
    // exp2 of an f32 argument z is off by about |z| 2^-24 relative; log softmax by that absolutely.
    const double f32_error = 4e-7 * (2 + std::abs(s.scale) * 4 * s.amplitude);
    const auto wrong = [&](const char* what, int c, double got, double want) {
      return std::string(what) + " row " + std::to_string(r) + " column " + std::to_string(c) + ": " +
             std::to_string(got) + ", not " + std::to_string(want);
    };
    if (s.lse && !same(lse.at(0, r), wanted.lse, f32_error * (1 + std::abs(wanted.lse)))) {
      return wrong("lse", -1, lse.at(0, r), wanted.lse);
    }
    for (int c = 0; c < s.columns; ++c) {
      const double exact = wanted.values[c], rounded = reference::rounded(spec.x, exact);
      const double want = std::isinf(rounded) ? rounded : exact;  // a logarithm beyond f16
      const double slack =
          spec.kind == SoftmaxKind::softmax ? f32_error * want + 1e-38 : f32_error * (1 + std::abs(want));
      if (!same(out.at(r, c), want, half_step(spec.x, want) * 1.001 + slack))
        return wrong("out", c, out.at(r, c), want);
    }
  }
  return "";
}

template <class F>
void each_of(std::span<const SoftmaxEntry* const> entries, const F& f) {
  for (const SoftmaxEntry* e : entries) {
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}
template <class F>
void every_softmax_entry(const F& f) {
  each_of(all_softmax_entries(), f);
}
template <class F>
void each_softmax_entry(const F& f) {  // whose turn it is
  each_of(in_turn(all_softmax_entries()), f);
}

TEST_CASE("every softmax entry computes the reference on boundary columns") {
  every_softmax_entry([](const SoftmaxEntry& e) {
    const int unit = 16 / size_of(e.spec.x),
              most = static_cast<int>(std::min<std::int64_t>(e.policy.columns(e.spec.x), 8192));
    std::vector<std::int32_t> all{unit, most - unit, most, 136};
    if (!e.policy.held) all.insert(all.end(), {2 * most, 2 * most + 3 * unit});
    if (!e.policy.wide(e.spec.x)) all.insert(all.end(), {1, 2, 7, 127, 129, most - 1, 997});
    int turn = 0;
    for (const std::int32_t columns : all) {
      if (columns < 1) continue;
      Shape s{.rows = turn % 3 + e.policy.rows,
              .columns = columns,
              .scale = turn % 2 ? 0.3f : -2.0f,
              .amplitude = turn % 4 == 3 ? 30.0f : 1.0f};
      ++turn;
      const std::string error = run(facts_of(e.arch), e.spec, &e, s);
      if (error != "") return std::to_string(columns) + " columns: " + error;
    }
    return std::string();
  });
}

TEST_CASE("the blocks of a softmax cluster find one answer, whichever wave is ahead") {
  each_softmax_entry([](const SoftmaxEntry& e) {
    std::string error;
    if (e.policy.blocks != 2) return error;
    const auto columns = static_cast<std::int32_t>(e.policy.columns(e.spec.x));  // every wave has some
    const Shape s{.rows = 11, .columns = columns, .lengths = {columns, 1000, columns}, .rows_per_length = 4};
    each_schedule([&] { error += run(facts_of(e.arch), e.spec, &e, s); });
    return error;
  });
}

TEST_CASE("softmax rows may have gaps, inner rows their own stride, lengths and a causal mask hide columns") {
  each_softmax_entry([](const SoftmaxEntry& e) {
    const int gap = !e.policy.wide(e.spec.x) ? 3 : 16;
    const Shape shapes[] = {
        {.rows = 7, .columns = 128, .gap = gap, .lse = false},
        {.rows = 8, .columns = 128, .inner_rows = 3, .gap = gap},
        {.rows = 8, .columns = 128, .lengths = {5, 0, 128, -3, 1, 127, 1000, 64}},
        {.rows = 4, .columns = 128, .lengths = {0x7fffffff, -0x7fffffff - 1, 129, 7}, .causal_rows = 2},
        {.rows = 8, .columns = 128, .causal_rows = 4},
        {.rows = 12, .columns = 128, .lengths = {3, 128}, .rows_per_length = 6, .causal_rows = 6},
    };
    for (const Shape& s : shapes) {
      const std::string error = run(facts_of(e.arch), e.spec, &e, s);
      if (error != "") return error;
    }
    return std::string();
  });
}

TEST_CASE("softmax rows may start beyond 2^31 and 2^32 elements") {
  if (!has_memory(std::size_t{64} << 30)) return;
  each_softmax_entry([](const SoftmaxEntry& e) {
    if (e.policy.lanes != 256) return std::string();
    std::string error;
    for (const int inner_rows : {1, 2}) {
      error += run(facts_of(e.arch), e.spec, &e,
                   {.rows = 4, .columns = 128, .inner_rows = inner_rows, .far = true, .lengths = {128, 5, 100, 128}});
    }
    return error;
  });
}

TEST_CASE("softmax of equal, -inf, huge and NaN rows") {
  each_softmax_entry([](const SoftmaxEntry& e) {
    const Shape shapes[] = {
        {.columns = 128, .value = [](int, int) { return 7.0f; }},
        {.columns = 128, .value = [](int r, int) { return r == 1 ? -inf : 0.5f; }},
        {.columns = 128, .value = [](int r, int c) { return c % 3 == r ? -inf : 0.25f * static_cast<float>(c % 5); }},
        {.columns = 128,
         .scale = 4,
         .amplitude = 200,
         .value = [](int r, int c) { return c == 5 + r ? 200.0f : -200.0f; }},
        {.columns = 128, .value = [](int r, int c) { return r == 1 && c == 77 ? nan : 1.0f; }},
    };
    for (const Shape& s : shapes) {
      const std::string error = run(facts_of(e.arch), e.spec, &e, s);
      if (error != "") return error;
    }
    return std::string();
  });
}

TEST_CASE("softmax columns that a row does not see stay 0 or -inf where it sees NaN or an infinity") {
  constexpr auto value = [](int r, int c) { return c != 2 + r ? -1.0f : r % 2 == 0 ? nan : inf; };
  each_softmax_entry([&](const SoftmaxEntry& e) {
    const std::vector<std::int32_t> lengths{100, 101, 3, 128, 64, 0};
    return run(facts_of(e.arch), e.spec, &e, {.rows = 6, .columns = 128, .lengths = lengths, .value = value}) +
           run(facts_of(e.arch), e.spec, &e, {.rows = 6, .columns = 128, .causal_rows = 120, .value = value});
  });
}

TEST_CASE("softmax of what is far from 0, or far apart, is that of the differences") {
  each_softmax_entry([](const SoftmaxEntry& e) {
    std::vector<Shape> shapes{
        // Products beyond 2^31, of which half an ulp is many powers of two.
        {.columns = 136, .scale = 1e6f, .value = [](int r, int c) { return 1000.0f - 8.0f * ((c + r) % 5); }},
        // An offset of 1e6; f32 has steps of 1/16 there.
        {.columns = 136, .value = [](int r, int c) { return 1e6f + 0.125f * ((c * 7 + r) % 40); }},
        // Differences beyond f32.
        {.columns = 136, .scale = 1e-38f, .value = [](int, int c) { return c % 2 ? 3e38f : -3e38f; }},
    };
    if (e.policy.lanes == 256) {
      const int one = e.policy.wide(e.spec.x) ? 16 / size_of(e.spec.x) : 1;
      shapes.push_back({.columns = one, .value = [](int, int) { return 6.85e9f; }});
      shapes.push_back(
          {.columns = 136, .scale = -2e35f, .value = [](int, int c) { return c % 3 == 0 ? -7.0f : 7.0f; }});
      shapes.push_back({.columns = 136, .scale = 0, .value = [](int, int c) { return c % 2 ? 3e38f : -3e38f; }});
    }
    for (Shape& s : shapes) {
      s.rows = 2;
      s.amplitude = 0;
      const std::string error = run(facts_of(e.arch), e.spec, &e, s);
      if (error != "") return "values " + std::to_string(&s - shapes.data()) + ": " + error;
    }
    return std::string();
  });
}

TEST_CASE("softmax may be computed in place") {
  each_softmax_entry([](const SoftmaxEntry& e) {
    const auto most = static_cast<int>(std::min<std::int64_t>(e.policy.columns(e.spec.x), 8192));
    std::string error = run(facts_of(e.arch), e.spec, &e, {.rows = 2, .columns = most, .in_place = true});
    if (!e.policy.held) error += run(facts_of(e.arch), e.spec, &e, {.rows = 1, .columns = 2 * most, .in_place = true});
    return error +
           run(facts_of(e.arch), e.spec, &e, {.rows = 7, .columns = 128, .inner_rows = 3, .gap = 16, .in_place = true});
  });
}

}  // namespace
}  // namespace tilewave::test::softmax_tests
