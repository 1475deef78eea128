// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference in double: boundary columns, slots by a table, weights, masks,
// residuals, strides,
// what is left out, the order of the sum.
#include "entries/moe_reduce.hpp"

#include "test/ops/rows.hpp"
#include "tilewave/ops/moe_reduce/registry.hpp"
#include "tilewave/reference/moe_reduce.hpp"

namespace tilewave::test::moe_reduce_tests {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int32_t rows = 3, columns = 256, topk = 8;
  int gap = 0;       // elements between two rows
  bool far = false;  // see far_strides
  bool table = false, weights = false, mask = false, residual = false, in_place = false;
  bool none = false;                               // every expert masked
  float (*value)(int slot, int column) = nullptr;  // instead of random ones
};

template <class T>
bench::DeviceBuffer on_device(const std::vector<T>& values) {
  bench::DeviceBuffer buffer(values.size() * sizeof(T));
  bench::check_hip(hipMemcpy(buffer.data(), values.data(), buffer.bytes(), hipMemcpyHostToDevice), "copying over");
  return buffer;
}

constexpr std::int32_t experts = 8;

class Call {
 public:
  Call(DType type, const Shape& s)
      : type_(type),
        s_(s),
        x_rows_(s.rows * s.topk + 5),
        x_(type, s.table ? x_rows_ : s.rows * s.topk, s.columns, s.table ? 1 : s.topk, strides()),
        residual_(type, s.rows, s.columns, 1, {s.in_place ? s.columns + s.gap : added_stride(), 0}),
        out_(type, s.rows, s.columns, 1, {s.columns + s.gap, 0}) {
    const int n = s.rows * s.topk;
    for (int i = 0; i < n; ++i) {
      // A permutation, with some that name no row; experts from -1 to 9.
      constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
      slots_.push_back(i % 5 == 3    ? (i % 2 ? -1 - i : -most - 1)
                       : i % 11 == 7 ? (i % 2 ? x_rows_ + i : most)
                                     : (n - i) % x_rows_);
      ids_.push_back(i % 13 == 5 ? -most - 1 : i % 13 == 9 ? most : i * 7 % 11 - 1);
    }
    for (int e = 0; e < experts; ++e) mask_.push_back(s.none || e % 3 == 1 ? 0 : e % 2 ? -1 : 256);
    host_ = problem();
    host_.slots = s.table ? slots_.data() : nullptr;
    host_.topk_ids = s.mask ? ids_.data() : nullptr;
    host_.expert_mask = s.mask ? mask_.data() : nullptr;
    // Parts that are left out are NaN: rows of x that a table does not name, and weights of their own.
    std::vector<bool> used(s.table ? x_rows_ : n);
    for (int i = 0; i < n; ++i) {
      const bool counts = reference::slot_counts(host_, i / s.topk, i % s.topk);
      weights_.push_back(counts ? 2 * drawn('w', 0, i) : nan);
      if (counts) used[s.table ? slots_[i] : i] = true;
    }
    x_.set(static_cast<int>(used.size()), s.columns, [&](int r, int c) {
      return !used[r] ? nan : s.value ? s.value(r % s.topk, c) : drawn('x', r, c);
    });
    residual_.set(s.rows, s.columns, [](int r, int c) { return drawn('r', r, c); });
    host_.x = x_.host();
    host_.x_stride = x_.host_strides().outer;
    if (!s.table) host_.x_slot_stride = x_.host_strides().inner;
    host_.weights = s.weights ? weights_.data() : nullptr;
    if (s.residual) host_.residual = residual_.host(), host_.residual_stride = residual_.host_strides().outer;
  }

  /// Launches the entry, or the one that is selected if null, and compares all it wrote with the reference.
  std::string run(const ArchFacts& facts, const MoeReduceEntry* entry) {
    const bench::DeviceBuffer slots = on_device(slots_), ids = on_device(ids_), mask = on_device(mask_),
                              weights = on_device(weights_);
    MoeReduceProblem p = problem();
    if (s_.table) p.slots = static_cast<const std::int32_t*>(slots.data());
    if (s_.weights) p.weights = static_cast<const float*>(weights.data());
    if (s_.mask) {
      p.topk_ids = static_cast<const std::int32_t*>(ids.data());
      p.expert_mask = static_cast<const std::int32_t*>(mask.data());
    }
    if (entry == nullptr) {
      const Status status = moe_reduce_select(p, all_moe_reduce_entries(), facts, entry);
      if (!status.ok()) return std::string("not selected: ") + status.reason;
    } else if (!tile_takes(entry->policy, type_, s_.columns, moe_reduce_aligned(p))) {
      return entry->launch(p, {}).code == StatusCode::no_matching_entry ? "" : "took rows that it does not take";
    }
    std::vector<reference::ReducedRow> wanted;
    for (int r = 0; r < s_.rows; ++r) wanted.push_back(reference::moe_reduce_row(host_, r));
    const Status status = entry->launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    Tensor& out = s_.in_place ? residual_ : out_;
    out.download();
    if (!out.gaps_kept(s_.rows, s_.columns)) return "wrote between rows";
    for (int r = 0; r < s_.rows; ++r)
      for (int c = 0; c < s_.columns; ++c) {
        const double exact = wanted[r].values[c], rounded = reference::rounded(type_, exact), got = out.at(r, c);
        const double slack = half_step(type_, exact) * 1.001 + 1e-6 * wanted[r].magnitudes[c];
        const bool right = std::isnan(rounded)   ? std::isnan(got)
                           : std::isinf(rounded) ? got == rounded
                                                 : std::abs(got - exact) <= slack;
        if (!right)
          return "row " + std::to_string(r) + " column " + std::to_string(c) + ": " + std::to_string(got) + ", not " +
                 std::to_string(exact);
      }
    return "";
  }

 private:
  /// A residual that is not out has another stride than out.
  std::int64_t added_stride() const { return s_.columns + s_.gap + elements_of_unit(type_); }
  RowStrides strides() const {
    if (s_.far) return far_strides(s_.table ? 1 : s_.topk);
    const std::int64_t inner = s_.columns + s_.gap;
    return s_.table ? RowStrides{inner, 0} : RowStrides{inner * s_.topk + s_.gap, inner};
  }
  MoeReduceProblem problem() const {
    MoeReduceProblem p;
    p.spec.x = type_;
    p.x = x_.device();
    if (s_.residual) p.residual = residual_.device();
    p.out = s_.in_place ? residual_.device() : out_.device();
    p.rows = s_.rows;
    p.columns = s_.columns;
    p.topk = s_.topk;
    if (s_.table) p.x_rows = x_rows_;
    if (s_.mask) p.experts = experts;
    p.x_stride = strides().outer;
    if (!s_.table) p.x_slot_stride = s_.topk == 1 ? 1 : strides().inner;
    p.out_stride = s_.columns + s_.gap;
    if (s_.residual) p.residual_stride = s_.in_place ? p.out_stride : added_stride();
    return p;
  }

  DType type_;
  Shape s_;
  std::int32_t x_rows_;
  Tensor x_, residual_, out_;
  std::vector<std::int32_t> slots_, ids_, mask_;
  std::vector<float> weights_;
  MoeReduceProblem host_;
};

std::string run(const MoeReduceEntry& e, const Shape& s) { return Call(e.spec.x, s).run(facts_of(e.arch), &e); }

std::string run_all(const MoeReduceEntry& e, const std::vector<Shape>& shapes) {
  for (const Shape& s : shapes) {
    const std::string error = run(e, s);
    if (error != "") return "shape " + std::to_string(&s - shapes.data()) + ": " + error;
  }
  return "";
}

template <class F>
void each_moe_reduce_entry(const F& f) {
  for (const MoeReduceEntry* e : all_moe_reduce_entries()) {
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}

TEST_CASE("every moe_reduce entry computes the reference on boundary columns") {
  each_moe_reduce_entry([](const MoeReduceEntry& e) {
    const int unit = 16 / size_of(e.spec.x), tile = e.policy.block_columns(e.spec.x);
    std::vector<std::int32_t> all{unit, tile - unit, tile, tile + unit, 2 * tile + 3 * unit};
    if (!e.policy.wide(e.spec.x)) all.insert(all.end(), {1, 127, 129, tile - 1, tile + 1, 997});
    std::vector<Shape> shapes;
    for (const std::int32_t columns : all) {
      const int turn = static_cast<int>(shapes.size());
      shapes.push_back({.rows = turn % 3 + e.policy.rows,
                        .columns = columns,
                        .topk = 1 + 5 * turn % 16,
                        .table = turn % 2 == 1,
                        .weights = turn % 3 != 0,
                        .mask = turn % 4 == 2,
                        .residual = turn % 3 == 1});
    }
    return run_all(e, shapes);
  });
}

TEST_CASE("moe_reduce of every number of slots, with all that a call may have") {
  each_moe_reduce_entry([](const MoeReduceEntry& e) {
    std::vector<Shape> shapes;
    for (int topk = 1; topk <= moe_reduce_most_slots; ++topk) {
      const int n = topk + static_cast<int>(e.policy.lanes / 64);
      shapes.push_back({.columns = 64,
                        .topk = topk,
                        .table = n % 2 == 0,
                        .weights = true,
                        .mask = n % 3 > 0,
                        .residual = n % 5 > 1});
    }
    return run_all(e, shapes);
  });
}

TEST_CASE("rows of moe_reduce may have gaps, the residual may become the output, all slots may be left out") {
  each_moe_reduce_entry([](const MoeReduceEntry& e) {
    const int gap = e.policy.wide(e.spec.x) ? 16 : 3;
    return run_all(
        e, {{.rows = 7, .columns = 144, .topk = 3, .gap = gap},
            {.rows = 7, .columns = 144, .topk = 6, .gap = gap, .table = true, .residual = true, .in_place = true},
            {.columns = 2 * e.policy.block_columns(e.spec.x) + 16, .residual = true, .in_place = true},
            {.weights = true, .mask = true, .none = true},
            {.table = true, .mask = true, .residual = true, .none = true}});
  });
}

TEST_CASE("moe_reduce is right under every schedule") {
  each_moe_reduce_entry([](const MoeReduceEntry& e) {
    std::string error;
    each_schedule([&] {
      error += run(
          e, {.rows = e.policy.rows + 1, .columns = 136, .topk = 5, .table = true, .weights = true, .residual = true});
    });
    return error;
  });
}

TEST_CASE("rows of moe_reduce may start beyond 2^31 and 2^32 elements") {
  if (!has_memory(std::size_t{64} << 30)) return;
  each_moe_reduce_entry([](const MoeReduceEntry& e) {
    if (e.policy.lanes != 256) return std::string();
    return run_all(e, {{.rows = 2, .columns = 128, .topk = 2, .far = true, .weights = true},
                       {.rows = 1, .columns = 128, .topk = 3, .far = true, .table = true}});
  });
}

TEST_CASE("moe_reduce of infinities, NaN and what overflows or cancels") {
  constexpr float (*values[])(int, int) = {
      [](int slot, int c) { return slot == 1 && c % 40 == 3   ? inf
                                   : slot == 2 && c % 60 == 3 ? -inf
                                                              : 1.0f; },
      [](int slot, int c) { return slot == 3 && c == 77 ? nan : -0.0f; },
      [](int slot, int) { return slot % 2 ? -65000.0f : 64992.0f; },
      [](int, int c) { return c % 2 ? 60000.0f : 3e38f; },
  };
  each_moe_reduce_entry([&](const MoeReduceEntry& e) {
    std::vector<Shape> shapes;
    for (const auto value : values) {
      // Sums that f32 has no room for are infinite or, where they come back, NaN: not the reference's.
      if (value == values[3] && e.spec.x != DType::f16) continue;
      shapes.push_back({.value = value});
    }
    return run_all(e, shapes);
  });
}

TEST_CASE("moe_reduce adds in f32, by rising slot, the residual last") {
  each_moe_reduce_entry([](const MoeReduceEntry& e) {
    if (e.spec.x == DType::f16) return std::string();  // not enough range
    // 2^27 swallows the first 1, and the residual's 1 comes behind everything.
    Tensor x(e.spec.x, 4, 64, 4, {256, 64}), residual(e.spec.x, 64), out(e.spec.x, 64);
    x.set(4, 64, [](int slot, int) { return slot == 0 ? 0x1p27f : slot == 2 ? -0x1p27f : slot == 1 ? 1.0f : 4.0f; });
    residual.set(1, 64, [](int, int) { return 0x1p-20f; });
    MoeReduceProblem p;
    p.spec = e.spec;
    p.x = x.device();
    p.residual = residual.device();
    p.out = out.device();
    p.rows = 1;
    p.columns = 64;
    p.topk = 4;
    p.x_stride = 256;
    p.x_slot_stride = p.residual_stride = p.out_stride = 64;
    if (!e.launch(p, {}).ok()) return std::string("not launched");
    out.download();
    const double wanted = reference::rounded(e.spec.x, 4 + 0x1p-20);
    return out.at(0, 5) == wanted ? "" : std::to_string(out.at(0, 5)) + ", not " + std::to_string(wanted);
  });
}

}  // namespace
}  // namespace tilewave::test::moe_reduce_tests
