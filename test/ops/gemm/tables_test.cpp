// SPDX-License-Identifier: MIT
// Tests of tables of groups, which no check reads. Whatever they say, no row outside the M of A and out is touched.
#include <limits>

#include "entries/gemm.hpp"
#include "test/ops/gemm/call.hpp"
#include "test/turns.hpp"

namespace tilewave::test {
namespace {

constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min(),
                       most = std::numeric_limits<std::int32_t>::max();
using Table = std::vector<std::int32_t>;

/// A call whose out lies between a few rows that belong to no tensor.
class Amid {
 public:
  Amid(const GemmSpec& spec, std::int32_t rows_before, const Table& rows)
      : call_(spec, {.m = most_rows(spec, rows), .n = 128, .k = 128, .rows = rows}), p_(call_.on_device()) {
    const std::int64_t row = p_.out_stride * size_of(spec.out);
    margin_ = align_up(rows_before * row, std::int64_t{16});
    bytes_ = margin_ * 2 + p_.m * std::int64_t{gemm_a_layers(p_)} * row;
    out_ = bench::DeviceBuffer(static_cast<std::size_t>(bytes_));
    p_.out = static_cast<std::byte*>(out_.data()) + margin_;
  }

  /// Launches with a table, and returns the contents of all of the memory.
  std::vector<std::uint8_t> run(const GemmEntry& e, const Table& says) {
    const bench::DeviceBuffer table(says.size() * sizeof(says[0]));
    bench::check_hip(hipMemcpy(table.data(), says.data(), table.bytes(), hipMemcpyHostToDevice), "copying over");
    (p_.spec.groups == GemmGroups::contiguous ? p_.group_offsets : p_.group_rows) =
        static_cast<const std::int32_t*>(table.data());
    out_.fill(unwritten_byte);
    const Status status = e.launch(p_, 1, {});
    if (!status.ok()) throw std::runtime_error(status.reason);
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    std::vector<std::uint8_t> all(out_.bytes());
    bench::check_hip(hipMemcpy(all.data(), out_.data(), all.size(), hipMemcpyDeviceToHost), "copying back");
    return all;
  }

 private:
  static std::int32_t most_rows(const GemmSpec& spec, const Table& rows) {
    std::int32_t sum = 0;
    for (const std::int32_t r : rows) sum += r;
    return spec.groups == GemmGroups::contiguous ? sum : *std::max_element(rows.begin(), rows.end());
  }
  GemmCall call_;
  GemmProblem p_;
  std::int64_t margin_, bytes_;
  bench::DeviceBuffer out_;
};

template <class F>
void each_grouped_entry(GemmGroups groups, const F& f) {
  for (const auto entries : {all_gemm_feature_entries(), all_gemm_grouped_entries(), all_gemm_gated_entries()}) {
    for (const GemmEntry* const e : in_turn(entries)) {
      if (e->spec.groups != groups || e->spec.layout != GemmLayout::nt || e->spec.out_scale == Scaling::per_group)
        continue;
      INFO(name_of(e->arch) << " " << name_of(e->spec) << " " << name_of(e->policy));
      f(*e);
    }
  }
}

TEST_CASE("offsets of contiguous groups count from 0 to M, and none below the one before it") {
  int entries = 0;
  each_grouped_entry(GemmGroups::contiguous, [&](const GemmEntry& e) {
    ++entries;
    Amid call(e.spec, 300, {7, 0, 13});
    const std::vector<std::uint8_t> right = call.run(e, {0, 7, 7, 20});
    CHECK_FALSE(all_unwritten(right));
    for (const Table& same :
         {Table{-5, 7, 7, 20}, Table{least, 7, 7, most}, Table{0, 7, -1, 20}, Table{-300, 7, 3, 21}})
      CHECK(call.run(e, same) == right);
    for (const Table& nothing :
         {Table{most, least, 0, 20}, Table{-1, -1, -1, -1}, Table{least, least, -7, 0}, Table{20, 7, 3, 1}})
      CHECK(all_unwritten(call.run(e, nothing)));
    // The second group has the first one's rows again, so that there are more tiles than M has.
    CHECK(call.run(e, {0, 20, 0, 20}) == call.run(e, {0, 20, 20, 20}));
  });
  CHECK(entries > 0);
}

TEST_CASE("rows of masked groups count from none to M") {
  int entries = 0;
  each_grouped_entry(GemmGroups::masked, [&](const GemmEntry& e) {
    ++entries;
    Amid call(e.spec, 300, {7, 0, 19});
    const std::vector<std::uint8_t> right = call.run(e, {7, 0, 19});
    CHECK_FALSE(all_unwritten(right));
    for (const Table& same : {Table{7, -1, 19}, Table{7, least, most}, Table{7, -300, 20}})
      CHECK(call.run(e, same) == right);
    CHECK(all_unwritten(call.run(e, {-1, least, 0})));
  });
  CHECK(entries > 0);
}

}  // namespace
}  // namespace tilewave::test
