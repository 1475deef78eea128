// SPDX-License-Identifier: MIT
// The changes between two captures.
#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/trace/diff.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::status_of;

Instruction line(const std::string& text, std::uint64_t address, std::int64_t hits, std::int64_t stall,
                 const std::string& source = "") {
  Instruction i;
  i.text = text, i.address = address, i.hits = hits, i.stall = stall, i.latency = stall + hits, i.source = source;
  return i;
}
ThreadTrace trace_of(const std::string& kernel, std::vector<Instruction> code) {
  ThreadTrace t;
  t.kernel = kernel, t.code = std::move(code);
  for (const Instruction& i : t.code) t.latency += i.latency, t.stall += i.stall;
  return t;
}
std::vector<Instruction> code_of(const std::vector<std::string>& texts) {
  std::vector<Instruction> code;
  for (const std::string& text : texts) code.push_back(line(text, 4 * code.size(), 1, 0));
  return code;
}
KernelTime time_of(const std::string& name, double us, std::int64_t calls, double registers) {
  KernelTime k;
  k.name = name, k.calls = calls, k.total_us = us * static_cast<double>(calls), k.min_us = k.max_us = us;
  k.launch = {{"vgpr", registers}, {"accum_vgpr", 4}, {"lds_bytes", 1024}, {"workgroup", 256}};
  return k;
}
Profile profile_of(std::vector<KernelTime> kernels) {
  Profile p;
  p.times = KernelTimes{"rocprofv3 kernel trace", std::move(kernels)};
  return p;
}
std::optional<Change> of(const std::vector<Change>& list, const std::string& what) {
  for (const Change& c : list)
    if (c.what == what) return c;
  return std::nullopt;
}
}  // namespace

TEST_CASE("instructions are paired in order, by text before mnemonic") {
  using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;
  const auto base = code_of({"a 1", "b 1", "s_waitcnt vmcnt(0)", "c 1", "d 1"});
  CHECK(aligned(base, base) == Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}});
  // One came before, one is gone, one has other registers.
  CHECK(aligned(base, code_of({"x 1", "a 1", "s_waitcnt vmcnt(0)", "c 9", "d 1"})) ==
        Pairs{{0, 1}, {2, 2}, {3, 3}, {4, 4}});
  // Of two candidates it is the one with the same text.
  CHECK(aligned(code_of({"m 1", "v 7", "e 1"}), code_of({"n 1", "v 1", "v 7", "v 2", "e 2"})) == Pairs{{1, 2}, {2, 4}});
  // Waits for other counts are other instructions.
  CHECK(aligned(code_of({"s_waitcnt vmcnt(0)"}), code_of({"s_waitcnt vmcnt(4)"})).empty());
  CHECK(aligned({}, base).empty());
  CHECK(aligned(code_of({"a 1", "a 1"}), code_of({"a 1"})) == Pairs{{0, 0}});
}

TEST_CASE("a diff tells times, registers and occupancy by kernel, what is in one only, and refuses strangers") {
  const auto chips = all_chips();
  const Chip& chip = chip_of(chips, "gfx950");
  const Profile base = profile_of({time_of("void decode<1>(Args)", 10, 4, 124), time_of("old()", 1, 1, 28),
                                   time_of("old2()", 1, 1, 28)}),
                next = profile_of({time_of("decode<1>", 8, 5, 164), time_of("fresh()", 90, 1, 28)});
  const ProfileDiff diff = diff_of(base, next, &chip);
  REQUIRE(diff.kernels.size() == 4);
  CHECK(diff.kernels[0].name == "fresh() (only in the new one)");
  CHECK_FALSE(of(diff.kernels[0].of_launch, "mean us")->base.has_value());
  const auto decode =
      std::find_if(diff.kernels.begin(), diff.kernels.end(), [](const auto& k) { return k.name == "decode<1>"; });
  REQUIRE(decode != diff.kernels.end());
  CHECK(*of(decode->of_launch, "mean us")->next == Approx(8));
  CHECK(*of(decode->of_launch, "waves per SIMD")->base == 4);
  CHECK(*of(decode->of_launch, "waves per SIMD")->next == 3);
  CHECK(*of(decode->of_launch, "registers")->next == 168);
  const std::string md = diff_md(diff, "a", "b", 10);
  CHECK(md.find("| mean us | 10 | 8 | -20.0 % |") != md.npos);
  CHECK(md.find("### old() (only in the base)") != md.npos);
  CHECK(parse_json(diff_json(diff, 10), "d").at("schema") == "tilewave.trace_diff/1");
  // One is left over on each side: the same kernel by another policy.
  const ProfileDiff renamed =
      diff_of(profile_of({time_of("k<1>()", 10, 1, 28)}), profile_of({time_of("k<2>()", 5, 1, 28)}), nullptr);
  REQUIRE(renamed.kernels.size() == 1);
  CHECK(renamed.kernels[0].name == "k<1>(), now k<2>()");
  CHECK(status_of([&] {
          diff_of(profile_of({time_of("a()", 1, 1, 8), time_of("b()", 1, 1, 8)}), profile_of({time_of("c()", 1, 1, 8)}),
                  nullptr);
        }) == Exit::usage);
}

TEST_CASE("a diff tells counters, or the metrics of ncu, of the same kernel") {
  Profile base, next;
  base.counters = Counters{{{"k()", {{"SQ_WAVES", 64}, {"SQ_INSTS_VALU", 1000}}}}, {{"k()", 1}}};
  next.counters = Counters{{{"k()", {{"SQ_WAVES", 64}, {"SQ_INSTS_MFMA", 10}}}}, {{"k()", 3}}};
  const ProfileDiff diff = diff_of(base, next, nullptr);
  REQUIRE(diff.kernels.size() == 1);
  CHECK(*of(diff.kernels[0].of_counter, "SQ_WAVES")->next == 64);
  CHECK_FALSE(of(diff.kernels[0].of_counter, "SQ_INSTS_VALU")->next.has_value());
  NcuKernel was, is;
  was.kernel = is.kernel = "sort(Args)";
  was.metrics = {{"Duration", "us", 10}}, is.metrics = {{"Duration", "us", 5}};
  Profile a, b;
  a.ncu = {was}, b.ncu = {is};
  CHECK(diff_md(diff_of(a, b, nullptr), "a", "b", 5).find("| Duration, us | 10 | 5 | -50.0 % |") != std::string::npos);
}

TEST_CASE("a diff tells which instructions stall more or less, of one wave, with what is gone and what came") {
  Profile base, next;
  base.traces = {
      trace_of("k()", {line("s_load_dword s0", 0, 4, 0), line("global_load_dword v0", 8, 4, 40),
                       line("s_waitcnt vmcnt(0)", 16, 4, 4000, "k.hpp:3"), line("v_add_u32 v1, v0, v0", 20, 4, 0)})};
  // Twice as many waves were traced.
  next.traces = {trace_of("k()", {line("s_load_dword s0", 0, 8, 0), line("s_nop 0", 4, 8, 80),
                                  line("global_load_dword v5", 8, 8, 80), line("v_add_u32 v1, v5, v5", 20, 8, 800)})};
  const ProfileDiff diff = diff_of(base, next, nullptr);
  REQUIRE(diff.traces.size() == 1);
  const TraceChange& t = diff.traces[0];
  CHECK((t.kept == 3 && t.gone == 1 && t.added == 1));
  CHECK(t.base_latency == Approx(1014));
  CHECK(t.next_latency == Approx(124));
  CHECK(*of(t.kinds, "VMEM-wait")->base == Approx(1000));
  CHECK_FALSE(of(t.kinds, "VMEM-wait")->next.has_value());
  CHECK(*of(t.kinds, "VMEM-load")->next == *of(t.kinds, "VMEM-load")->base);
  const std::string md = diff_md(diff, "a", "b", 10);
  CHECK(md.find("| 1 | -1000 | 1000 | 0 | 1 | 0 | VMEM-wait | s_waitcnt vmcnt(0) | 0x10 | gone | k.hpp:3 |") !=
        md.npos);
  CHECK(md.find("| 2 | +100 | 0 | 100 | 1 | 1 | other | v_add_u32 v1, v5, v5 | 0x14 | 0x14 | - |") != md.npos);
  CHECK(md.find("| 3 | +10 | 0 | 10 | 0 | 1 | other | s_nop 0 | came | 0x4 | - |") != md.npos);
  const Json json = parse_json(diff_json(diff, 1), "d");
  CHECK(json.at("thread_traces")[0].at("instructions").size() == 1);
  CHECK(json.at("thread_traces")[0].at("instructions")[0].at("new_address") == "");
}
