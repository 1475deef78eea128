// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <memory>

#include "tilewave/arch/facts.hpp"
#include "tools/tilewave/campaign/git.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/columns.hpp"
#include "tools/tilewave/gpu/devices.hpp"
#include "tools/tilewave/tune/generate.hpp"
#include "tools/tilewave/tune/tune.hpp"

namespace tilewave::tool {

namespace {

struct Options {
  TuneRun run;
  std::string folder, shard = "1/1", csv, gpus = "none", retry = "10m", limit = "1h", timeout = "1h", out, selected, by,
                      metric = "us";
  TunedSource source;
  GenerateOptions generate;
  double gain = 0;
  std::vector<std::string> folders;
  bool partial = false, json = false;
};

std::vector<std::string> arch_names() {
  std::vector<std::string> names;
  for (const ArchId arch : all_archs) names.emplace_back(name_of(arch));
  return names;
}

/// Round after round around what was best so far; each is built and measured once, as the rows of the plan are.
int run_generated(const Options& o) {
  for (int round = 1; round <= o.generate.rounds; ++round) {
    TuneRun next = o.run;
    next.folder = generated_folder(o.run.folder, round);
    const std::filesystem::path header = next.folder / (o.generate.op + "_generated.hpp");
    std::string text;
    if (std::filesystem::exists(header)) {
      text = read_file(header.string());
    } else {
      const Csv tried = gather({o.folder}, false);
      const Generated made =
          generate(tried, judge_tuning(tried, nullptr, {}, o.metric), o.generate.op, o.generate.around);
      if (made.policies == 0) break;
      text = made.header;
    }
    next.benchmark = with_program(o.run.benchmark, o.generate.op, build_generated(next.folder, text, o.generate));
    const TuneProgress p = run_tune(next);
    fmt::print("round {} of generated candidates: {} of {} chunks measured\n", round, p.done, p.chunks);
    if (p.failed > 0) return static_cast<int>(Exit::failed);
  }
  return 0;
}

int run(Options& o) {
  std::tie(o.run.shard, o.run.shards) = parse_shard(o.shard);
  o.run.folder = o.folder, o.run.gpus = o.gpus != "none";
  o.run.retry_s = seconds_of(o.retry), o.run.limit_s = seconds_of(o.limit), o.run.timeout_s = seconds_of(o.timeout);
  if (o.generate.rounds > 0 && (o.run.shards > 1 || o.generate.op.empty() || o.generate.arch.empty()))
    refuse("--generate needs --op and --arch, and all chunks: no --shard");
  if (o.generate.rounds > 0) with_program(o.run.benchmark, o.generate.op, "refused before any work");
  if (o.gpus == "all") o.run.workers = static_cast<int>(ask_gpus().gpus.size());
  o.run.metric = o.metric;
  const TuneProgress p = run_tune(o.run);
  fmt::print("{} of {} chunks measured{}\n", p.done, p.chunks,
             p.left > 0 ? fmt::format(", {} rows left out: those before them were no faster", p.left) : "");
  if (p.failed > 0) return static_cast<int>(Exit::failed);
  return o.generate.rounds > 0 ? run_generated(o) : 0;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string csv_text(const Csv& csv) {
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    std::vector<std::string> cells;
    for (const std::string& cell : row) cells.push_back(csv_cell(cell));
    out += join(cells, ",") + "\n";
  };
  add(csv.columns);
  for (const auto& row : csv.rows) add(row);
  return out;
}

int merge(const Options& o) {
  const Csv tried = gather(o.folders, o.partial);
  Csv selected;
  if (!o.selected.empty()) selected = read_csv(o.selected, o.metric);
  if (!o.out.empty()) write_atomically(o.out, csv_text(tried));
  const Tuned tuned = judge_tuning(tried, o.selected.empty() ? nullptr : &selected,
                                   o.by.empty() ? std::vector<std::string>{} : split(o.by, ','), o.metric);
  if (o.json) {
    Json configs = Json::array(), classes = Json::array();
    for (const TunedConfig& c : tuned.configs) {
      const Tried& best = c.tried.front();
      configs.push_back(
          {{"config", c.config},
           {"class", c.group},
           {"tried", c.tried.size()},
           {"best", best.right ? Json{{"policy", best.policy}, {"entry", best.entry}, {"us", best.us}} : Json()},
           {"ranked_by", c.by_cycles ? "model_clk" : o.metric},
           {"selected_us", c.selected_us ? Json(*c.selected_us) : Json()}});
    }
    for (const TunedClass& c : tuned.classes) {
      classes.push_back({{"class", c.name},
                         {"configs", c.configs},
                         {"tried", c.tried},
                         {"wrong", c.wrong},
                         {"policy", c.policy},
                         {"loss", c.loss},
                         {"selected_loss", c.selected_loss ? Json(*c.selected_loss) : Json()}});
    }
    fmt::print("{}", dump({{"schema", "tilewave.tune/1"}, {"classes", classes}, {"configs", configs}}));
    return 0;
  }
  std::vector<std::vector<std::string>> table{{"class", "configs", "tried", "wrong", "over each config's best",
                                               "library's choice", "best policy for all of it"}};
  for (const TunedClass& c : tuned.classes) {
    table.push_back({c.name, std::to_string(c.configs), std::to_string(c.tried), std::to_string(c.wrong),
                     c.policy.empty() ? "-" : fmt::format("{:+.2f} %", (c.loss - 1) * 100),
                     c.selected_loss ? fmt::format("{:+.2f} %", (*c.selected_loss - 1) * 100) : "-",
                     c.policy.empty() ? "none serves all" : c.policy});
  }
  fmt::print("{}{}", text_table(table), tuned.by_cycles() ? std::string(ranked_by_cycles) + "\n" : "");
  return 0;
}

int write(Options& o) {
  const Csv tried = gather(o.folders, o.partial);
  Csv selected;
  if (!o.selected.empty()) selected = read_csv(o.selected, o.metric);
  const Tuned tuned = judge_tuning(tried, o.selected.empty() ? nullptr : &selected, {}, o.metric);
  if (o.out.empty()) o.out = fmt::format("include/tilewave/ops/{}/tuned/{}.hpp", o.source.op, o.source.arch);
  const std::filesystem::path header = o.out;
  if (header.extension() != ".hpp") refuse("--out is no .hpp");
  if (o.csv.empty()) o.csv = fmt::format("docs/notebook/tuned/{}_{}.csv", o.source.op, o.source.arch);
  const std::filesystem::path all = o.csv;
  o.source.csv = o.csv, o.source.least_gain = o.gain / 100;
  if (o.source.commit.empty()) o.source.commit = Git::head_of(".");
  const std::string text = tuned_header(tried, tuned, o.source);
  for (const std::filesystem::path& file : {header, all})
    if (!file.parent_path().empty()) std::filesystem::create_directories(file.parent_path());
  write_atomically(all, csv_text(tried));
  write_atomically(header, text);
  if (tuned.by_cycles()) fmt::print("{}\n", ranked_by_cycles);
  fmt::print("{}\n{}\n", header.string(), all.string());
  const std::filesystem::path tables = header.parent_path() / "tables.hpp";
  if (std::filesystem::exists(tables)) {  // the library's own folder of tables
    std::vector<std::string> archs;
    for (const std::string& arch : arch_names())
      if (std::filesystem::exists(header.parent_path() / fmt::format("{}.hpp", arch))) archs.push_back(arch);
    write_atomically(tables, tuned_tables(o.source.op, archs));
    fmt::print("{}\n", tables.string());
  }
  return 0;
}

}  // namespace

void add_tune(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command tune =
      tilewave.add("tune", "measure every legal candidate, over GPUs and hosts, and say which is best for which class");
  tune.needs_subcommand();
  tune.example(
      "  tilewave tune run DIR --benchmark 'bench_norm --policies=all' && tilewave tune merge DIR --out tried.csv");
  Command sub = tune.add("run", "measure what is not measured yet; exit status 1 if chunks failed");
  sub.option("FOLDER", o->folder, "for the plan and the chunks").required();
  sub.option("--benchmark", o->run.benchmark, "shell command, with --policies=all and what else it needs").required();
  sub.option("--chunk", o->run.chunk_rows, "rows of one process (default: 16)").range(1, 10000);
  sub.option(
         "--patience", o->run.patience,
         "a config ends after so many candidates in a row that are slower than its best by more than noise; candidates "
         "come in the order of the cost model (default: 0, all are measured)")
      .range(0, 10000);
  sub.option("--shard", o->shard, "i/n: every n-th chunk from the i-th on, for n jobs of any scheduler (default: 1/1)");
  sub.option("--workers", o->run.workers, "processes at a time (default: 1)").range(1, 1024);
  sub.option("--use-gpu", o->gpus, "none (default); one: an idle GPU for each worker; all: a worker for each GPU")
      .one_of({"none", "one", "all"});
  sub.option("--gpu-retry", o->retry, "default: 10m");
  sub.option("--gpu-limit", o->limit, "default: 1h");
  sub.option("--timeout", o->timeout, "of one chunk (default: 1h)");
  sub.option("--generate", o->generate.rounds,
             "then rounds of candidates that the library does not have, a step from the best so far, built here")
      .range(0, 20);
  sub.option("--op", o->generate.op, "with --generate: gemm or paged_attention").one_of({"gemm", "paged_attention"});
  sub.option("--arch", o->generate.arch, "with --generate: gfx942, gfx950 or sm90").one_of(arch_names());
  sub.option("--around", o->generate.around, "with --generate: of each config so many of the best (default: 2)")
      .range(1, 100);
  sub.option("--preset", o->generate.preset, "with --generate: CMake preset to build with (default: host)");
  sub.option("--sources", o->generate.sources, "with --generate: the library's checkout (default: this folder)");
  sub.option("--jobs", o->generate.jobs, "with --generate: of the build (default: 2)").range(1, 1024);
  sub.option("--metric", o->metric,
             "with --patience or --generate: column of the time (default: us); model_us: modelled, model_clk: its clk");
  sub.example(
      "  tilewave tune run DIR --benchmark 'bench_pa --policies=all --sweep=decode' --use-gpu all --shard $SLURM_ARRAY_TASK_ID/8");
  sub.run([o] { return run(*o); });
  Command put = tune.add("merge", "all chunks as one CSV, and the best policy by class");
  put.option("FOLDER", o->folders, "of run, one or more with the same plan").required();
  put.option("--out", o->out, "CSV of everything tried");
  put.option("--selected", o->selected,
             "CSV of the same configs with --policies=selected: what the library's choice loses");
  put.option("--by", o->by, "columns that make a class");
  put.option("--metric", o->metric,
             "column of the time (default: us); model_us: the clock of the simulator, model_clk: its clk");
  put.flag("--partial", o->partial, "although chunks are missing");
  put.flag("--json", o->json, "the report as JSON");
  put.example("  tilewave tune merge host1/DIR host2/DIR --out tried.csv --selected selected.csv");
  put.run([o] { return merge(*o); });
  Command table =
      tune.add("write", "a table that overrides the cost model: include/tilewave/ops/OP/tuned/ARCH.hpp and its CSV");
  table.option("FOLDER", o->folders, "of run, one or more with the same plan").required();
  table.option("--op", o->source.op, "gemm or paged_attention").required().one_of({"gemm", "paged_attention"});
  table.option("--arch", o->source.arch, "gfx942, gfx950 or sm90").required().one_of(arch_names());
  table.option("--device", o->source.device, "what it was measured on, in words").required();
  table.option("--benchmark", o->source.benchmark, "how, for the header").required();
  table.option("--commit", o->source.commit, "of the kernels (default: git's HEAD here)");
  table.option("--out", o->out, "the header (default: include/tilewave/ops/OP/tuned/ARCH.hpp)");
  table.option("--csv", o->csv, "everything tried (default: docs/notebook/tuned/OP_ARCH.csv)");
  table.option("--selected", o->selected,
               "CSV with --policies=selected: only what beats the library's choice is written");
  table.option("--gain", o->gain, "with --selected: by this many percent at least (default: 0)").range(0, 1000);
  table.option("--metric", o->metric, "column of the time (default: us)");
  table.flag("--partial", o->partial, "although chunks are missing");
  table.example(
      "  tilewave tune write DIR --op gemm --arch sm90 --device 'H200 SXM' --benchmark 'bench_gemm --sweep=decode'");
  table.run([o] { return write(*o); });
}

}  // namespace tilewave::tool
