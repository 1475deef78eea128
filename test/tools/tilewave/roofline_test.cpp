// SPDX-License-Identifier: MIT
#include "tools/tilewave/roofline/roofline.hpp"

#include <fmt/format.h>

#include <cmath>

#include "bench/harness/device_sheet.hpp"
#include "test/catch_compat.hpp"
#include "test/tools/tilewave/grammar.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tilewave/arch/facts.hpp"
#include "tools/tilewave/report/page.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::fuzz_table;
using tilewave::test::fuzz_texts;
using tilewave::test::Random;
using tilewave::test::status_of;
using tilewave::test::strange_fields;

const std::string sample =
    "# X1\n\nArchitecture: gfx950\n\n| key | value | unit | source |\n|---|---|---|---|\n"
    "| hbm_bandwidth | 8 | TB/s | sheet |\n| bf16_flops | 2000 | TFLOP/s | sheet |\n"
    "| fp8_flops | UNKNOWN | TFLOP/s | none |\n| read_ceiling | UNKNOWN | TB/s | none |\n\n"
    "## Sources\n- sheet: data sheet, page 1\n- none: not found\n";
}  // namespace

TEST_CASE("ArchFacts are the numbers of docs/reference/hardware") {
  const auto chips = all_chips();
  REQUIRE(chips.size() == 9);
  for (const tilewave::ArchId id : tilewave::all_archs) {
    const tilewave::ArchFacts& f = tilewave::facts_of(id);
    const Chip& chip = chip_of(chips, tilewave::name_of(id));
    CAPTURE(chip.name);
    CHECK(chip.arch == tilewave::name_of(id));
    CHECK(f.wave_lanes == chip.need("wave_lanes", "lanes"));
    CHECK(f.lds_bytes == chip.need("lds", "KiB") * 1024);
    CHECK(f.compute_units == chip.need("compute_units", "count"));
    CHECK(f.simds_per_cu == chip.need("simds_per_cu", "count"));
    CHECK(f.max_waves_per_simd == chip.need("max_waves_per_simd", "waves"));
    CHECK(f.registers_per_lane == chip.need("registers_per_lane", "registers"));
    CHECK(f.register_file_lanes == chip.need("register_file_lanes", "registers"));
    CHECK(f.register_granule == chip.need("register_granule", "registers"));
    CHECK(f.max_load_bytes == chip.need("max_load", "B"));
    CHECK(f.lds_banks == chip.need("lds_banks", "count"));
    CHECK(f.max_cluster_blocks == chip.need("max_cluster_blocks", "blocks"));
    CHECK(static_cast<double>(f.last_level_cache_bytes) == chip.need("last_level_cache", "MiB") * (1 << 20));
    CHECK(f.hbm_bytes_per_second == Approx(chip.need("hbm_bandwidth", "TB/s") * 1e12).epsilon(1e-12));
    CHECK(f.bf16_flops == Approx(chip.need("bf16_flops", "TFLOP/s") * 1e12).epsilon(1e-12));
    CHECK(f.fp8_flops == Approx(chip.need("fp8_flops", "TFLOP/s") * 1e12).epsilon(1e-12));
  }
}

TEST_CASE("a roof is that of the rows' own chip, and no other's") {
  const auto chips = all_chips();
  const auto name = [&](const std::string& named, const std::string& device, const std::string& metric = "us") {
    const Csv rows = parse_csv("device,model_chip,us\n" + device + "\n", "x");
    return chip_of_rows(chips, named, rows, metric).name;
  };
  CHECK(name("gfx950", "gfx950,MI355X,1", "model_us") == "MI355X");
  CHECK(name("gfx950", "gfx950,MI350X,1", "model_us") == "MI350X");
  CHECK(name("sm90", "NVIDIA H100 80GB HBM3,none,1") == "H100");
  CHECK(name("sm90", "NVIDIA H200,none,1") == "H200");  // not an H20
  CHECK(name("sm90", "NVIDIA H20,none,1") == "H20");
  CHECK(name("sm90", "unknown,none,1") == "H200");
  CHECK(name("H20", "NVIDIA H20,none,1") == "H20");
  CHECK(status_of([&] { name("MI350X", "gfx950,MI355X,1", "model_us"); }) == Exit::refused);
  CHECK(status_of([&] { name("gfx942", "gfx950,MI355X,1", "model_us"); }) == Exit::refused);
  CHECK(status_of([&] { name("sm90", "NVIDIA H100,none,1\nNVIDIA H200,none,1"); }) == Exit::refused);
  for (const char* chip : {"H20", "MI308X"}) {
    CHECK(chip_of(chips, chip).need("compute_units", "count") > 0);
    CHECK(chip_of(chips, chip).need("hbm_bandwidth", "TB/s") > 0);
  }
}

TEST_CASE("sheets of devices are the numbers of docs/reference/hardware, found by what drivers call them") {
  using namespace tilewave::bench;
  const auto chips = all_chips();
  CHECK(device_sheets.size() == chips.size());
  for (const DeviceSheet& sheet : device_sheets) {
    const Chip& chip = chip_of(chips, sheet.name);
    CAPTURE(chip.name);
    CHECK(chip.arch == tilewave::name_of(sheet.arch));
    CHECK(sheet.hbm_bytes_per_second == Approx(chip.need("hbm_bandwidth", "TB/s") * 1e12).epsilon(1e-12));
    CHECK(sheet.bf16_flops == Approx(chip.need("bf16_flops", "TFLOP/s") * 1e12).epsilon(1e-12));
    CHECK(sheet.fp8_flops == Approx(chip.need("fp8_flops", "TFLOP/s") * 1e12).epsilon(1e-12));
    CHECK(sheet_named(sheet.name) == &sheet);
    const std::string driver = (sheet.arch == tilewave::ArchId::sm90 ? "NVIDIA " : "AMD Instinct ") + chip.name;
    CHECK(sheet_of(driver) == &sheet);
  }
  CHECK(sheet_of("NVIDIA H100 80GB HBM3") == sheet_named("H100"));
  CHECK(sheet_of("AMD Instinct MI300X VF") == sheet_named("MI300X"));
  for (const char* other :
       {"NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA H20-3e", "AMD Instinct MI3000X", "AMD Radeon PRO", ""})
    CHECK(sheet_of(other) == nullptr);
  CHECK(std::isnan(facts_with(tilewave::ArchId::sm90, nullptr).hbm_bytes_per_second));
  CHECK(facts_with(tilewave::ArchId::sm90, sheet_named("H100")).hbm_bytes_per_second == 3.35e12);
}

TEST_CASE("an MI355X never stands in for an MI350X") {
  const auto chips = all_chips();
  const Csv csv = parse_csv("name,us,model_us,model_chip,flops,bytes_ideal,err\na,nan,2,MI355X,1,1000,0\n", "m.csv");
  CHECK(chip_of_rows(chips, "MI355X", csv, "model_us").name == "MI355X");
  CHECK(chip_of_rows(chips, "gfx950", csv, "model_us").name == "MI355X");
  CHECK(chip_of_rows(chips, "MI350X", csv, "us").name == "MI350X");
  CHECK(status_of([&] { chip_of_rows(chips, "MI350X", csv, "model_us"); }) == Exit::refused);
}

TEST_CASE("a number without a source is UNKNOWN, and refuses to be used") {
  const Chip chip = parse_chip(sample, "X1.md");
  CHECK(chip.need("hbm_bandwidth", "TB/s") == 8);
  CHECK(status_of([&] { chip.need("fp8_flops", "TFLOP/s"); }) == Exit::unknown);
  CHECK(status_of([&] { roof_of(chip, "fp8"); }) == Exit::unknown);
  CHECK(status_of([&] { chip.need("hbm_bandwidth", "GB/s"); }) == Exit::usage);
  CHECK(status_of([&] { chip.need("speed", "GB/s"); }) == Exit::usage);
  CHECK_FALSE(roof_of(chip, "bf16").measured);
  std::string text = sample;
  text.replace(text.find("read_ceiling | UNKNOWN"), 22, "read_ceiling | 7");
  CHECK(roof_of(parse_chip(text, "X1.md"), "bf16").bytes_per_s == Approx(7e12));
}

TEST_CASE("files of numbers that break the rules are refused") {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = sample;
    text.replace(text.find(from), from.size(), to);
    return status_of([&] { parse_chip(text, "X1.md"); });
  };
  CHECK(with("| 8 |", "| about 8 |") == Exit::usage);
  CHECK(with("| 8 |", "| inf |") == Exit::usage);
  CHECK(with("TB/s | sheet", "TB/s | memory") == Exit::usage);
  CHECK(with("TB/s | sheet", " | sheet") == Exit::usage);
  CHECK(with("bf16_flops", "hbm_bandwidth") == Exit::usage);
  CHECK(with("Architecture", "Arch") == Exit::usage);
  CHECK(fuzz(sample, [](const std::string& text) {
          for (const Spec& spec : parse_chip(text, "x").specs) {
            if (spec.unit.empty() || spec.citation.empty()) throw std::logic_error("a number without a unit or source");
          }
        }) > 0);
}

TEST_CASE("work of an op by its definition") {
  // One sequence of 1000 tokens, 8 heads on 1, head_size 128: 4 * 128 * 8 * 1000 operations, 2 * 1000 * 128 * 2 bytes
  // of KV.
  const Work a = work_of("paged_attention", "batch=1,context=1000,q_heads=8,kv_heads=1,block_size=100");
  CHECK(a.flops == 4.0 * 128 * 8 * 1000);
  CHECK(a.bytes == 2.0 * 1000 * 128 * 2 + 2.0 * 8 * 128 * 2 + 8 * 4 + 10 * 4 + 4);
  const Work mtp = work_of("paged_attention",
                           "batch=1,context=1000,q_heads=8,kv_heads=1,mtp=2,kv=fp8,quant=per_token,block_size=100");
  CHECK(mtp.flops == 4.0 * 128 * 8 * (1000 + 999));
  CHECK(mtp.bytes == 2.0 * 1000 * 128 + 2.0 * 1000 * 4 + 2.0 * 2 * 8 * 128 * 2 + 2 * 8 * 4 + 10 * 4 + 4);
  const Work g = work_of("gemm", "m=16,n=1024,k=4096,a=fp8,b=fp8");
  CHECK(g.flops == 2.0 * 16 * 1024 * 4096);
  CHECK(g.bytes == 16.0 * 4096 + 1024.0 * 4096 + 2.0 * 16 * 1024);
  const Work i4 = work_of("gemm", "m=16,n=1024,k=4096,b=i4,group=128,gated=1");
  CHECK(i4.bytes == 16.0 * 4096 * 2 + 1024 * 4096 / 2. + 1024 * 32 * 2 + 16 * 512 * 2);
  CHECK(work_of("vec_add", "elements=1000").bytes == 12000);
  const auto is = [](const char* op, const char* shape, double flops, double bytes) {
    CAPTURE(op);
    const Work w = work_of(op, shape);
    CHECK(w.flops == flops);
    CHECK(w.bytes == bytes);
  };
  // The shapes are those of rows in the benchmarks' CSVs.
  is("activation", "rows=16,columns=14336", 2064384, 1376256);
  is("attention_combine", "rows=64,columns=64,partials=16", 131072, 274688);
  is("rope", "rows=16,q_heads=32,kv_heads=8,table=f32", 245760, 335936);
  is("topk_gating", "rows=1024,experts=128,topk=6", 131072, 335872);
  is("sampling", "rows=1,columns=32000,x=bf16", 128000, 64008);
  is("moe_reduce", "rows=1,columns=7168,topk=8", 114688, 129088);
  is("embedding", "rows=1,columns=4096", 0, 16392);
  is("moe_sort", "rows=4096,topk=8,experts=256", 65536, 725996);
  is("kv_cache_write", "rows=1,q_heads=32,kv_heads=8,table=f32", 15360, 25100);
  is("kv_cache_write", "rows=1,kv_heads=8,kv=fp8", 2048, 2048 * 3 + 8);
  is("gemm", "m=1,n=512,k=768,b=i4,group=128", 786432, 205312);
  is("mqa_logits", "batch=1,context=570", 9448320, 87824 - 4 * (1024 - 570));  // that has room for 1024 logits
  is("flash_attention", "batch=1,q_length=320,q_heads=2,kv_heads=2", 52592640, 655360);
  is("flash_attention", "batch=1,q_length=320,q_heads=2,kv_heads=2,causal=0,q=fp8", 104857600, 409612);
  is("mla_decode", "batch=1,context=160,q_heads=128", 44564480, 462864);
  is("mla_decode", "batch=1,context=160,q_heads=128,q=fp8", 44564480, 296984);
  is("latent_cache_write", "rows=1,q_heads=128", 24768, 35336);
  is("latent_cache_write", "rows=455,kv=fp8", 611520, 906360);
  is("moe", "rows=9,columns=256,intermediate=128,experts=8,topk=2,weights=fp8", 3538944, 795792);
  is("moe", "rows=9,columns=256,intermediate=128,experts=16,topk=4", 7077888, 3155232);
  CHECK(status_of([] { work_of("flash_attention", "batch=1,q_length=2,kv_length=1,q_heads=1,kv_heads=1"); }) ==
        Exit::usage);
  CHECK(status_of([] { work_of("moe", "rows=1,columns=8,intermediate=8,experts=2,topk=3"); }) == Exit::usage);
  CHECK(status_of([] { work_of("rope", "rows=1,q_heads=1,kv_heads=1,head_size=64,rotary=65"); }) == Exit::usage);
  CHECK(status_of([] { work_of("topk_gating", "rows=1,experts=8,topk=9"); }) == Exit::usage);
  CHECK(status_of([] { work_of("mqa_logits", "batch=1,context=2,mtp=3"); }) == Exit::usage);
  CHECK(status_of([] { work_of("paged_attention", "batch=1,context=9,q_heads=8,kv_heads=3"); }) == Exit::usage);
  CHECK(status_of([] { work_of("flash_attention", "batch=1,q_length=9,q_heads=8,kv_heads=3"); }) == Exit::usage);
  CHECK(status_of([] { work_of("activation", "rows=1,columns=8,gated=2"); }) == Exit::usage);
  for (const char* bad :
       {"", "m=16", "m=16,n=1,k=0", "m=16,n=1,k=1,q=1", "m=16,n=1,k=1,a=fp7", "m", "m=1,m=1,n=1,k=1", "m=-1,n=1,k=1"}) {
    CAPTURE(bad);
    CHECK(status_of([&] { work_of("gemm", bad); }) == Exit::usage);
  }
  CHECK(status_of([] { work_of("moe", "m=1"); }) == Exit::usage);
}

TEST_CASE("floor, ridge and bound follow from the roof") {
  const Roof roof = roof_of(parse_chip(sample, "X1.md"), "bf16");
  CHECK(roof.ridge() == Approx(250));
  CHECK(roof.memory_bound({1e6, 1e6, ""}));
  CHECK_FALSE(roof.memory_bound({1e9, 1e6, ""}));
  CHECK(roof.floor_us({1e6, 8e6, ""}) == Approx(1));
  CHECK(roof.floor_us({2e9, 8, ""}) == Approx(1));
}

TEST_CASE("rows of a CSV become points, and a picture that names them") {
  std::size_t untimed = 0;
  const Csv csv = parse_csv("name,us,flops,bytes_ideal,mtp\na<b,2,1e6,8e6,1\nc,nan,1e6,8e6,2\n", "x.csv");
  const auto points = points_of(csv, {}, untimed);
  REQUIRE(points.size() == 1);
  CHECK(untimed == 1);
  CHECK(points[0].group == "mtp=1");
  const std::string svg = roofline_svg(roof_of(parse_chip(sample, "X1.md"), "bf16"), points);
  CHECK(svg.find("a&lt;b: 2 us, 50.0 % of the roof") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  const Csv modelled = parse_csv("us,model_us,flops,bytes_ideal\nnan,4,0,8e6\n", "x.csv");
  CHECK(status_of([&] { points_of(modelled, {}, untimed); }) == Exit::usage);
  const auto copy =
      points_of(modelled, {}, untimed, "model_us");  // no operation: bytes alone, and no place in a picture
  CHECK(copy.front().us == 4);
  CHECK(roofline_svg(roof_of(parse_chip(sample, "X1.md"), "bf16"), copy).find("<circle") == std::string::npos);
  CHECK(status_of([&] { points_of(parse_csv("us,flops,bytes_ideal\n1,5,0\n", "x.csv"), {}, untimed); }) == Exit::usage);
  CHECK(status_of([&] { points_of(parse_csv("us,flops,bytes_ideal\nnan,1,5\n", "x.csv"), {}, untimed); }) ==
        Exit::usage);
}

namespace {
/// A page of a chip as it may be written by hand, of other numbers, keys and sources.
std::string hardware_page(Random& random) {
  tilewave::test::Table table{{"key", "value", "unit", "source"},
                              {{"hbm_bandwidth", "8.0", "TB/s", "sheet"},
                               {"bf16_flops", "2517", "TFLOP/s", "sheet"},
                               {"read_ceiling", "UNKNOWN", "TB/s", "none"},
                               {"lds", "160", "KiB", "sheet"}}};
  if (!random.one_in(4)) {
    auto& row = table.rows[random.below(4)];
    row[random.one_in(2) ? 1 : random.below(4)] = random.of(strange_fields());
  }
  if (random.one_in(3)) table = tilewave::test::other_table(table, random);
  std::string out = "# MI355X\n\nArchitecture: gfx950\n\n";
  const auto line = [&](const std::vector<std::string>& cells) {
    const std::string space = random.one_in(2) ? " " : random.one_in(2) ? "" : "\t ";
    out += "|" + space + join(cells, space + "|" + space) + space + "|" + (random.one_in(4) ? "\r\n" : "\n");
  };
  line(table.columns);
  out += random.one_in(2) ? "|---|---|---|---|\n" : "|:--|--:|:-:|---|\n";
  for (const auto& row : table.rows) line(row);
  out += "\n## Sources\n- sheet: a data sheet\n- none: nobody says\n";
  if (random.one_in(8)) out += "- " + random.of(strange_fields()) + ": " + random.of(strange_fields()) + "\n";
  return out;
}

const tilewave::test::Table modelled_table{{"name", "m", "us", "err", "model_us", "model_clk", "model_mhz",
                                            "model_error_pct", "model_chip", "flops", "bytes_ideal"},
                                           {{"a", "1", "nan", "0", "22", "40000", "2000", "0", "MI355X", "1e9", "1e6"},
                                            {"b", "2", "nan", "0", "23", "31500", "1500", "1", "MI355X", "0", "1e6"}}};

std::string shape_words(Random& random) {
  static const std::vector<std::string> keys{
      "batch",  "context", "q_heads", "kv_heads", "head_size", "mtp",   "block_size", "kv",    "quant",    "m",
      "n",      "k",       "a",       "b",        "out",       "group", "gated",      "rows",  "columns",  "x",
      "rotary", "table",   "experts", "topk",     "unit",      "id",    "scaled",     "heads", "partials", "elements"};
  static const std::vector<std::string> values{"1",   "2",   "64",   "128", "1099511627776",
                                               "fp8", "fp4", "bf16", "i64", "per_token"};
  std::vector<std::string> words;
  for (const std::string& key : keys)
    if (random.one_in(4))
      words.push_back(key + "=" + (random.one_in(5) ? random.of(strange_fields()) : random.of(values)));
  if (random.one_in(8)) words.push_back(random.of(strange_fields()));
  return join(words, random.one_in(8) ? ",," : ",");
}
}  // namespace

TEST_CASE("hardware pages, shapes and rows by a grammar give a roof, a floor and a picture, or are refused") {
  const std::vector<Chip> chips = all_chips();
  const auto draws = [](const Roof& roof, const std::vector<Point>& points) {
    if (!std::isfinite(roof.ridge()) || !(roof.ridge() > 0)) throw std::logic_error("a ridge that is no number");
    for (const Point& p : points)
      if (p.work.flops != 0 &&
          !(std::isnormal(p.work.flops / p.work.bytes) && std::isnormal(p.work.flops / p.us * 1e-6)))
        throw std::logic_error("a point that no axis reaches");
    if (roofline_svg(roof, points).size() > std::size_t{1} << 20) throw std::logic_error("a picture without end");
  };
  CHECK(fuzz_texts(hardware_page, [&](const std::string& text) {
          const Roof roof = roof_of(parse_chip(text, "MI355X.md"), "bf16");
          draws(roof, {{.name = "a", .group = {}, .work = {.flops = 1e9, .bytes = 1e6, .how = {}}, .us = 10}});
        }) > 0);
  const Roof roof = roof_of(chip_of(chips, "MI355X"), "bf16");
  for (const std::string& op : split(known_ops(false), ',')) {
    CHECK(fuzz_texts(
              shape_words,
              [&](const std::string& text) {
                const Work work = work_of(trim(op), text);
                const double us = roof.floor_us(work);
                if (!std::isfinite(us) || !(us > 0)) throw std::logic_error("no floor: " + text);
                draws(roof, {{.name = "floor", .group = op, .work = work, .us = us}});
              },
              200) >= 0);
  }
  CHECK(fuzz_table(
            modelled_table,
            [&](const std::string& text) {
              const Csv csv = parse_csv(text, "t", "model_us");
              std::size_t untimed = 0;
              const auto points = points_of(csv, {"m"}, untimed, "model_us");
              draws(roof, points);
              summary_html(csv, {"m"}, &roof, "model_us");
              return fmt::format("{} {} {}", points.size(), untimed, points[0].us);
            },
            true, 1500) > 0);
}
