// SPDX-License-Identifier: MIT
// bench_step measures whole steps of a model on random weights, and their parts. See docs/reference/benchmarking-ops.md.
#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/model_time.hpp"
#include "bench/harness/tool.hpp"
#include "bench/step/runner.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::bench;

struct Options : ToolOptions {
  std::vector<std::string> models{"llama3-8b"}, phases{"decode"};
  std::vector<int> batch{1, 16, 64}, context{1024, 8192};
  std::string weights = "bf16", cache = "bf16";
  bool parts = true, apart = false;
  MeasureOptions measure;
};

void declare(CLI::App& app, Options& o) {
  std::vector<std::string> names;
  for (const Model& m : models) names.emplace_back(m.name);
  app.add_option("--model", o.models, "comma list of models (default: llama3-8b)")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--phase", o.phases, "decode, prefill or both (default: decode)")
      ->delimiter(',')
      ->check(CLI::IsMember({"decode", "prefill"}));
  app.add_option("--batch", o.batch, "sequences of a step (default: 1,16,64)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--context", o.context, "tokens of a sequence, the new ones included (default: 1024,8192)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--weights", o.weights, "of the layers: bf16, fp8 or int4 (default: bf16)")
      ->check(CLI::IsMember({"bf16", "fp8", "int4"}));
  app.add_option("--kv", o.cache, "of the cache: bf16 or fp8 (default: bf16)")->check(CLI::IsMember({"bf16", "fp8"}));
  app.add_flag("!--no-parts", o.parts, "rows of whole steps alone");
  app.add_flag("--apart", o.apart,
               "behind the rows of a step one whose kernels begin when the one before has ended (overlap 0), on sm90");
  declare(app, o, o.measure);
}

engine::WeightFormat weights_of(const std::string& name) {
  return name == "fp8"    ? engine::WeightFormat::fp8
         : name == "int4" ? engine::WeightFormat::int4
                          : engine::WeightFormat::bf16;
}

std::vector<StepRow> rows_of(ArchId arch, const Options& o) {
  std::vector<StepRow> rows;
  int config_id = 0;
  for (const std::string& model : o.models)
    for (const std::string& phase : o.phases)
      for (const int batch : o.batch)
        for (const int context : o.context)
          for (const bool overlap : {true, false}) {
            if (!overlap && !o.apart) continue;
            const StepCase c{.arch = arch,
                             .model = model,
                             .phase = phase == "decode" ? StepPhase::decode : StepPhase::prefill,
                             .batch = batch,
                             .context = context,
                             .weights = weights_of(o.weights),
                             .fp8_cache = o.cache == "fp8",
                             .overlap = overlap,
                             .seed = o.seed};
            static_cast<void>(layers_of(share_of(model, 1)));
            for (const StepPart part : all_step_parts)
              if (part == StepPart::step || o.parts)
                rows.push_back({c, part, config_id, c.name() + "/" + name_of(part)});
            ++config_id;
          }
  return rows;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Whole steps of a model on random weights, and their parts.", tool_name);
  declare(app, o);
  if (const std::optional<int> status = parse(app, argc, argv)) return *status;
  const GoogleOptions google = initialize_google(app.remaining());
  const ArchId arch = choose_arch(o.arch, emulated_device ? ArchId::gfx950 : step_kernels().begin()->first, google);
  std::vector<StepRow> rows = rows_of(arch, o);
  keep(rows, row_filter(google.filter), o.every);
  if (rows.empty()) return fail("--benchmark_filter=" + google.filter + ": matches no row");
  RowLog log;
  StepRunner runner(o.measure, std::ref(log));
  return run_rows(rows, arch, google, log, [&](const StepRow& row) { return runner.run(row); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool("bench_step", [&] { return run(argc, argv); });
}
