// SPDX-License-Identifier: MIT
// One row of bench_ceiling: reading, copying or writing a buffer, adding two, or launching nothing.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/harness/rows/rows.hpp"
#include "entries/vec_add.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::bench {

/// The kinds of TrafficKind with their numbers, and the vector addition.
enum class CeilingKind : int { nothing, read, copy, write, vec_add };

template <>
inline constexpr int enumerators_of<CeilingKind> = 5;

constexpr const char* name_of(CeilingKind kind) {
  return kind == CeilingKind::vec_add ? "vec_add" : name_of(static_cast<TrafficKind>(kind));
}

/// The bytes of a buffer on the emulated device: 32 of the largest policy's tiles.
inline constexpr std::int64_t emulated_bytes = std::int64_t{1} << 20;

struct CeilingCase {
  ArchId arch = ArchId::gfx950;
  CeilingKind kind = CeilingKind::read;
  DType x = DType::f32;           // vec_add
  std::int64_t bytes = 0;         // of one buffer, as launched
  std::int64_t config_bytes = 0;  // of the config: the emulated device takes emulated_bytes at most
  std::uint64_t seed = 123;

  std::int64_t count() const { return bytes / size_of(x); }  // elements, of vec_add

  static constexpr NamePart name_parts[] = {{"nothing", "kind", "nothing"},
                                            {"read", "kind", "read"},
                                            {"copy", "kind", "copy"},
                                            {"write", "kind", "write"},
                                            {"vec_add", "kind", "vec_add"}};
  static constexpr std::string_view name_types[] = {"x_dtype"}, name_mode = "x_dtype";
  static void imply(Words& words) { words.imply("config_bytes", "buffer_bytes"); }
  void complete() { bytes = cuts_configs() ? std::min(config_bytes, emulated_bytes) : config_bytes; }
  /// Whole tiles of every policy, whole rows of a vector addition.
  std::string fault() const {
    const bool adds = kind == CeilingKind::vec_add;
    const std::int64_t step = adds ? std::int64_t{1024} * size_of(x) : std::int64_t{1} << 20;
    if (kind == CeilingKind::nothing) return config_bytes == 0 ? "" : "nothing has no buffers";
    if (adds && x != DType::f32 && x != DType::f16 && x != DType::bf16) return "vec_add takes f32, f16 and bf16";
    if (config_bytes > 0 && config_bytes % step == 0) return "";
    return "config_bytes is missing or no multiple of " + std::to_string(step);
  }

  template <class Case, class Visit>  // a CeilingCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit("kind", c.kind);
    visit("arch", c.arch);
    if (c.kind == CeilingKind::vec_add) {
      visit("x_dtype", c.x);
    } else {
      visit.derived("x_dtype", "none");
    }
    visit.chosen("buffer_bytes", c.bytes);
    visit("config_bytes", c.config_bytes);
    visit("seed", c.seed);
  }
};

/// `64MiB`, `4GiB`, and `40960000B` for what is neither.
inline std::string size_name(std::int64_t bytes) {
  constexpr std::int64_t mib = std::int64_t{1} << 20, gib = std::int64_t{1} << 30;
  return bytes % gib == 0   ? std::to_string(bytes / gib) + "GiB"
         : bytes % mib == 0 ? std::to_string(bytes / mib) + "MiB"
                            : std::to_string(bytes) + "B";
}

/// `copy/sm90/64MiB`, `vec_add/sm90/f32/64MiB`, `nothing/sm90`; `1MiBof64MiB` where less is launched than the config has.
inline std::string name_of(const CeilingCase& c) {
  const bool adds = c.kind == CeilingKind::vec_add;
  const std::string size =
      size_name(c.bytes) + (c.bytes < c.config_bytes ? "of" + size_name(c.config_bytes) : std::string());
  return std::string(name_of(c.kind)) + "/" + std::string(name_of(c.arch)) +
         (adds ? "/" + std::string(name_of(c.x)) : "") + (c.kind == CeilingKind::nothing ? "" : "/" + size);
}

/// Every buffer once: read 1, copy 2 of which 1 is written, write 1, vec_add 3 of which 1 is written; an element is one
/// addition.
inline Work work_of(const CeilingCase& c) {
  const std::int64_t bytes = c.bytes;
  switch (c.kind) {
    case CeilingKind::nothing: return {};
    case CeilingKind::read: return {.bytes = bytes};
    case CeilingKind::copy: return {.bytes = 2 * bytes, .written = bytes};
    case CeilingKind::write: return {.bytes = bytes, .written = bytes};
    case CeilingKind::vec_add: break;
  }
  return {.bytes = 3 * bytes, .written = bytes, .flops = c.count()};
}

/// A config with one entry, of whichever list its kind has.
struct CeilingPlan {
  CeilingCase config;
  const TrafficEntry* traffic;
  const VecAddEntry* vec_add;
  int config_id;
  std::string name;
  std::string refusal;  // always empty: every config has an entry

  const VecAddPolicy& policy() const { return traffic != nullptr ? traffic->policy : vec_add->policy; }
  std::string entry_name() const {
    return (traffic != nullptr ? std::string(name_of(traffic->spec.kind)) : name_of(vec_add->spec)) + "/" +
           name_of(policy());
  }
  Columns identity() const {
    ColumnWriter visit;
    CeilingCase::each_column(config, visit);
    const VecAddPolicy& p = policy();
    visit.policy = true;
    visit("lanes", p.lanes);
    visit("chunks", p.chunks);
    visit("vec", p.vec);
    visit("stream", p.stream);
    visit("waves_per_simd", p.waves_per_simd);
    return visit.columns;
  }
};

class CeilingRunner {
 public:
  CeilingRunner(const MeasureOptions& options, Meter::Log log) : options_(options), meter_(options, std::move(log)) {}

  /// Never throws: a row that could not be run or is wrong comes back with ok false, and why is logged.
  Measurement run(const CeilingPlan& plan) {
    return meter_.fill(plan.config.arch, [&](Measurement& row) {
      row.work = work_of(plan.config);
      if (plan.traffic != nullptr) {
        run_traffic(plan, row);
      } else {
        run_vec_add(plan, row);
      }
    });
  }

 private:
  static constexpr std::byte injected{0x40};

  void run_traffic(const CeilingPlan& plan, Measurement& row) {
    const CeilingCase& c = plan.config;
    const bool reads = c.kind == CeilingKind::read || c.kind == CeilingKind::copy;
    const bool writes = c.kind == CeilingKind::copy || c.kind == CeilingKind::write;
    const auto seed = static_cast<std::uint32_t>(c.seed);
    const DeviceBuffer from(reads ? static_cast<std::size_t>(c.bytes) : 0), verdict(sizeof(TrafficVerdict));
    const TwinBuffer to(writes ? static_cast<std::size_t>(c.bytes) : 0);
    if (reads) {
      if (fills(from.bytes())) fill_random(c.arch, from.data(), c.bytes, seed, {});
      check_hip(hipDeviceSynchronize(), "filling a buffer");
      // What a copy or a write leaves is damaged later; what reading finds, here.
      if (options_.inject_error && !writes) check_hip(hipMemset(from.data(), 0, sizeof(Chunk)), "damaging a buffer");
    }
    verdict.fill(0);
    if (writes && fills(to.bytes())) check_hip(hipMemset(to.device(), 0xff, to.bytes()), "filling a buffer");
    const TrafficProblem problem{.from = from.data(),
                                 .to = to.device(),
                                 .verdict = static_cast<TrafficVerdict*>(verdict.data()),
                                 .bytes = c.bytes,
                                 .seed = seed};
    const auto launch = [&](hipStream_t stream) { return plan.traffic->launch(problem, stream); };
    if (!meter_.run(c.arch, launch, row.timing, std::array{&to})) return;
    std::string finding;
    if (writes) {
      to.download();
      if (options_.inject_error) to.host()[0] ^= injected;
      finding = wrong_chunks(to, seed);
    } else if (reads) {
      TrafficVerdict found;
      check_hip(hipMemcpy(&found, verdict.data(), sizeof(found), hipMemcpyDeviceToHost), "copying from the device");
      if (found.wrong != 0) finding = "chunks were read that are not what was written";
      if (found.read != static_cast<std::uint32_t>(c.bytes / 16)) finding = "the last chunk was not read";
    }
    row.ok = finding.empty();
    row.max_abs_err = row.max_rel_err = row.ok ? 0 : std::numeric_limits<double>::infinity();
    if (!row.ok) meter_.log(finding);
  }

  /// Compares all of a buffer with random_chunk(); empty if it is that.
  std::string wrong_chunks(const TwinBuffer& buffer, std::uint32_t seed) const {
    constexpr std::int64_t part = std::int64_t{1} << 16;  // chunks
    const auto chunks = static_cast<std::int64_t>(buffer.bytes() / sizeof(Chunk));
    std::vector<std::int64_t> bad(static_cast<std::size_t>(ceil_div(chunks, part)));
    reference::parallel_for(std::ssize(bad), options_.threads, [&](std::int64_t p) {
      for (std::int64_t i = p * part; i < std::min(chunks, (p + 1) * part); ++i) {
        const Chunk wanted = random_chunk(static_cast<std::uint32_t>(i), seed);
        bad[p] += std::memcmp(buffer.host() + i * sizeof(Chunk), &wanted, sizeof(Chunk)) != 0;
      }
    });
    std::int64_t all = 0, first = -1;
    for (std::int64_t p = 0; p < std::ssize(bad); ++p) {
      all += bad[p];
      if (first < 0 && bad[p] > 0) first = p * part;
    }
    if (all == 0) return "";
    return std::to_string(all) + " of " + std::to_string(chunks) +
           " chunks are wrong, the first of them at or behind " + std::to_string(first * std::int64_t{sizeof(Chunk)}) +
           " bytes";
  }

  void run_vec_add(const CeilingPlan& plan, Measurement& row) {
    const CeilingCase& c = plan.config;
    constexpr std::int32_t columns = 1024;  // inputs are made and outputs compared by rows of so many
    const auto rows = static_cast<std::int32_t>(c.count() / columns);
    if (c.count() % columns != 0) throw std::runtime_error("a vector addition of a broken row of 1024 elements");
    const auto input = [&](char name) {
      return filled(c.x, rows, columns, options_.threads,
                    [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, name, r, column); });
    };
    const TwinBuffer a = input('a'), b = input('b'), out = poisoned(c.x, c.count());
    const VecAddProblem problem{
        .spec = plan.vec_add->spec, .a = a.device(), .b = b.device(), .out = out.device(), .count = c.count()};
    const auto launch = [&](hipStream_t stream) { return plan.vec_add->launch(problem, stream); };
    if (!meter_.run(c.arch, launch, row.timing, std::array{&out})) return;
    out.download();
    if (options_.inject_error) out.host()[size_of(c.x) - 1] ^= injected;  // the top of an exponent
    std::vector<RowErrors> found(static_cast<std::size_t>(rows));
    reference::parallel_for(rows, options_.threads, [&](std::int64_t r) {
      for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) {
        const double sum = reference::element(c.x, a.host(), i) + reference::element(c.x, b.host(), i);
        const double got = reference::element(c.x, out.host(), i), wanted = reference::rounded(c.x, sum);
        found[r].out(got == wanted, r, i % columns, got, wanted);
      }
    });
    conclude(found, meter_, row);
  }

  MeasureOptions options_;
  Meter meter_;
};

}  // namespace tilewave::bench
