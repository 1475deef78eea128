// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference: boundary columns, ids of both types in and out of the table, parts
// of a vocabulary,
// scales, strides, bits kept, tables beyond 2^32 elements; and what embedding_check refuses.
#include "entries/embedding.hpp"

#include "test/ops/rows.hpp"
#include "tilewave/ops/embedding/registry.hpp"
#include "tilewave/reference/embedding.hpp"

namespace tilewave::test::embedding_tests {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int32_t rows = 7, columns = 256;
  int gap = 0;       // elements between two rows
  bool far = false;  // rows of the table: see far_strides
  IndexType id_type = IndexType::i32;
  std::int64_t vocab_start = 0;
  float scale = 1;
  bool special = false;  // infinities and NaN in the table
};

constexpr std::int32_t vocab = 5;

/// Every row of the table, and ids around it, near and far.
std::int64_t id_of(const Shape& s, int row) {
  const std::int64_t far = s.id_type == IndexType::i64 ? std::int64_t{1} << 32 : std::int64_t{1} << 30;
  const std::int64_t ids[] = {
      0, vocab - 1, -1, vocab, 2, far, 1, -far, 3, far + 1, std::numeric_limits<std::int32_t>::min()};
  if (row % 12 == 11) return outside_table(s.id_type, std::numeric_limits<std::int32_t>::max(), 3 + row / 12);
  const std::int64_t id = ids[row % 12];
  return id == ids[10] ? id : id + s.vocab_start;
}

class Call {
 public:
  Call(DType type, const Shape& s)
      : type_(type),
        s_(s),
        table_(type, vocab, s.columns, 1, s.far ? far_strides(1) : RowStrides{s.columns + s.gap, 0}),
        out_(type, s.rows, s.columns, 1, {s.columns + s.gap, 0}),
        ids_(static_cast<std::size_t>(s.rows) * size_of(s.id_type)),
        host_ids_(ids_.bytes()) {
    table_.set(vocab, s.columns, [&](int r, int c) {
      return !s.special ? drawn('t', r, c) : c % 7 == r ? nan : c % 5 == 1 ? -inf : c % 3 == 0 ? -0.0f : 1e-39f;
    });
    for (int r = 0; r < s.rows; ++r) {
      const std::int64_t id = id_of(s, r);
      std::memcpy(&host_ids_[static_cast<std::size_t>(r) * size_of(s.id_type)], &id, size_of(s.id_type));
    }
    bench::check_hip(hipMemcpy(ids_.data(), host_ids_.data(), ids_.bytes(), hipMemcpyHostToDevice), "copying over");
  }

  std::string run(const ArchFacts& facts, const EmbeddingEntry* entry) {
    const EmbeddingProblem p = problem();
    if (entry == nullptr) {
      const Status status = embedding_select(p, all_embedding_entries(), facts, entry);
      if (!status.ok()) return std::string("not selected: ") + status.reason;
    } else if (!tile_takes(entry->policy, type_, s_.columns, embedding_aligned(p))) {
      return entry->launch(p, {}).code == StatusCode::no_matching_entry ? "" : "took rows that it does not take";
    }
    EmbeddingProblem host = p;
    host.table = table_.host();
    host.table_stride = table_.host_strides().outer;
    host.ids = host_ids_.data();
    const Status status = entry->launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    out_.download();
    if (!out_.gaps_kept(s_.rows, s_.columns)) return "wrote between rows";
    for (int r = 0; r < s_.rows; ++r)
      for (int c = 0; c < s_.columns; ++c) {
        const double wanted = reference::rounded(type_, reference::embedded(host, r, c)), got = out_.at(r, c);
        const bool right =
            std::isnan(wanted) ? std::isnan(got) : got == wanted && std::signbit(got) == std::signbit(wanted);
        if (!right)
          return "row " + std::to_string(r) + " column " + std::to_string(c) + ": " + std::to_string(got) + ", not " +
                 std::to_string(wanted);
      }
    return "";
  }

 private:
  EmbeddingProblem problem() const {
    EmbeddingProblem p;
    p.spec.x = type_;
    p.table = table_.device();
    p.ids = ids_.data();
    p.out = out_.device();
    p.id_type = s_.id_type;
    p.scale = s_.scale;
    p.rows = s_.rows;
    p.columns = s_.columns;
    p.vocab_rows = vocab;
    p.vocab_start = s_.vocab_start;
    p.table_stride = s_.far ? far_strides(1).outer : s_.columns + s_.gap;
    p.out_stride = s_.columns + s_.gap;
    return p;
  }

  DType type_;
  Shape s_;
  Tensor table_, out_;
  bench::DeviceBuffer ids_;
  std::vector<std::uint8_t> host_ids_;
};

void check_entries(std::vector<Shape> (*shapes_of)(const EmbeddingEntry&)) {
  for (const EmbeddingEntry* e : all_embedding_entries())
    for (const Shape& s : shapes_of(*e)) {
      const std::string error = Call(e->spec.x, s).run(facts_of(e->arch), e);
      INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ", " << s.columns
                            << " columns: " << error);
      CHECK(error == "");
    }
}

TEST_CASE("every embedding entry copies boundary columns, of ids in and out of the table") {
  check_entries([](const EmbeddingEntry& e) {
    const int unit = 16 / size_of(e.spec.x), tile = e.policy.block_columns(e.spec.x);
    std::vector<std::int32_t> all{unit, tile - unit, tile, tile + unit, 2 * tile + 3 * unit};
    if (!e.policy.wide(e.spec.x)) all.insert(all.end(), {1, 127, tile - 1, tile + 1, 997});
    std::vector<Shape> shapes;
    for (const std::int32_t columns : all) {
      const int turn = static_cast<int>(shapes.size());
      shapes.push_back({.rows = 11 + turn % 3,
                        .columns = columns,
                        .gap = turn % 2 == 0             ? 0
                               : e.policy.wide(e.spec.x) ? 16
                                                         : 3,
                        .id_type = turn % 2 ? IndexType::i64 : IndexType::i32,
                        .vocab_start = turn % 3 == 2 ? 640 : 0,
                        .scale = turn % 3 == 1 ? 3.0f : 1.0f});
    }
    shapes.push_back({.rows = 11, .id_type = IndexType::i64, .vocab_start = (std::int64_t{1} << 32) - 2});
    shapes.push_back({.rows = 36, .id_type = IndexType::i64, .vocab_start = std::int64_t{1} << 62});
    return shapes;
  });
}

TEST_CASE("an embedding keeps zeros' signs, subnormals, infinities and NaN, and scales by 0 and below") {
  check_entries([](const EmbeddingEntry&) {
    return std::vector<Shape>{{.rows = 11, .columns = 64, .special = true},
                              {.rows = 11, .columns = 64, .scale = -0.5f}};
  });
}

TEST_CASE("tables of embeddings may have more than 2^32 elements") {
  if (!has_memory(std::size_t{64} << 30)) return;
  check_entries([](const EmbeddingEntry&) { return std::vector<Shape>{{.rows = 11, .columns = 128, .far = true}}; });
}

TEST_CASE("bad embedding problems get a named status and a reason, and nothing is written") {
  using P = EmbeddingProblem;
  using C = StatusCode;
  const Wrong<P> wrongs[] = {
      {"a table of fp8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::fp8_e4m3fn; }},
      {"ids of no type", C::unsupported_dtype, [](P& p) { p.id_type = static_cast<IndexType>(2); }},
      {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
      {"columns 2^31 - 1", C::bad_extent, [](P& p) { p.columns = 0x7fffffff; }},
      {"vocab_rows -1", C::bad_extent, [](P& p) { p.vocab_rows = -1; }},
      {"vocab_start -1", C::bad_extent, [](P& p) { p.vocab_start = -1; }},
      {"vocab_start 2^62 + 1", C::bad_extent, [](P& p) { p.vocab_start = (std::int64_t{1} << 62) + 1; }},
      {"vocab_start 2^63 - 1, of which id -2^63 was row 1", C::bad_extent,
       [](P& p) { p.vocab_start = std::numeric_limits<std::int64_t>::max(); }},
      {"scale NaN", C::bad_value, [](P& p) { p.scale = nan; }},
      {"scale infinite", C::bad_value, [](P& p) { p.scale = inf; }},
      {"table null", C::null_pointer, [](P& p) { p.table = nullptr; }},
      {"ids null", C::null_pointer, [](P& p) { p.ids = nullptr; }},
      {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
      {"table off by a byte", C::misaligned, [](P& p) { p.table = moved(p.table, 1); }},
      {"out off by a byte", C::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
      {"i64 ids off by four bytes", C::misaligned,
       [](P& p) {
         p.id_type = IndexType::i64;
         p.ids = moved(p.ids, 4);
       }},
      {"rows of the table in one place", C::bad_stride, [](P& p) { p.table_stride = 0; }},
      {"a stride of the table of 2^62", C::bad_stride, [](P& p) { p.table_stride = std::int64_t{1} << 62; }},
      {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_stride -= 1; }},
      {"out is the table", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.table); }},
      {"ids inside out", C::bad_value, [](P& p) { p.ids = p.out; }},
  };
  for (const EmbeddingEntry* e : all_embedding_entries()) {
    if (e->policy.lanes != 256) continue;
    const std::int32_t columns = 64, rows = 4;
    Tensor table(e->spec.x, 8 * columns), out(e->spec.x, rows * columns), ids(DType::f32, 8);
    P good;
    good.spec = e->spec;
    good.table = table.device();
    good.ids = ids.device();
    good.out = out.device();
    good.rows = rows;
    good.columns = columns;
    good.vocab_rows = 8;
    good.table_stride = good.out_stride = columns;
    check_refused<EmbeddingEntry, P>(*e, good, wrongs, embedding_check, embedding_select, all_embedding_entries());
    check_empty(*e, good, out);
    P nothing = good;  // a part of the vocabulary that has no rows
    nothing.table = nullptr;
    nothing.vocab_rows = 0;
    CHECK(embedding_check(nothing, facts_of(e->arch)).ok());
  }
}

}  // namespace
}  // namespace tilewave::test::embedding_tests
