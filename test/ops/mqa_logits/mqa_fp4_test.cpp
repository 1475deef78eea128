// SPDX-License-Identifier: MIT
// An indexer's logits on fp4 with e8m0 scales: every entry against the reference, pages in any order, lengths of every
// kind, what is refused.
#include <algorithm>

#include "entries/mqa_logits.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/mqa_logits.hpp"

namespace tilewave::test {
namespace {

/// Bytes drawn from a name. As scales they are powers of two from 2^-3 to 2^4.
std::vector<std::uint8_t> drawn_bytes(char name, std::int64_t count, bool scales) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = bench::random_bits({std::uint64_t(name), std::uint64_t(i)});
    bytes[i] = static_cast<std::uint8_t>(scales ? 124 + bits % 8 : bits);
  }
  return bytes;
}

/// Keys behind the last one of a sequence have NaN scales. Pages that no query sees do not exist.
class Fp4Call {
 public:
  Fp4Call(const MqaLogitsSpec& spec, const std::vector<std::int32_t>& lengths, std::int32_t queries,
          std::int32_t columns)
      : lengths_(lengths),
        all_(static_cast<std::int32_t>(lengths.size()) * queries),
        logits_(DType::f32, all_, columns, 1, {columns + 3, 0}),
        weights_(DType::f32, all_, spec.heads, 1, {spec.heads + 4, 0}) {
    weights_.set(all_, spec.heads, [](int r, int c) { return drawn('w', r, c); });
    const std::int32_t table_columns = ceil_div(columns, 64) + 1;
    std::int32_t pages = 0;
    for (const std::int32_t length : lengths) pages += ceil_div(std::clamp(length, 0, columns), 64);
    pages = std::max(pages, 1);
    q_ = drawn_bytes('q', std::int64_t{all_} * q_stride(spec), false);
    q_scale_ = drawn_bytes('s', std::int64_t{all_} * (spec.heads * 4 + 4), true);
    k_ = drawn_bytes('k', std::int64_t{pages} * page_bytes, false);
    k_scale_ = drawn_bytes('t', std::int64_t{pages} * scale_bytes, true);
    tables_.assign(lengths.size() * table_columns, 1 << 30);
    std::int32_t page = 0;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const std::int32_t length = std::clamp(lengths[b], 0, columns);
      for (std::int32_t i = 0; i < ceil_div(length, 64); ++i, ++page) {
        const std::int32_t place = static_cast<std::int32_t>(std::int64_t{page} * 7919 % pages);
        tables_[b * table_columns + i] = place;
        for (std::int32_t t = length - 64 * i; t < 64; ++t)
          for (int unit = 0; unit < 4; ++unit) k_scale_[place * scale_bytes + unit * 64 + t % 16 * 4 + t / 16] = 0xff;
      }
    }
    host.spec = spec;
    host.sequences = static_cast<std::int32_t>(lengths.size());
    host.queries = queries;
    host.columns = columns;
    host.pages = pages;
    host.block_size = 64;
    host.table_columns = table_columns;
    host.q_stride = q_stride(spec);
    host.q_head_stride = 80;
    host.q_scale_stride = spec.heads * 4 + 4;
    host.weights_stride = spec.heads + 4;
    host.k_page_stride = page_bytes;
    host.k_unit_stride = 64 * 16;
    host.k_stride = 16;
    host.k_scale_page_stride = scale_bytes;
    host.logits_stride = columns + 3;
    host.table_stride = table_columns;
    p = host;
    host.q = q_.data();
    host.q_scale = q_scale_.data();
    host.weights = static_cast<const float*>(weights_.host());
    host.k = k_.data();
    host.k_scale = k_scale_.data();
    host.block_tables = tables_.data();
    host.context_lengths = lengths_.data();
    p.q = upload(q_);
    p.q_scale = upload(q_scale_);
    p.weights = static_cast<const float*>(weights_.device());
    p.k = upload(k_);
    p.k_scale = upload(k_scale_);
    p.logits = static_cast<float*>(logits_.device());
    p.block_tables = static_cast<const std::int32_t*>(upload(tables_));
    p.context_lengths = static_cast<const std::int32_t*>(upload(lengths_));
  }

  /// Runs an entry. Returns the first thing that is wrong, or nothing.
  std::string run(const MqaLogitsEntry& entry) {
    const Status status = entry.launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    logits_.download();
    for (std::int32_t i = 0; i < all_; ++i) {
      const reference::MqaLogitsRow wanted = reference::mqa_logits_row(host, i);
      for (std::int32_t t = 0; t < host.columns; ++t) {
        const double got = logits_.at(i, t), want = wanted.logits[t];
        const bool good =
            std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= 0x1p-18 * wanted.magnitudes[t];
        if (!good)
          return "query " + std::to_string(i) + ", key " + std::to_string(t) + ": " + std::to_string(got) + ", not " +
                 std::to_string(want);
      }
    }
    return logits_.gaps_kept(all_, host.columns) ? "" : "wrote beyond its columns";
  }

  MqaLogitsProblem host, p;

 private:
  static constexpr int page_bytes = 4 * 64 * 16 + 32, scale_bytes = 4 * 64 + 12;
  static std::int64_t q_stride(const MqaLogitsSpec& s) { return 80 * s.heads + 16; }
  template <class T>
  void* upload(const std::vector<T>& from) {
    bench::DeviceBuffer& to = uploaded_.emplace_back(from.size() * sizeof(T));
    bench::check_hip(hipMemcpy(to.data(), from.data(), to.bytes(), hipMemcpyHostToDevice), "copying over");
    return to.data();
  }

  std::vector<std::int32_t> lengths_, tables_;
  std::int32_t all_;
  Tensor logits_, weights_;
  std::vector<std::uint8_t> q_, q_scale_, k_, k_scale_;
  std::vector<bench::DeviceBuffer> uploaded_;
};

template <class F>
void each_fp4_entry(const F& f) {
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.type != DType::fp4_e2m1) continue;
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy));
    f(*e);
  }
}

TEST_CASE("mqa_logits: fp4 keys of pages, as many as sequences have, for their last tokens") {
  each_fp4_entry([](const MqaLogitsEntry& e) {
    CHECK(Fp4Call(e.spec, {300, 0, 1, 129}, 1, 301).run(e) == "");
    CHECK(Fp4Call(e.spec, {64, 65, 3}, 2, 130).run(e) == "");
    CHECK(Fp4Call(e.spec, {200}, 5, 1000).run(e) == "");
    CHECK(Fp4Call(e.spec, {-1, 40, 101, 1 << 30, 100}, 2, 100).run(e) == "");  // some beyond the columns
  });
}

TEST_CASE("mqa_logits: what is no call with fp4 is refused by name, and by other architectures") {
  using P = MqaLogitsProblem;
  using C = StatusCode;
  const Wrong<P> wrongs[] = {
      {"ranges", C::unsupported_layout, [](P& p) { p.spec.keys = MqaKeys::ranges; }},
      {"pages of 32", C::unsupported_block_size, [](P& p) { p.block_size = 32; }},
      {"q_scale null", C::null_pointer, [](P& p) { p.q_scale = nullptr; }},
      {"q_scale off by 2", C::misaligned, [](P& p) { p.q_scale = moved(p.q_scale, 2); }},
      {"q_scale of odd strides", C::bad_stride, [](P& p) { p.q_scale_stride += 2; }},
      {"q_scale in one place", C::bad_stride, [](P& p) { p.q_scale_stride = 0; }},
      {"units in one place", C::bad_stride, [](P& p) { p.k_unit_stride = 0; }},
      {"units of odd strides", C::bad_stride, [](P& p) { p.k_unit_stride += 8; }},
      {"scales of pages in one place", C::bad_stride, [](P& p) { p.k_scale_page_stride = 0; }},
      {"logits over q_scale", C::bad_value, [](P& p) { p.logits = static_cast<float*>(const_cast<void*>(p.q_scale)); }},
      {"fp8 with q_scale", C::bad_value, [](P& p) { p.spec.type = DType::fp8_e4m3fn; }},
  };
  each_fp4_entry([&](const MqaLogitsEntry& e) {
    const Fp4Call call(e.spec, {100, 70}, 2, 128);
    check_refused<MqaLogitsEntry, P>(e, call.p, wrongs, mqa_logits_check, mqa_logits_select, all_mqa_logits_entries());
    for (const ArchId arch : {ArchId::gfx942, ArchId::sm90}) {
      const Status status = mqa_logits_check(call.p, facts_of(arch));
      CHECK(name_of(status.code) == "unsupported_dtype");
      CHECK(std::string(status.reason) == "fp4 is for gfx950 only");
    }
  });
}

}  // namespace
}  // namespace tilewave::test
