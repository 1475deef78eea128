// SPDX-License-Identifier: MIT
#include "tools/tilewave/isa/gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bench/harness/progress.hpp"
#include "tilewave/arch/facts.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/isa/report.hpp"

namespace tilewave::tool {

namespace {

bool has(const std::vector<int>& list, int value) { return std::find(list.begin(), list.end(), value) != list.end(); }

std::int64_t bytes_of(const std::map<int, std::int64_t>& accesses, const std::vector<int>& widths) {
  std::int64_t sum = 0;
  for (const auto& [width, n] : accesses) sum += has(widths, width) ? width * n : 0;
  return sum;
}

/// Returns the least amount of K and V in flight: the accesses that a lane waits for, behind each wait, once round the
/// loop. It is in KB of a wave, 16 bytes a lane each.
double least_in_flight(const Listing& path, const std::vector<int>& widths) {
  std::vector<double> queue;
  double least = 0;
  constexpr int turns = 3;  // the queue is as it stays from the second on
  for (int turn = 0; turn < turns; ++turn) {
    bool waited = false;
    least = 0;
    for (const AsmLine& line : path) {
      const int loaded = load_bytes(line.mnemonic);
      if (loaded > 0 || store_bytes(line.mnemonic) > 0)
        queue.push_back(loaded > 0 && has(widths, loaded) ? loaded / 16. : 0);
      const int left = line.mnemonic == "s_waitcnt" ? left_by_wait(line) : -1;
      if (left < 0 || static_cast<std::size_t>(left) >= queue.size()) continue;
      queue.erase(queue.begin(), queue.end() - left);
      double sum = 0;
      for (const double kb : queue) sum += kb;
      least = waited ? std::min(least, sum) : sum;
      waited = true;
    }
  }
  return least;
}

/// Loads of rows are the non-temporal ones; from the first of them on.
std::int64_t bytes_before_wait(const Listing& listing) {
  std::int64_t total = 0;
  for (const AsmLine& line : listing) {
    const int bytes = load_bytes(line.mnemonic);
    if (bytes > 0 && line.operands.ends_with(" nt")) {
      total += bytes;
    } else if (total > 0 && line.mnemonic == "s_waitcnt" && left_by_wait(line) >= 0) {
      break;
    }
  }
  return total;
}

/// Collects what is wrong with one kernel.
class Rules {
 public:
  explicit Rules(const Judged& kernel) : k_(kernel), claim_(*kernel.claims) {}

  std::vector<Violation> all() {
    every_kernel();
    if (claim_.row) rows(*claim_.row);
    if (claim_.gemm) gemm(*claim_.gemm);
    if (claim_.kv) attention(*claim_.kv);
    return std::move(found_);
  }

 private:
  template <class... Values>
  void add(const char* rule, fmt::format_string<Values...> text, const Values&... values) {
    found_.push_back({k_.file, rule, k_.label, fmt::vformat(text, fmt::make_format_args(values...))});
  }

  void every_kernel() {
    const KernelNeeds& n = k_.needs;
    const int most_lds = facts_named(k_.arch)->lds_bytes;
    const std::int64_t scratch = k_.whole.of("scratch"), calls = k_.whole.of("call");
    if (n.scratch_bytes > 0 || scratch > 0 || n.dynamic_stack)
      add("scratch", "{} bytes of scratch a lane, {} scratch instructions{}", n.scratch_bytes, scratch,
          n.dynamic_stack ? ", a dynamic stack" : "");
    if (n.spills() > 0) add("spill", "{} VGPRs and {} SGPRs spilled", n.vgpr_spills, n.sgpr_spills);
    if (calls > 0) add("call", "{} calls of functions that were not inlined", calls);
    if (k_.arch != claim_.arch) add("arch", "compiled for {}, the entry is for {}", k_.arch, claim_.arch);
    if (n.lds_bytes > most_lds) add("lds", "{} bytes of LDS, a block may use {}", n.lds_bytes, most_lds);
    if (n.lds_bytes > claim_.lds_bytes)  // less is what the compiler found unused
      add("lds", "{} bytes of LDS, the entry's Shared has {}", n.lds_bytes, claim_.lds_bytes);
    if (n.block_lanes != 64 * claim_.waves_per_block)
      add("block", "compiled for {} lanes, the policy has {} waves", n.block_lanes, claim_.waves_per_block);
    if (k_.waves_per_simd < claim_.waves_per_simd)
      add("waves", "{} waves per SIMD ({} registers, {} bytes of LDS), the policy claims {}", k_.waves_per_simd,
          n.allocated, n.lds_bytes, claim_.waves_per_simd);
  }

  /// Products of the room's atoms; K and V in wide loads.
  void attention(const KvClaims& kv) {
    std::vector<std::string> used, claimed = kv.mfma;
    for (const auto& [name, n] : k_.whole.matrix) used.push_back(name);
    std::sort(claimed.begin(), claimed.end());
    claimed.erase(std::unique(claimed.begin(), claimed.end()), claimed.end());
    if (used != claimed)
      add("mfma", "matrix instructions {}, the room's atom is {}", shapes_text(k_.whole.matrix), join(kv.mfma, ", "));
    if (claim_.steady) steady(*claim_.steady);
    if (const double share = kv_share(k_); share < 0.95)
      add("kv_width", "{:.1f} % of the KV bytes come {} a lane: {} in the loop, {} for each 16 bytes, beside loads {}",
          100 * share, fmt::join(kv.widths, " or "), shapes_text(k_.loops.matrix), kv.mfma_per_load,
          widths_text(k_.loops.loads));
  }

  /// Prints what most iterations of a loop that streams K and V cost for each KB, and how much is never waited for.
  void steady(const SteadyClaims& reached) {
    const SteadyCost& s = k_.steady;
    if (s.kb == 0) return add("steady", "no way round the loop loads K or V");
    const double valu = s.per_kb(static_cast<double>(s.mix.of("vector")));
    const double clocks = s.per_kb(static_cast<double>(s.matrix_clocks));
    if (valu > reached.valu)
      add("steady_valu", "{:.1f} vector operations for each KB of K and V, {} were reached", valu, reached.valu);
    if (clocks > reached.matrix_clocks)
      add("steady_matrix", "{:.1f} clocks of the matrix unit for each KB of K and V, {} were reached", clocks,
          reached.matrix_clocks);
    if (s.kb_in_flight < reached.kb_in_flight)
      add("steady_flight", "a wait leaves {:g} KB of a wave in flight, {} were reached", s.kb_in_flight,
          reached.kb_in_flight);
  }

  /// Products at the full rate, with nothing in the steady loop that a better loop would not have.
  void gemm(const GemmClaims& claim) {
    const Mix& hot = k_.hot;
    if (k_.whole.matrix.size() != 1 || !k_.whole.matrix.contains(claim.mfma))
      return add("gemm_mfma", "matrix instructions {}, the full-rate one is {}", shapes_text(k_.whole.matrix),
                 claim.mfma);
    if (hot.waits.empty() && !claim.drains) {
      add("gemm_drain", "nothing in the loop waits for loads");
    } else if (has(hot.waits, 0) && !claim.drains) {
      add("gemm_drain", "a wait of the loop leaves no load under way");
    }
    const std::int64_t vector = hot.of("vector") + hot.of("acc_move") + hot.of("lane_move");
    if (static_cast<double>(vector) > (claim.valu_of_products + 0.1) * static_cast<double>(hot.products()))
      add("gemm_valu", "{} vector instructions beside {} products", vector, hot.products());
    if (hot.lds_writes > 0 && !claim.writes_lds)
      add("gemm_lds", "{} writes to LDS, which copies could do", hot.lds_writes);
  }

  /// Rows move in wide accesses, all in flight at once, and reductions stay in registers.
  void rows(const RowClaims& claim) {
    const Mix& w = k_.whole;
    if (claim.vector) {
      row_width("load", w.loads, claim.wide_loads, claim.narrow_load_bytes);
      row_width("store", w.stores, claim.wide_stores, claim.narrow_store_bytes);
    }
    if (k_.row_bytes < claim.bytes_in_flight)
      add("row_flight", "a lane waits with {} bytes of its rows on their way, of {}", k_.row_bytes,
          claim.bytes_in_flight);
    if (w.of("exchange") > claim.exchanges || (w.of("lds") > claim.wave_lds && claim.barriers == 0))
      add("row_lanes", "{} lane exchanges and {} LDS accesses for {} barriers", w.of("exchange"), w.of("lds"),
          claim.barriers);
    if (w.dpp < claim.dpp) add("row_lanes", "{} DPP operations, the reductions take {} steps", w.dpp, claim.dpp);
    if (w.of("barrier") > claim.barriers)
      add("row_barriers", "{} barriers for {} reductions of a block", w.of("barrier"), claim.barriers);
  }
  void row_width(const char* what, const std::map<int, std::int64_t>& found, std::int64_t wide, std::int64_t narrow) {
    std::int64_t other = 0;
    for (const auto& [width, n] : found) other += width == 16 ? 0 : width * n;
    const std::int64_t have = found.contains(16) ? found.at(16) : 0;
    if (have < wide) add("row_width", "{} {}s of 16 bytes, the rows need {}", have, what, wide);
    if (other > narrow)
      add("row_width", "{}s {}: {} bytes are not for accesses of 16", what, widths_text(found), narrow);
  }

  const Judged& k_;
  const Claims& claim_;
  std::vector<Violation> found_;
};

/// The code in one file.
std::vector<DeviceCode> code_of(const std::string& path) {
  std::vector<DeviceCode> codes = parse_binary(read_file(path), path);
  for (const DeviceCode& code : codes)
    if (code.arch == "sm90") refuse(path + ": sm90: the gate is of gfx942 and gfx950; isa show reads it");
  return codes;
}

/// Judges the kernels of a file's code, `first` to the end of `to`.
void judge_code(const DeviceCode& code, const std::map<std::string, Listing>& listings,
                const std::vector<Claims>& claims, std::vector<Judged>& to) {
  const std::string file = std::filesystem::path(code.file).filename().string();
  for (const KernelNeeds& needs : code.kernels) {
    const auto found = listings.find(needs.symbol);
    if (found == listings.end()) refuse(code.file + ": no listing of " + needs.symbol);
    std::optional<Claims> own;
    for (const Claims& c : claims)
      if (c.file == file && needs.symbol.find(c.symbol) != needs.symbol.npos) {
        own = c;
        break;
      }
    to.push_back(judged(code, needs, found->second, std::move(own)));
  }
}

}  // namespace

int matrix_clocks(const std::string& mfma) {
  for (const std::string& shape : split(mfma, '_')) {
    if (shape == "32x32x64") return 64;
    if (shape.starts_with("32x32x") || shape == "16x16x128") return 32;
    if (shape.starts_with("16x16x")) return 16;
  }
  refuse("the clocks of the matrix instruction " + printable(mfma) + " are not known");
}

SteadyCost steady_cost(const Listing& path, const std::vector<int>& kv_widths) {
  SteadyCost s{.mix = mix_of(path)};
  s.kb = static_cast<double>(bytes_of(s.mix.loads, kv_widths)) / 16;
  s.kb_in_flight = least_in_flight(path, kv_widths);
  for (const auto& [name, n] : s.mix.matrix) s.matrix_clocks += n * matrix_clocks(name);
  return s;
}

double kv_share(const Judged& k) {
  const KvClaims& kv = *k.claims->kv;
  const double needed = 16 * static_cast<double>(k.loops.products()) / kv.mfma_per_load;
  return needed > 0 ? std::min(1., static_cast<double>(bytes_of(k.loops.loads, kv.widths)) / needed) : 0;
}

double issue_share(const Judged& k) {
  double clocks = 0;
  for (const auto& [name, n] : k.hot.matrix) clocks += static_cast<double>(n * matrix_clocks(name));
  return clocks > 0 ? static_cast<double>(k.hot.instructions - k.hot.of("wait") - k.hot.of("barrier")) * 4 / clocks : 0;
}

Judged judged(const DeviceCode& code, const KernelNeeds& needs, const Listing& listing, std::optional<Claims> claims) {
  const std::vector<int> widths = claims && claims->kv ? claims->kv->widths : std::vector<int>{16};
  Judged k{.file = std::filesystem::path(code.file).filename().string(),
           .arch = code.arch,
           .compiler = code.compiler,
           .label = claims ? claims->label : demangled(needs.symbol),
           .family = claims ? claims->family : "",
           .needs = needs,
           .waves_per_simd = waves_of(needs, code.arch).per_simd,
           .claims = std::move(claims),
           .whole = mix_of(listing),
           .row_bytes = bytes_before_wait(listing)};
  if (!k.whole.unknown_width.empty())
    refuse(fmt::format("{}: {}: not known how wide {} is", code.file, needs.symbol, printable(k.whole.unknown_width)));
  std::vector<Listing> loops = matrix_loops(listing);
  Listing all;
  for (const Listing& loop : loops) all.insert(all.end(), loop.begin(), loop.end());
  k.loops = mix_of(all);
  // In a GEMM this is the loop over whole steps, not the one over the last, which may have as many products.
  const Listing hot = most_products(std::move(loops), k.claims && k.claims->gemm);
  k.hot = mix_of(hot);
  k.steady = steady_cost(steady_path(hot), widths);
  return k;
}

std::vector<Violation> violations_of(const Judged& kernel) { return Rules(kernel).all(); }

std::vector<Judged> judge(const std::vector<Claims>& claims, const std::string& folder, bool full) {
  std::vector<std::string> files;
  std::map<std::string, std::vector<Claims>> by_file;
  for (const Claims& c : claims) {
    if (c.full && !full) continue;
    if (!by_file.contains(c.file)) files.push_back(c.file);
    by_file[c.file].push_back(c);
  }
  std::vector<Judged> all;
  bench::Progress progress(files.size());
  constexpr std::size_t at_once = 16;
  for (std::size_t first = 0; first < files.size(); first += at_once) {
    const std::size_t end = std::min(first + at_once, files.size());
    std::vector<DeviceCode> codes;
    std::vector<std::size_t> ends;  // of each file's codes
    progress.begin(files[first]);
    for (std::size_t f = first; f < end; ++f) {
      for (DeviceCode& code : code_of((std::filesystem::path(folder) / files[f]).string()))
        codes.push_back(std::move(code));
      ends.push_back(codes.size());
    }
    const std::vector<std::map<std::string, Listing>> listings = listings_of(codes);
    for (std::size_t f = first; f < end; ++f) {
      const std::string& file = files[f];
      const std::vector<Claims>& expected = by_file.at(file);
      const std::size_t before = all.size();
      if (f > first) progress.begin(file);
      for (std::size_t c = f == first ? 0 : ends[f - first - 1]; c < ends[f - first]; ++c)
        judge_code(codes[c], listings[c], expected, all);
      progress.end();
      std::vector<std::string> there, named;
      for (std::size_t i = before; i < all.size(); ++i)
        if (all[i].claims) there.push_back(all[i].claims->symbol);
      for (const Claims& c : expected) named.push_back(c.symbol);
      std::sort(there.begin(), there.end()), std::sort(named.begin(), named.end());
      if (there != named || all.size() - before != expected.size())
        refuse(fmt::format("{}: {} kernels, {} of them are those of its {} entries", file, all.size() - before,
                           there.size(), expected.size()));
    }
  }
  if (all.empty()) refuse("no entry is looked at without --full");
  return all;
}

std::vector<Judged> judge_files(const std::vector<std::string>& paths, const std::vector<Claims>& claims) {
  std::vector<Judged> all;
  for (const std::string& file : code_files(paths))
    for (const DeviceCode& code : code_of(file)) judge_code(code, listings_of(code), claims, all);
  return all;
}

}  // namespace tilewave::tool
