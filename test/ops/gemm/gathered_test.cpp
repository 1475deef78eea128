// SPDX-License-Identifier: MIT
// Tests of products whose rows have ids: rows of A gathered by token, rows of out scattered to slots, and their weights.
#include <map>

#include "entries/gemm.hpp"
#include "test/ops/rows.hpp"
#include "test/turns.hpp"
#include "tilewave/ops/gemm/choice/tile_count.hpp"
#include "tilewave/ops/gemm/registry.hpp"
#include "tilewave/reference/gemm.hpp"

namespace tilewave::test::gathered {
namespace {

struct IdsShape {
  std::int32_t tokens = 9, topk = 3, n = 256, k = 256;
  std::vector<std::int32_t> rows = {4, 0, 7, 1};  // of each group
  bool bias = false, weights = false, strange_ids = false;
};

/// The tensors of a call whose rows have ids. Ids are drawn, so that tokens come in any order and more than once.
class IdsCall {
 public:
  IdsCall(const GemmSpec& spec, const IdsShape& s) : spec_(spec), s_(s) {
    for (const std::int32_t r : s.rows) offsets_.push_back(offsets_.back() + r);
    m_ = offsets_.back();
    for (std::int32_t row = 0; row < m_; ++row) {  // no id twice: 7 shares no factor with so many slots
      const std::int32_t place = row * 7 % (s.tokens * s.topk);
      ids_.push_back(place % s.topk << 24 | place / s.topk);
    }
    if (s.strange_ids) {
      ids_[1] = s.topk << 24 | s.tokens;  // a pad of moe_sort
      ids_[2] = 0 << 24 | 0xffffff;
      ids_[3] = -1;
    }
    columns_ = spec.gated ? s.n / 2 : s.n;
    groups_ = static_cast<std::int32_t>(s.rows.size());
    const std::int32_t k_blocks = ceil_div(s.k, 128), n_blocks = ceil_div(s.n, 128);
    out_rows_ = spec.scattered ? s.tokens * s.topk : m_;
    a_rows_ = spec.gathered ? s.tokens : m_;
    make("a", spec.a, a_rows_, s.k, 'a');
    make("b", spec.b, groups_ * s.n, s.k, 'b');
    make("a_scale", DType::f32, a_rows_, k_blocks, 's');
    make("b_scale", DType::f32, groups_ * n_blocks, k_blocks, 't');
    make("bias", spec.extra(), groups_, s.n, 'i');
    make("weights", DType::f32, 1, m_, 'w');
    tensors_.emplace("out", Tensor(spec.out, out_rows_, columns_, 1, {columns_, 0}));
    tensors_.emplace("out_scale", Tensor(DType::f32, m_, ceil_div(columns_, 128), 1, {ceil_div(columns_, 128), 0}));
    device_offsets_ = uploaded(offsets_), device_ids_ = uploaded(ids_);
  }

  GemmProblem on_device() {
    return problem([](Tensor& t) { return t.device(); }, device_offsets_, device_ids_);
  }

  /// Runs an entry. Returns what is wrong with out by the reference.
  std::string run(const GemmEntry& e) {
    GemmProblem p = on_device();
    const Status status = e.launch(p, 1, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    at("out").download();
    at("out_scale").download();
    return wrong(e);
  }
  Tensor& at(const std::string& name) { return tensors_.at(name); }
  std::int32_t rows() const { return m_; }
  std::int32_t columns() const { return columns_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }

 private:
  static float value(char name, std::int32_t r, std::int32_t c) {
    const float v = drawn(name, r, c);
    return name == 's' || name == 't' ? 0.5f + 0.125f * v : v;
  }
  void make(const std::string& name, DType type, std::int32_t rows, std::int32_t columns, char values) {
    Tensor& t = tensors_.emplace(name, Tensor(type, rows, columns, 1, {columns, 0})).first->second;
    t.set(rows, columns, [&](int r, int c) { return value(values, r, c); });
  }
  static bench::DeviceBuffer uploaded(const std::vector<std::int32_t>& words) {
    bench::DeviceBuffer buffer(words.size() * 4);
    if (!words.empty())
      bench::check_hip(hipMemcpy(buffer.data(), words.data(), buffer.bytes(), hipMemcpyHostToDevice), "copying words");
    return buffer;
  }

  template <class Address>
  GemmProblem problem(const Address& address, const bench::DeviceBuffer& offsets, const bench::DeviceBuffer& ids) {
    return with_tables(address, static_cast<const std::int32_t*>(offsets.data()),
                       static_cast<const std::int32_t*>(ids.data()));
  }
  template <class Address>
  GemmProblem with_tables(const Address& address, const std::int32_t* offsets, const std::int32_t* ids) {
    GemmProblem p = GemmProblem::packed(spec_, address(at("a")), address(at("b")),
                                        const_cast<void*>(address(at("out"))), m_, s_.n, s_.k);
    p.groups = groups_;
    p.group_offsets = offsets;
    if (spec_.scale == Scaling::per_block) {
      p.a_scale = static_cast<const float*>(address(at("a_scale")));
      p.b_scale = static_cast<const float*>(address(at("b_scale")));
    }
    if (spec_.out_scale == Scaling::per_group)
      p.out_scale = static_cast<float*>(const_cast<void*>(address(at("out_scale"))));
    if (s_.bias) p = p.with_bias(address(at("bias")));
    if (!spec_.has_ids()) return p;
    p.row_ids = ids;
    p.tokens = s_.tokens;
    if (spec_.scattered) p.topk = s_.topk;
    if (s_.weights) p.row_weights = static_cast<const float*>(address(at("weights")));
    return p;
  }

  std::string wrong(const GemmEntry& e) {
    const GemmProblem p = with_tables([](Tensor& t) -> const void* { return t.host(); }, offsets_.data(), ids_.data());
    const reference::Gemm wanted(p, reference::gemm_unit(e.arch, e.emulated, spec_));
    std::vector<bool> written(static_cast<std::size_t>(out_rows_));
    for (std::int32_t group = 0; group < groups_; ++group) {
      for (std::int32_t row = offsets_[group]; row < offsets_[group + 1]; ++row) {
        const std::int32_t out_row = wanted.row_of_out(row);
        if (out_row < 0) continue;
        written[out_row] = true;
        for (std::int32_t column = 0; column < columns_; ++column) {
          const reference::GemmValue want = wanted.at(group, row, column);
          double got = at("out").at(out_row, column), scale = 1;
          if (spec_.out_scale == Scaling::per_group) scale = at("out_scale").at(out_row, column / 128);
          got *= scale;
          const double step = scale * half_step(spec_.out, want.value / scale);
          if (!(std::abs(got - want.value) <= 0x1p-18 * want.magnitude + want.lost + 1.1 * step))
            return "row " + std::to_string(row) + " column " + std::to_string(column) + ": " + std::to_string(got) +
                   ", not " + std::to_string(want.value);
        }
      }
    }
    for (std::int32_t row = 0; row < out_rows_; ++row)
      for (std::int32_t column = 0; column < columns_ && !written[row]; ++column)
        if (!at("out").untouched(row, column)) return "wrote row " + std::to_string(row) + " of no id";
    return "";
  }

  GemmSpec spec_;
  IdsShape s_;
  std::int32_t m_ = 0, columns_ = 0, groups_ = 0, out_rows_ = 0, a_rows_ = 0;
  std::vector<std::int32_t> offsets_{0}, ids_;
  std::map<std::string, Tensor> tensors_;
  bench::DeviceBuffer device_offsets_, device_ids_;
};

template <class F>
void each_entry(const F& f) {
  for (const GemmEntry* const entry : in_turn(all_gemm_moe_entries())) {
    // Weights of four bits need a repack: tests of whole layers have those with ids (test/ops/moe).
    if (!entry->spec.has_ids() || entry->spec.four_bit()) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    f(*entry);
  }
}

TEST_CASE("rows are gathered by token and scattered to slots") {
  each_entry([](const GemmEntry& e) {
    for (const IdsShape& s : {IdsShape{}, IdsShape{.tokens = 1, .topk = 1, .rows = {1}},
                              IdsShape{.tokens = 40, .topk = 5, .n = 512, .k = 400, .rows = {0, 33, 70, 0, 65, 17}},
                              IdsShape{.bias = true, .weights = true}, IdsShape{.strange_ids = true},
                              IdsShape{.tokens = 300, .topk = 1, .n = 256, .k = 160, .rows = {300, 0}}}) {
      INFO(s.tokens << " tokens, k " << s.k);
      CHECK(IdsCall(e.spec, s).run(e) == "");
    }
  });
}

TEST_CASE("a gathered product has the bits of one whose rows were copied before, and so has a scattered one") {
  int compared = 0;
  each_entry([&](const GemmEntry& e) {
    GemmSpec plain = e.spec;
    plain.gathered = plain.scattered = false;
    for (const auto list : {all_gemm_gated_entries(), all_gemm_grouped_entries()}) {
      for (const GemmEntry* const other : list) {
        if (other->arch != e.arch || !(other->spec == plain) || !(other->policy == e.policy)) continue;
        ++compared;
        const IdsShape s{.tokens = 29, .topk = 2, .n = 512, .k = 384, .rows = {20, 3, 0, 33}};
        IdsCall with_ids(e.spec, s), in_order(plain, s);
        if (e.spec.gathered) {  // the rows in order are copies of tokens
          in_order.at("a").set(in_order.rows(), s.k, [&](int r, int c) {
            return static_cast<float>(with_ids.at("a").at(with_ids.ids()[r] & 0xffffff, c));
          });
          in_order.at("a_scale").set(in_order.rows(), ceil_div(s.k, 128), [&](int r, int c) {
            return static_cast<float>(with_ids.at("a_scale").at(with_ids.ids()[r] & 0xffffff, c));
          });
        }
        REQUIRE(with_ids.run(e) == "");
        REQUIRE(in_order.run(*other) == "");
        for (std::int32_t row = 0; row < in_order.rows(); ++row) {
          const std::int32_t id = with_ids.ids()[row];
          const std::int32_t of_ids = e.spec.scattered ? (id & 0xffffff) * s.topk + (id >> 24) : row;
          for (std::int32_t column = 0; column < in_order.columns(); ++column)
            if (with_ids.at("out").at(of_ids, column) != in_order.at("out").at(row, column))
              FAIL("row " << row << " column " << column);
        }
      }
    }
  });
  CHECK(compared > 0);
}

TEST_CASE("hundreds of groups have their own rows, most of them none") {
  const GemmEntry* before = nullptr;
  each_entry([&](const GemmEntry& e) {
    if (e.spec.scale != Scaling::none) return;  // tiles are found alike
    if (before != nullptr && before->arch == e.arch && before->spec == e.spec) return;
    before = &e;
    for (const int seed : {0, 1, 2}) {
      IdsShape s{.tokens = 128, .topk = 4, .n = 128, .k = 64, .rows = std::vector<std::int32_t>(231)};
      for (std::size_t g = 0; g < s.rows.size(); ++g)
        s.rows[g] = seed == 0 ? 1 : seed == 1 ? (g % 37 == 36 ? 70 : 0) : (g == 230 ? 300 : 0);
      INFO("rows " << seed);
      CHECK(IdsCall(e.spec, s).run(e) == "");
    }
  });
}

// A launch has to have more tiles than the chip has places before blocks take several.
TEST_CASE("blocks that go through several tiles side by side write each of them", "[full]") {
  int walks = 0;
  bool of_chip = false;
  for (const GemmEntry* const e : all_gemm_moe_entries()) {
    of_chip |= e->arch == ArchId::gfx950;
    if (!detail::gemm_walks(e->spec, e->policy)) continue;
    IdsShape s{.tokens = 90, .topk = 3, .n = 61 * 128, .k = 256, .rows = std::vector<std::int32_t>(74, 1)};
    for (const int high : {0, 24, 48, 73}) s.rows[high] = 40;
    s.weights = true;
    for (const std::int32_t k : {128, 208}) {
      s.k = k;
      IdsCall call(e->spec, s);
      const GemmProblem p = call.on_device();
      REQUIRE(gemm_walk(p, p.m, e->policy, facts_of(e->arch)) == 2);  // and a block at the end has one
      INFO(name_of(e->spec) << " " << name_of(e->policy) << ", k " << k);
      CHECK(call.run(*e) == "");
#if !TILEWAVE_ON_GPU_COMPILER
      // 74 groups have three tiles that may be full beside one each, of 31 walks. The simulator counts no blocks here.
      const std::int64_t blocks = host::last_launch_counters().blocks;
      if (blocks != 0) CHECK(blocks == (3 + 74) * 31);
#endif
      ++walks;
    }
  }
  CHECK((walks > 0) == of_chip);
}

TEST_CASE("problems whose rows have ids are refused by name") {
  const GemmEntry& gathers = *all_gemm_moe_entries().front();
  REQUIRE(gathers.spec.gathered);
  const GemmEntry* scatters = nullptr;
  for (const GemmEntry* e : all_gemm_moe_entries())
    if (e->arch == gathers.arch && e->spec.scattered) scatters = e;
  REQUIRE(scatters != nullptr);
  const ArchFacts& facts = facts_of(gathers.arch);
  const auto refused = [&](const GemmEntry& e, void (*change)(GemmProblem&)) {
    IdsCall call(e.spec, {});
    GemmProblem p = call.on_device();
    REQUIRE(gemm_check(p, facts).ok());
    change(p);
    const Status status = gemm_check(p, facts);
    CHECK(e.launch(p, 1, {}).code == status.code);
    return std::string(name_of(status.code)) + ": " + status.reason;
  };
  CHECK(refused(gathers, [](GemmProblem& p) { p.row_ids = nullptr; }) == "null_pointer: row_ids is null");
  CHECK(refused(gathers, [](GemmProblem& p) { p.tokens = 0; }) == "bad_extent: rows have ids, but there are no tokens");
  CHECK(refused(gathers, [](GemmProblem& p) { p.tokens = (1 << 24) + 1; }) ==
        "bad_extent: an id holds tokens up to 2^24");
  CHECK(refused(gathers, [](GemmProblem& p) { p.topk = 2; }) ==
        "bad_extent: topk is 1 to 255 for scattered specs, else 0");
  CHECK(refused(gathers, [](GemmProblem& p) { p.k -= 1; }) == "bad_extent: k of gathered rows is whole 16 bytes");
  CHECK(refused(gathers, [](GemmProblem& p) { p.row_ids = moved(p.row_ids, 2); }) ==
        "misaligned: row_ids and row_weights need 4-byte alignment");
  CHECK(refused(gathers, [](GemmProblem& p) { p.row_ids = static_cast<const std::int32_t*>(p.out); }) ==
        "bad_value: out overlaps an input or out_scale");
  CHECK(refused(*scatters, [](GemmProblem& p) { p.topk = 0; }) ==
        "bad_extent: topk is 1 to 255 for scattered specs, else 0");
  CHECK(refused(*scatters, [](GemmProblem& p) { p = p.with_residual(moved(p.a, 0)); }) ==
        "bad_value: scattered rows take no residual");
  GemmSpec spec = gathers.spec;
  spec.groups = GemmGroups::masked;
  CHECK(gemm_check_spec(spec, facts).code == StatusCode::unsupported_layout);
}

}  // namespace
}  // namespace tilewave::test::gathered
