// SPDX-License-Identifier: MIT
// Writes into latent caches: what decode reads back, what is rotated, what is left alone, and what is refused.
#include "entries/latent_cache_write.hpp"

#include "test/ops/rows.hpp"
#include "test/uploads.hpp"
#include "tilewave/reference/latent_cache_write.hpp"

namespace tilewave::test {
namespace {

struct WriteShape {
  std::int32_t tokens = 13, q_heads = 3, block_size = 16;
  std::int64_t pages = 4;
  bool rotated = true, in_place = false;
  float size = 1.0f;  // multiplies what is written
};

/// A call on host and device. The cache holds unwritten_byte before.
class WriteCall {
 public:
  LatentCacheWriteProblem host, p;

  WriteCall(const LatentCacheWriteSpec& spec, const WriteShape& s) {
    LatentCacheWriteProblem h;
    h.spec = spec;
    h.tokens = s.tokens, h.q_heads = s.q_heads, h.block_size = s.block_size, h.num_pages = s.pages;
    const float* const any = &scale_;
    if (s.rotated) h.cos = any;
    h = LatentCacheWriteProblem::dense(h);
    h.cos = nullptr;
    latent_ = halves(s.tokens, spec.head_size - latent_rope_size, 'l', s.size);
    rope_ = halves(s.tokens, latent_rope_size, 'r', s.size);
    q_ = halves(s.tokens * s.q_heads, latent_rope_size, 'q', 1.0f);
    q_out_ = s.in_place ? q_ : std::vector<std::uint16_t>(q_.size(), 0xcdcd);
    kv_.assign(s.pages * h.page_stride * size_of(spec.kv), std::byte(unwritten_byte));
    const std::int64_t slots = s.pages * s.block_size;
    for (std::int32_t i = 0; i < s.tokens; ++i) {
      slots_.push_back(i == 2 ? -1 : i == 5 ? slots : std::int64_t{i} * 7919 % slots);
      positions_.push_back(i * 3 % rows);
    }
    table_[0] = tables(spec.table, true), table_[1] = tables(spec.table, false);
    host = h;
    host.latent = latent_.data(), host.rope = rope_.data(), host.kv = kv_.data(), host.slots = slots_.data();
    if (s.q_heads > 0) host.q = q_.data(), host.q_out = q_out_.data();
    if (is_fp8(spec.kv) && spec.layout == LatentLayout::plain) host.kv_scale = &scale_;
    if (s.rotated) {
      host.cos = table_[0].data(), host.sin = table_[1].data(), host.positions = positions_.data();
      host.table_rows = rows;
    }
    p = host;
    p.latent = upload_(latent_), p.rope = upload_(rope_), p.kv = upload_(kv_), p.slots = upload_(slots_);
    if (s.q_heads > 0) p.q = upload_(q_), p.q_out = s.in_place ? const_cast<void*>(p.q) : upload_(q_out_);
    if (host.kv_scale != nullptr) p.kv_scale = static_cast<const float*>(upload_(std::vector<float>{scale_}));
    if (s.rotated) p.cos = upload_(table_[0]), p.sin = upload_(table_[1]), p.positions = upload_(positions_);
  }

  /// Runs the call. Returns an empty text, or the first thing that is wrong.
  std::string run(const LatentCacheWriteEntry& entry) {
    if (const Status status = entry.launch(p, {}); !status.ok()) return status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    bench::check_hip(hipMemcpy(kv_.data(), p.kv, kv_.size(), hipMemcpyDeviceToHost), "copying back");
    if (p.q_out != nullptr)
      bench::check_hip(hipMemcpy(q_out_.data(), p.q_out, 2 * q_out_.size(), hipMemcpyDeviceToHost), "copying back");
    std::vector<bool> written(host.num_pages * host.block_size);
    for (std::int32_t t = 0; t < host.tokens; ++t) {
      const std::string name = "token " + std::to_string(t) + ", ";
      for (std::int32_t h = 0; h < host.q_heads; ++h) {
        const std::int64_t at = t * host.q_out_strides.token + h * host.q_out_strides.head;
        const std::vector<double> want = reference::latent_rotated(host, q_.data(), at, t);
        for (int d = 0; d < latent_rope_size; ++d) {
          const double got = reference::element(DType::bf16, q_out_.data(), at + d);
          if (!(std::abs(got - want[d]) <= 0x1.01p-8 * std::abs(want[d]) + 1e-6))
            return name + "q of head " + std::to_string(h) + ", dimension " + std::to_string(d);
        }
      }
      if (slots_[t] < 0 || slots_[t] >= std::int64_t(written.size())) continue;
      written[slots_[t]] = true;
      const std::vector<double> got = reference::latent_read_back(host, slots_[t]),
                                want = reference::latent_written(host, t);
      for (int d = 0; d < host.spec.head_size; ++d) {
        if (!(std::abs(got[d] - want[d]) <=
              reference::latent_rounding(host, want, d) + 1e-6 * std::abs(want[d]) + 1e-9))
          return name + "dimension " + std::to_string(d) + ": " + std::to_string(got[d]) + ", not " +
                 std::to_string(want[d]);
      }
    }
    const std::int64_t token_bytes = host.spec.row().token_bytes(),
                       page_bytes = host.page_stride * size_of(host.spec.kv);
    for (std::size_t i = 0; i < kv_.size(); ++i) {
      const std::int64_t page = std::int64_t(i) / page_bytes, in_page = std::int64_t(i) % page_bytes / token_bytes;
      if (in_page < host.block_size && written[page * host.block_size + in_page]) continue;
      if (in_page >= host.block_size) continue;  // scales that lie apart are looked at by reading rows back
      if (kv_[i] != std::byte(unwritten_byte)) return "byte " + std::to_string(i) + " of the cache was written";
    }
    return "";
  }
  const std::vector<std::byte>& cache() const { return kv_; }
  std::vector<std::int64_t>& slots() { return slots_; }

  static constexpr std::int32_t rows = 40;

 private:
  static std::vector<std::uint16_t> halves(std::int64_t count, int size, char name, float factor) {
    std::vector<std::uint16_t> x;
    for (std::int64_t i = 0; i < count; ++i)
      for (int d = 0; d < size; ++d) x.push_back(f32_to_bf16(factor * drawn(name, i, d)));
    return x;
  }
  static std::vector<std::byte> tables(DType type, bool cosines) {
    const reference::RopeAngles angles = reference::rope_angles(latent_rope_size, 10000);
    const RopeSpec spec{.x = DType::bf16, .table = type};
    std::vector<std::byte> table(rows * latent_rope_size / 2 * size_of(type));
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < latent_rope_size / 2; ++c) {
        const std::uint32_t bits = encode(type, static_cast<float>(cosines ? reference::rope_cos(spec, angles, r, c)
                                                                           : reference::rope_sin(spec, angles, r, c)));
        std::memcpy(&table[(r * latent_rope_size / 2 + c) * size_of(type)], &bits, size_of(type));
      }
    }
    return table;
  }

  std::vector<std::uint16_t> latent_, rope_, q_, q_out_;
  std::vector<std::byte> kv_, table_[2];
  std::vector<std::int64_t> slots_;
  std::vector<std::int32_t> positions_;
  float scale_ = 0.0625f;
  Uploads upload_;
};

void check_writes(const WriteShape& shape, bool only_groups = false) {
  for (const LatentCacheWriteEntry* entry : all_latent_cache_write_entries()) {
    if (only_groups && entry->spec.layout == LatentLayout::plain) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec));
    CHECK(WriteCall(entry->spec, shape).run(*entry) == "");
  }
}

TEST_CASE("decode reads back what is written, rotated by position") {
  check_writes({});
  check_writes({.tokens = 1, .q_heads = 0, .block_size = 1, .pages = 3});
  check_writes({.tokens = 37, .q_heads = 16, .block_size = 61, .pages = 2});
}

TEST_CASE("rows that were rotated before, and q in place") {
  check_writes({.rotated = false});
  check_writes({.in_place = true});
}

TEST_CASE("scales of groups follow magnitudes") {
  check_writes({.size = 0x1p-20f}, true);
  check_writes({.q_heads = 0, .size = 0x1p8f}, true);
}

TEST_CASE("a group of zeros and a group with NaN") {
  for (const LatentCacheWriteEntry* entry : all_latent_cache_write_entries()) {
    if (entry->spec.layout == LatentLayout::plain) continue;
    WriteCall call(entry->spec, {.tokens = 2, .q_heads = 0});
    std::vector<std::uint16_t> latent(2 * call.host.latent_stride, 0);
    latent[call.host.latent_stride + 70] = 0x7fc0;  // NaN
    bench::check_hip(
        hipMemcpy(const_cast<void*>(call.p.latent), latent.data(), 2 * latent.size(), hipMemcpyHostToDevice),
        "copying over");
    (void)call.run(*entry);
    INFO(name_of(entry->arch) << " " << name_of(entry->spec));
    LatentCacheWriteProblem written = call.host;
    const std::vector<double> zeros = reference::latent_read_back(written, call.slots()[0]);
    const std::vector<double> some = reference::latent_read_back(written, call.slots()[1]);
    const int group = entry->spec.row().group(), first = 70 / group * group;
    for (int d = 0; d < entry->spec.row().codes(); ++d) {
      CHECK(zeros[d] == 0.0);
      if (d >= first && d < first + group) {
        CHECK(std::isnan(some[d]));
      } else {
        CHECK(some[d] == 0.0);
      }
    }
  }
}

TEST_CASE("a position outside the tables makes rotated dimensions NaN") {
  for (const LatentCacheWriteEntry* entry : all_latent_cache_write_entries()) {
    WriteCall call(entry->spec, {.tokens = 1, .q_heads = 1});
    const std::int32_t position = WriteCall::rows;
    bench::check_hip(hipMemcpy(const_cast<void*>(call.p.positions), &position, 4, hipMemcpyHostToDevice),
                     "copying over");
    INFO(name_of(entry->arch) << " " << name_of(entry->spec));
    (void)call.run(*entry);
    const std::vector<double> row = reference::latent_read_back(call.host, call.slots()[0]);
    for (int d = 0; d < entry->spec.head_size; ++d) CHECK(std::isnan(row[d]) == (d >= entry->spec.head_size - 64));
  }
}

TEST_CASE("refusals") {
  constexpr DType fp8 = DType::fp8_e4m3fn;
  using P = LatentCacheWriteProblem;
  const auto refused = [&](const auto& change, const LatentCacheWriteSpec& spec = {}) {
    WriteCall call(spec, {});
    P p = call.p;
    REQUIRE(latent_cache_write_check(p, facts_of(ArchId::gfx950)).ok());
    change(p);
    return latent_cache_write_check(p, facts_of(ArchId::gfx950)).code;
  };
  const LatentCacheWriteSpec codes{.kv = fp8}, apart{.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512};
  CHECK(refused([](P& p) { p.spec.kv = DType::f16; }) == StatusCode::unsupported_dtype);
  CHECK(refused([](P& p) { p.spec.kv = DType::fp8_e4m3fnuz; }) == StatusCode::unsupported_dtype);
  CHECK(refused([](P& p) { p.spec.layout = LatentLayout::groups_128; }) == StatusCode::unsupported_dtype);
  CHECK(refused([](P& p) { p.spec.layout = static_cast<LatentLayout>(9); }) == StatusCode::unsupported_layout);
  CHECK(refused([](P& p) { p.spec.head_size = 128; }) == StatusCode::unsupported_head_size);
  CHECK(refused([](P& p) { p.spec.head_size = 576; }, apart) == StatusCode::unsupported_head_size);
  CHECK(refused([](P& p) { p.spec.layout = LatentLayout::groups_128, p.spec.head_size = 512; }, codes) ==
        StatusCode::unsupported_head_size);
  CHECK(refused([](P& p) { p.spec.table = DType::f16; }) == StatusCode::unsupported_dtype);
  CHECK(refused([](P& p) { p.spec.pairs = static_cast<RopePairs>(7); }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.tokens = -1; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.block_size = 0; }) == StatusCode::unsupported_block_size);
  CHECK(refused([](P& p) { p.num_pages = 0; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.num_pages = 1 << 30; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.tokens = 1 << 30; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.table_rows = 0; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.latent = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.kv = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.slots = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.sin = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.q_out = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.kv_scale = nullptr; }, codes) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.kv_scale = static_cast<const float*>(p.cos); }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.cos = p.sin = p.positions = nullptr; }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.latent_stride += 4; }) == StatusCode::misaligned);
  CHECK(refused([](P& p) { p.token_stride += 16; }, apart) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.token_stride = 0; }) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.latent_stride = 0; }) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.kv = const_cast<void*>(p.latent); }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.q_out = const_cast<void*>(p.rope); }) == StatusCode::bad_value);
}

}  // namespace
}  // namespace tilewave::test
