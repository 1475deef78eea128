// SPDX-License-Identifier: MIT
// Combine of partial results: every entry against the reference, closed forms, and the choice of an entry.
#include "tilewave/reference/attention_combine.hpp"

#include <algorithm>

#include "entries/attention_combine.hpp"
#include "test/ops/rows.hpp"

namespace tilewave::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
using Problem = AttentionCombineProblem;
using Entry = AttentionCombineEntry;

std::string describe(const Entry& e) {
  return std::string(name_of(e.arch)) + "/" + name_of(e.spec) + "/" + name_of(e.policy);
}
template <class F>
void each_entry(F f) {
  for (const Entry* e : all_attention_combine_entries()) {
    INFO("entry " << describe(*e));
    f(*e);
  }
}

struct Shape {
  int partials, rows, heads, head_size;
  bool heads_outside = false;  // [heads, rows] instead of [rows, heads]
  int shift = 0;               // elements between a multiple of 16 bytes and x, and out
};

/// A call whose tensors have gaps everywhere, on host and device.
class Combine {
 public:
  Problem p;
  std::vector<float> lse;  // [partials, rows, heads]

  Combine(const AttentionCombineSpec& spec, const Shape& s) : shift_(s.shift) {
    p.spec = spec;
    p.partials = s.partials;
    p.rows = s.rows;
    p.heads = s.heads;
    p.head_size = s.head_size;
    const std::int64_t width = align_up(s.head_size, 8) + 8;
    const std::int64_t row = s.heads_outside ? width : width * s.heads + 8;
    const std::int64_t head = s.heads_outside ? width * s.rows + 16 : width;
    const std::int64_t both = std::max(row * s.rows, head * s.heads);
    p.x_strides = {both + 32, row, head};
    p.out_strides = {row, head};
    p.x_lse_strides = s.heads_outside ? PartialStrides{std::int64_t{s.rows} * s.heads + 3, 1, s.rows}
                                      : PartialStrides{std::int64_t{s.rows} * s.heads, s.heads, 1};
    p.lse_strides = s.heads_outside ? CombinedStrides{1, s.rows} : CombinedStrides{s.heads, 1};
    lse.assign(extent(p.x_lse_strides.partial, p.x_lse_strides.row, p.x_lse_strides.head, 1), nan);
    x_.assign(size_of(spec.x) * (shift_ + extent(p.x_strides.partial, row, head, s.head_size)), unread_byte);
  }

  void set(int i, int r, int h, float value_lse, auto value) {
    lse[i * p.x_lse_strides.partial + r * p.x_lse_strides.row + h * p.x_lse_strides.head] = value_lse;
    const int bytes = size_of(p.spec.x);
    for (int d = 0; d < p.head_size; ++d) {
      const std::uint32_t bits = encode(p.spec.x, value(d));
      const auto at = shift_ + i * p.x_strides.partial + r * p.x_strides.row + h * p.x_strides.head + d;
      std::memcpy(&x_[at * bytes], &bits, bytes);
    }
  }
  /// Draws random values, with lse in (-4, 4). Every fifth partial has no weight and holds NaN.
  void fill() {
    for (int i = 0; i < p.partials; ++i)
      for (int r = 0; r < p.rows; ++r)
        for (int h = 0; h < p.heads; ++h) {
          const bool none = (i + r + h) % 5 == 4;
          const std::uint64_t key = bench::random_bits({std::uint64_t(i), std::uint64_t(r), std::uint64_t(h)});
          set(i, r, h, none ? -inf : 4 * bench::random_uniform(key, 1 << 20),
              [&](int d) { return none ? nan : bench::random_uniform(key, d); });
        }
  }

  struct Answer {
    std::vector<std::uint8_t> out;
    std::vector<float> lse;
  };
  /// Runs an entry, or the selected one if it is null. The test fails if something goes wrong before there is an
  /// answer.
  Answer run(const Entry* entry, const ArchFacts& facts) {
    bench::DeviceBuffer x(x_.size()), x_lse(lse.size() * 4);
    copy(x, x_.data());
    copy(x_lse, lse.data());
    const std::int64_t out_elements = shift_ + extent(0, p.out_strides.row, p.out_strides.head, p.head_size);
    bench::DeviceBuffer out(out_elements * size_of(p.spec.out));
    bench::DeviceBuffer out_lse(extent(0, p.lse_strides.row, p.lse_strides.head, 1) * 4);
    out.fill(unwritten_byte);
    out_lse.fill(unwritten_byte);
    Problem device = p;
    device.x = static_cast<const std::byte*>(x.data()) + shift_ * size_of(p.spec.x);
    device.x_lse = static_cast<const float*>(x_lse.data());
    device.out = static_cast<std::byte*>(out.data()) + shift_ * size_of(p.spec.out);
    device.lse = static_cast<float*>(out_lse.data());
    if (entry == nullptr) {
      const Status chosen = attention_combine_select(device, all_attention_combine_entries(), facts, entry);
      if (!chosen.ok()) throw std::runtime_error(chosen.reason);
    }
    const Status status = entry->launch(device, {});
    if (!status.ok()) throw std::runtime_error(status.reason);
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    Answer answer{std::vector<std::uint8_t>(out.bytes()), std::vector<float>(out_lse.bytes() / 4)};
    bench::check_hip(hipMemcpy(answer.out.data(), out.data(), out.bytes(), hipMemcpyDeviceToHost), "copying back");
    bench::check_hip(hipMemcpy(answer.lse.data(), out_lse.data(), out_lse.bytes(), hipMemcpyDeviceToHost),
                     "copying back");
    return answer;
  }
  bool takes(const Entry& e) const {
    Problem host = p;
    host.x = reinterpret_cast<const void*>(std::uintptr_t{1 << 20} + shift_ * size_of(p.spec.x));
    host.out = reinterpret_cast<void*>(std::uintptr_t{1 << 20} + shift_ * size_of(p.spec.out));
    return policy_takes(e.policy, p.spec.x, p.head_size, attention_combine_aligned(host));
  }
  double out(const Answer& a, int r, int h, int d) const {
    return reference::element(p.spec.out, a.out.data(), shift_ + r * p.out_strides.row + h * p.out_strides.head + d);
  }
  double lse_of(const Answer& a, int r, int h) const { return a.lse[r * p.lse_strides.row + h * p.lse_strides.head]; }

  /// The number of values that are off by more than f32 arithmetic and the rounding of out, or were written outside
  /// elements.
  int wrong(const Answer& a) const {
    Problem host = p;
    host.x = x_.data() + shift_ * size_of(p.spec.x);
    host.x_lse = lse.data();
    int wrong = 0;
    std::vector<bool> used(a.out.size());
    const double step = p.spec.out == DType::bf16 ? 0x1p-8 : p.spec.out == DType::f16 ? 0x1p-11 : 0;
    for (int r = 0; r < p.rows; ++r)
      for (int h = 0; h < p.heads; ++h) {
        const reference::CombinedRow wanted = reference::combined_row(host, r, h);
        const double got = lse_of(a, r, h);
        wrong += !(got == wanted.lse || std::abs(got - wanted.lse) < 2e-6 * (1 + std::abs(wanted.lse)));
        for (int d = 0; d < p.head_size; ++d)
          wrong += !(std::abs(out(a, r, h, d) - wanted.values[d]) <= step * 1.01 * std::abs(wanted.values[d]) + 3e-6);
        const std::int64_t at = shift_ + r * p.out_strides.row + h * p.out_strides.head;
        std::fill_n(used.begin() + at * size_of(p.spec.out), p.head_size * size_of(p.spec.out), true);
      }
    for (std::size_t i = 0; i < used.size(); ++i) wrong += !used[i] && a.out[i] != unwritten_byte;
    return wrong;
  }

 private:
  static void copy(const bench::DeviceBuffer& to, const void* from) {
    if (to.bytes() > 0) bench::check_hip(hipMemcpy(to.data(), from, to.bytes(), hipMemcpyHostToDevice), "copying");
  }
  std::int64_t extent(std::int64_t partial, std::int64_t row, std::int64_t head, std::int64_t width) const {
    return (p.partials - 1) * partial + (p.rows - 1) * row + (p.heads - 1) * head + width;
  }
  std::vector<std::uint8_t> x_;
  int shift_;
};

constexpr Shape shapes[] = {{1, 1, 1, 64},           {2, 3, 4, 128},  {7, 5, 3, 80, true},
                            {128, 2, 3, 256},        {65, 1, 7, 512}, {9, 3, 2, 1},
                            {33, 2, 2, 37, true},    {3, 2, 5, 192},  {8, 2, 3, 511},
                            {16, 4, 2, 96, true, 1}, {31, 1, 3, 16},  {5, 70, 2, 64}};

TEST_CASE("combine: every entry is right on all shapes it takes, whatever partials without weight hold") {
  each_entry([](const Entry& e) {
    int taken = 0;
    for (const Shape& s : shapes) {
      Combine call(e.spec, s);
      if (!call.takes(e)) continue;
      ++taken;
      call.fill();
      INFO(s.partials << " partials, " << s.rows << " rows, " << s.heads << " heads, head_size " << s.head_size);
      CHECK(call.wrong(call.run(&e, facts_of(e.arch))) == 0);
    }
    CHECK(taken > 0);
  });
}

TEST_CASE("combine: an entry is selected for every shape, and is right") {
  std::vector<std::pair<ArchId, AttentionCombineSpec>> seen;
  each_entry([&](const Entry& e) {
    if (std::find(seen.begin(), seen.end(), std::pair{e.arch, e.spec}) != seen.end()) return;
    seen.push_back({e.arch, e.spec});
    for (const Shape& s : shapes) {
      Combine call(e.spec, s);
      call.fill();
      INFO(s.partials << " partials, " << s.rows << " rows, " << s.heads << " heads, head_size " << s.head_size);
      CHECK(call.wrong(call.run(nullptr, facts_of(e.arch))) == 0);
    }
  });
  CHECK(seen.size() ==
        attention_combine_specs(ArchId::gfx950).size() * (bench::emulated_device ? std::size(all_archs) : 1));
}

TEST_CASE("combine: partials without weight, alone and all of them, and lse far apart, with the same bits twice") {
  each_entry([](const Entry& e) {
    Combine call(e.spec, {4, 6, 1, 64, false, 0});
    const auto constant = [](float v) { return [v](int) { return v; }; };
    const float lses[6][4] = {{-inf, -inf, -inf, -inf},     {-inf, 3, -inf, -inf}, {1e4f, 0, 1e4f, -1e4f}, {0, 0, 0, 0},
                              {-1e30f, -inf, -inf, -1e30f}, {-200, 0, -inf, -200}};
    for (int r = 0; r < 6; ++r)
      for (int i = 0; i < 4; ++i) call.set(i, r, 0, lses[r][i], constant(lses[r][i] == -inf ? nan : float(1 << i)));
    const Combine::Answer a = call.run(&e, facts_of(e.arch)), again = call.run(&e, facts_of(e.arch));
    const double values[] = {0, 2, 2.5, 3.75, 4.5, 2};
    const float totals[] = {-inf, 3, 1e4f + std::log(2.0f), std::log(4.0f), -1e30f, 0};
    for (int r = 0; r < 6; ++r) {
      CAPTURE(r);
      CHECK(call.out(a, r, 0, 63) == values[r]);
      const double lse = call.lse_of(a, r, 0);
      CHECK((lse == totals[r] || std::abs(lse - totals[r]) <= 4e-7f * (1 + std::abs(totals[r]))));
    }
    CHECK(a.out == again.out);
    CHECK(std::memcmp(a.lse.data(), again.lse.data(), a.lse.size() * 4) == 0);
  });
}

TEST_CASE("combine: NaN that has weight is told") {
  each_entry([](const Entry& e) {
    Combine call(e.spec, {3, 2, 1, 64, false, 0});
    call.fill();
    call.set(1, 0, 0, 0.0f, [](int) { return nan; });
    call.set(1, 1, 0, nan, [](int) { return 1.0f; });
    const Combine::Answer a = call.run(&e, facts_of(e.arch));
    for (const int r : {0, 1}) CHECK(std::isnan(call.out(a, r, 0, 5)));
    CHECK_FALSE(std::isnan(call.lse_of(a, 0, 0)));
    CHECK(std::isnan(call.lse_of(a, 1, 0)));
  });
}

}  // namespace
}  // namespace tilewave::test
