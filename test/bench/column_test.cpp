// SPDX-License-Identifier: MIT
// Cells as text, and that the columns of a row tell it from every other: each field of a config and of a policy counts.
#include "bench/harness/column.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "bench/ops/attention_combine/op.hpp"
#include "bench/ops/norm/op.hpp"
#include "bench/ops/paged_attention/plan.hpp"
#include "bench/ops/quant/op.hpp"
#include "bench/ops/softmax/op.hpp"
#include "bench/ops/vec_add/ceiling_row.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

TEST_CASE("counts are exact, numbers have six digits, what CSV would split is quoted") {
  CHECK(text_of(cell_of(std::int64_t{1} << 53 | 1)) == "9007199254740993");
  CHECK(text_of(cell_of(true)) == "1");
  CHECK(text_of(cell_of(1234567.25)) == "1.23457e+06");
  CHECK(text_of(cell_of(-std::numeric_limits<double>::quiet_NaN())) == "nan");
  CHECK(text_of(cell_of(std::numeric_limits<double>::infinity())) == "inf");
  CHECK(text_of(cell_of(DType::fp8_e4m3fnuz)) == "fp8_e4m3fnuz");
  const Columns row{{"a", "x"}, {"b,c", "say \"no\""}, {"d", std::int64_t{7}}, {"e", std::nan("")}};
  CHECK(csv_header(row) == "a,\"b,c\",d,e\n");
  CHECK(csv_line(row) == "x,\"say \"\"no\"\"\",7,nan\n");
  CHECK(csv_line({{"a", ""}, {"b", ""}}) == ",\n");
}

struct Named {
  std::string name;
  Columns columns;
  Columns identity() const { return columns; }
};

TEST_CASE("two rows with the same columns are refused by name") {
  std::vector<Named> rows{{"one", {{"x", std::int64_t{1}}}}, {"two", {{"x", std::int64_t{2}}}}};
  CHECK_NOTHROW(check_identities(rows));
  rows.push_back({"three", {{"x", std::int64_t{1}}}});
  std::string message;
  try {
    check_identities(rows);
  } catch (const std::exception& error) {
    message = error.what();
  }
  CHECK(message == "rows one and three differ in no column");
}

/// Every change of `start` alone must change its columns, each in its own way.
template <class T, class Line>
void check_changes(const T& start, const Line& line_of, const std::vector<std::function<void(T&)>>& changes) {
  std::set<std::string> seen{line_of(start)};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    T changed = start;
    changes[i](changed);
    CAPTURE(i);
    CHECK(seen.insert(line_of(changed)).second);
  }
}

template <class Case>
std::string config_line(const Case& c) {
  ColumnWriter visit;
  Case::each_column(c, visit);
  return csv_line(visit.columns);
}

TEST_CASE("each field of a config is in its columns") {
  using Pa = PagedAttentionCase;
  check_changes<Pa>({}, config_line<Pa>,
                    {[](Pa& c) { c.arch = ArchId::sm90; },
                     [](Pa& c) { c.q = DType::f16; },
                     [](Pa& c) { c.kv = DType::bf16; },
                     [](Pa& c) { c.quant = Scaling::per_head; },
                     [](Pa& c) { c.block_size = 1; },
                     [](Pa& c) { c.mtp = 2; },
                     [](Pa& c) { c.head_size = 1; },
                     [](Pa& c) { c.batch = 1; },
                     [](Pa& c) { c.context_length = 1; },
                     [](Pa& c) { c.num_q_heads = 1; },
                     [](Pa& c) { c.num_kv_heads = 2; },
                     [](Pa& c) { c.layout = KvLayout::nhd; },
                     [](Pa& c) { c.layout = KvLayout::hnd; },
                     [](Pa& c) { c.any_block_size = true; },
                     [](Pa& c) { c.native = true; },
                     [](Pa& c) { c.trans_v = false; },
                     [](Pa& c) { c.kv_varlen = true; },
                     [](Pa& c) { c.sliding_window = 1; },
                     [](Pa& c) { c.sinks = true; },
                     [](Pa& c) { c.split_tokens = 1; },
                     [](Pa& c) { c.stage_starts = true; },
                     [](Pa& c) { c.distinct_pages = true; },
                     [](Pa& c) { c.inputs = Inputs::varied; },
                     [](Pa& c) { c.seed = 1; }});
  check_changes<NormCase>(
      {}, config_line<NormCase>,
      {[](NormCase& c) { c.arch = ArchId::sm90; }, [](NormCase& c) { c.spec.kind = NormKind::layer; },
       [](NormCase& c) { c.spec.x = DType::f32; }, [](NormCase& c) { c.spec.weight = DType::f32; },
       [](NormCase& c) { c.spec.out = DType::i8; }, [](NormCase& c) { c.spec.scale = Scaling::per_token; },
       [](NormCase& c) { c.columns = 1; }, [](NormCase& c) { c.rows = 1; }, [](NormCase& c) { c.config_rows = 1; },
       [](NormCase& c) { c.residual = true; }, [](NormCase& c) { c.seed = 1; }});
  check_changes<QuantCase>(
      {}, config_line<QuantCase>,
      {[](QuantCase& c) { c.arch = ArchId::sm90; }, [](QuantCase& c) { c.spec.x = DType::f32; },
       [](QuantCase& c) { c.spec.out = DType::i8; }, [](QuantCase& c) { c.spec.scale = Scaling::per_group; },
       [](QuantCase& c) { c.columns = 1; }, [](QuantCase& c) { c.rows = 1; }, [](QuantCase& c) { c.config_rows = 1; },
       [](QuantCase& c) { c.given = true; }, [](QuantCase& c) { c.seed = 1; }});
  check_changes<SoftmaxCase>(
      {}, config_line<SoftmaxCase>,
      {[](SoftmaxCase& c) { c.arch = ArchId::sm90; }, [](SoftmaxCase& c) { c.spec.kind = SoftmaxKind::log_softmax; },
       [](SoftmaxCase& c) { c.spec.x = DType::f32; }, [](SoftmaxCase& c) { c.columns = 1; },
       [](SoftmaxCase& c) { c.rows = 1; }, [](SoftmaxCase& c) { c.config_rows = 1; },
       [](SoftmaxCase& c) { c.queries = 2; }, [](SoftmaxCase& c) { c.seed = 1; }});
  using Combine = AttentionCombineCase;
  check_changes<Combine>(
      {}, config_line<Combine>,
      {[](Combine& c) { c.arch = ArchId::sm90; }, [](Combine& c) { c.spec.x = DType::f16; },
       [](Combine& c) { c.spec.out = DType::f16; }, [](Combine& c) { c.columns = 1; }, [](Combine& c) { c.rows = 1; },
       [](Combine& c) { c.config_rows = 1; }, [](Combine& c) { c.partials = 2; }, [](Combine& c) { c.seed = 1; }});
  check_changes<CeilingCase>(
      {.kind = CeilingKind::vec_add}, config_line<CeilingCase>,
      {[](CeilingCase& c) { c.arch = ArchId::sm90; }, [](CeilingCase& c) { c.kind = CeilingKind::copy; },
       [](CeilingCase& c) { c.x = DType::f16; }, [](CeilingCase& c) { c.bytes = 1; },
       [](CeilingCase& c) { c.config_bytes = 1; }, [](CeilingCase& c) { c.seed = 1; }});
}

TEST_CASE("each field of a policy is in its columns") {
  check_changes<RowPolicy>(
      {},
      [](const RowPolicy& p) {
        ColumnWriter visit;
        each_column(&p, visit);
        return csv_line(visit.columns);
      },
      {[](RowPolicy& p) { p.lanes = 1; }, [](RowPolicy& p) { p.rows = 2; }, [](RowPolicy& p) { p.chunks = 1; },
       [](RowPolicy& p) { p.vec = 1; }, [](RowPolicy& p) { p.span = 2; }, [](RowPolicy& p) { p.blocks = 2; },
       [](RowPolicy& p) { p.held = false; }, [](RowPolicy& p) { p.waves_per_simd = 1; }});
  using Policy = PagedAttentionPolicy;
  check_changes<Policy>(
      {},
      [](const Policy& p) {
        const PagedAttentionEntry entry{ArchId::gfx950, true, {}, p, nullptr, 0};
        ColumnWriter visit;
        each_column(PagedAttentionPlan{&entry, 1, {}}, visit);
        return csv_line(visit.columns);
      },
      {[](Policy& p) { p.row_tiles = 2; }, [](Policy& p) { p.waves.rows = 2; }, [](Policy& p) { p.waves.tokens = 2; },
       [](Policy& p) { p.prefetch.slices = 2; }, [](Policy& p) { p.prefetch.stages = 1; },
       [](Policy& p) { p.prefetch.stage_tokens = 64; }, [](Policy& p) { p.prefetch.waves = 1; },
       [](Policy& p) { p.q_shared = true; }, [](Policy& p) { p.schedule = PagedAttentionSchedule::balanced; },
       [](Policy& p) { p.waves_per_simd = 1; }});
}

}  // namespace
}  // namespace tilewave::bench
