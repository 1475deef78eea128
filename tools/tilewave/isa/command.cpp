// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/isa/gate_command.hpp"
#include "tools/tilewave/isa/report.hpp"

namespace tilewave::tool {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> paths;
  std::string a, b, kernel_a, kernel_b, build, object;
  InspectOptions inspect;
  bool json = false, loop = false, side = false;
  int width = 70;
};

void declare(Command& sub, Options& o) {
  sub.option("--kernel", o.inspect.kernels, "regular expression: kernels whose symbol, spec or policy has it");
  sub.option("--entries", o.inspect.entries, "entries.json of a build, for names (default: the one beside the files)");
  sub.option("--extra-lds", o.inspect.extra_lds, "bytes of LDS that the launch adds").range(0, 1 << 20);
  sub.flag("--resources", o.inspect.resources, "no instructions: needs no disassembler");
  sub.flag("--json", o.json, "the report as JSON");
}

/// Kernels of a commit: built in a worktree of its own, which goes again.
std::vector<Compiled> at_commit(const std::string& revision, const Options& o, const InspectOptions& inspect_options) {
  std::string folder = (fs::temp_directory_path() / "tilewave_isa_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw Error(Exit::failed, "cannot create " + folder);
  const std::string tree = folder + "/tree";
  const auto git = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "git");
    const ProcessResult done = run_process(words, {.errors_too = true});
    if (done.status != 0) throw Error(Exit::failed, "git " + words[1] + " " + words[2] + ": " + done.out);
  };
  const std::shared_ptr<void> removed(nullptr, [&](void*) {
    run_process({"git", "worktree", "remove", "--force", tree}, {.errors_too = true});
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  });
  git({"worktree", "add", "--detach", "--quiet", tree, revision});
  if (const ProcessResult done =
          run_shell(o.build, {.folder = tree, .out_path = folder + "/build.log", .errors_too = true});
      done.status != 0)
    throw Error(Exit::failed, fmt::format("--build ends with {} at {}", done.status, revision));
  return inspect({(fs::path(tree) / o.object).string()}, inspect_options);
}

}  // namespace

void add_isa(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command isa = tilewave.add(
      "isa", "Compiled kernels: what they reserve, what limits their waves, their steady loops, the gate of a build");
  isa.needs_subcommand();
  isa.example("  tilewave isa show build/host/code_objects --kernel 'decode.*h128' --loop");
  Command show = isa.add("show", "Resources, limits and the steady loop of every kernel of files and folders");
  show.option("files", o->paths, "code objects, cubins, offload bundles, programs, or folders of them").required();
  declare(show, *o);
  show.flag("--loop", o->loop, "print the steady path");
  show.example(
      "  tilewave isa show build/host/code_objects --kernel 'decode.*h128'\n"
      "  tilewave isa show kernel.cubin --extra-lds 65536 --json");
  show.run([o] {
    const auto kernels = inspect(o->paths, o->inspect);
    fmt::print("{}", o->json ? dump(isa_json(kernels)) : isa_text(kernels, o->loop));
    return 0;
  });

  Command diff = isa.add("diff", "What differs between two files, two kernels (policies), or two commits");
  diff.option("A", o->a, "file or folder; with --build a commit").required();
  diff.option("B", o->b, "file or folder; with --build a commit").required();
  diff.option("--kernel-a", o->kernel_a, "regular expression: the kernels of A");
  diff.option("--kernel-b", o->kernel_b, "regular expression: the kernels of B");
  diff.option("--build", o->build, "command that makes --object in a worktree of a commit");
  diff.option("--object", o->object, "with --build: the file or folder to read there");
  diff.flag("--side-by-side", o->side, "print both steady paths, instruction by instruction");
  diff.option("--width", o->width, "columns of each side (default: 70)").range(20, 400);
  declare(diff, *o);
  diff.example(
      "  tilewave isa diff old.co new.co --kernel 'h128 t128.r1' --side-by-side\n"
      "  tilewave isa diff pa.co pa.co --kernel-a 't128.r1.w1x4.p1x2$' --kernel-b 't256.r1.w1x4.p1x4$'\n"
      "  tilewave isa diff main~1 main --object build/host/code_objects \\\n"
      "    --build 'cmake --preset host && cmake --build build/host --target tilewave_code_objects'");
  diff.run([o] {
    if (o->build.empty() != o->object.empty()) throw Error(Exit::usage, "--build and --object go together");
    const auto side = [&](const std::string& what, const std::string& kernels) {
      InspectOptions options = o->inspect;
      if (!kernels.empty()) options.kernels = kernels;
      return o->build.empty() ? inspect({what}, options) : at_commit(what, *o, options);
    };
    const auto a = side(o->a, o->kernel_a), b = side(o->b, o->kernel_b);
    const auto pairs = pairs_of(a, b);
    fmt::print("{}", o->json ? dump(diff_json(pairs)) : diff_text(pairs, o->side ? o->width : 0));
    return 0;
  });

  add_isa_gate(isa);
}

}  // namespace tilewave::tool
