#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""With each rule of tools/check_tree broken in turn, it names that rule and the place; what only looks so passes."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
TOP = "// SPDX-License-Identifier: MIT\n#pragma once\n"
OP = "include/tilewave/ops/paged_attention/"
# What can break any file breaks one each: those of different files share a round.
FILES = [*(name + ".hpp" for name in ("args", "check", "kernel", "policy", "problem", "work_item", "work_queue")),
         *(f"{folder}/{name}.hpp" for folder in ("bulk", "registers") for name in ("decode", "epilogue", "layout", "online_softmax"))]


def write(path, text):
    def change(root):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return change


def append(path, text):
    return lambda root: (root / path).write_text((root / path).read_text() + text)


def replace(path, old, new):
    def change(root):
        text = (root / path).read_text()
        assert old in text, f"{path} no longer holds '{old}': mend this test"
        (root / path).write_text(text.replace(old, new, 1))
    return change


def remove(pattern):
    def change(root):
        found = list(root.glob(pattern))
        assert found, f"nothing matches {pattern}: mend this test"
        for path in found:
            path.unlink()
    return change


def lines(count):
    return "".join(f"inline constexpr int number_{i} = {i};\n" for i in range(count))


BREAKS = [  # (rule, path that must be named, how to break it)
    ("root", "src/x.txt", write("src/x.txt", "")),
    ("root", "notes.txt", write("notes.txt", "")),
    ("leftover", "bench/pa_old.cpp", write("bench/pa_old.cpp", TOP)),
    ("leftover", "include/tilewave/core/math_v2.hpp", write("include/tilewave/core/math_v2.hpp", TOP)),
    ("leftover", "docs/archive/x.md", write("docs/archive/x.md", "")),
    ("output", "bench/run.csv", write("bench/run.csv", "us\n")),
    ("output", "tools/x.o", write("tools/x.o", "")),
    ("length", "include/tilewave/core/long.hpp", write("include/tilewave/core/long.hpp", TOP + lines(398))),
    ("readme", "README.md", write("README.md", "x\n" * 121)),
    ("spdx", "include/tilewave/core/bare.hpp", write("include/tilewave/core/bare.hpp", "#pragma once\n")),
    ("spdx", "tools/bare", write("tools/bare", "#!/bin/sh\ntrue\n")),
    ("path", "docs/x.md", write("docs/x.md", "see /" + "work/x\n")),
    ("path", "tools/gpu_check", append("tools/gpu_check", "# /" + "tmp/x\n")),
    ("if-0", "include/tilewave/core/math.hpp", append("include/tilewave/core/math.hpp", "#if 0\n#endif\n")),
    ("commented-out", "include/tilewave/core/philox.hpp",
     append("include/tilewave/core/philox.hpp", "// int x = 1;\n// int y = 2;\n")),
    ("test-name", "test/core/x_test.cpp",
     write("test/core/x_test.cpp", TOP + 'TEST_CASE("all of [0, n)") {}\n')),
    ("guard", "include/tilewave/core/bare.hpp",
     write("include/tilewave/core/bare.hpp", "// SPDX-License-Identifier: MIT\n")),
    ("hardware", OP + "spec.hpp", append(OP + "spec.hpp", "inline int lane() { return threadIdx.x; }\n")),
    ("hardware", OP + "spec.hpp", append(OP + "spec.hpp", "#if defined(__gfx950__)\n#endif\n")),
    ("hardware", "include/tilewave/core/region.hpp", append("include/tilewave/core/region.hpp", 'inline void f() { asm("");}\n')),
    *(("hardware", OP + file, append(OP + file, f"inline auto f(int x) {{ return {use}; }}\n"))
      for file, use in zip(FILES, ("__ballot(x)", "__any_sync(~0u, x)", "__ldg(&x)", "__shfl_xor(x, 1)", "__syncwarp()", "clock64()",
                  "__builtin_nvvm_read_ptx_sreg_tid_x()", "__builtin_nontemporal_load(&x)", "__builtin_amdgcn_s_barrier()",
                  "__builtin_ia32_pause()", "__float2int_rn(x)", "__activemask()", "atomicAdd(&x, 1)", "_mm_set1_ps(x)",
                  "__builtin_bit_cast_of(x)"), strict=True)),
    ("hardware", "bench/ops/norm/main.cpp", append("bench/ops/norm/main.cpp", "#ifdef __CUDA_ARCH__\n#endif\n")),
    ("width", "include/tilewave/core/scaling.hpp", append("include/tilewave/core/scaling.hpp", "// " + "x" * 118 + "\n")),
    ("width", "include/tilewave/core/static_for.hpp",
     append("include/tilewave/core/static_for.hpp", "inline int " + "x" * 106 + "(0);\n")),
    ("macro", "include/tilewave/core/status.hpp", append("include/tilewave/core/status.hpp", "#define DISPATCH(x) x\n")),
    *(("catch2", "test/ops/x_test.cpp", write("test/ops/x_test.cpp", "// SPDX-License-Identifier: MIT\n" + f"auto f() {{ {use}; }}\n"))
      for use in ('CHECK_THROWS_WITH(f(), "x")', 'Catch::Contains("x")')),
    ("macros", "include/tilewave/core/more.hpp",
     write("include/tilewave/core/more.hpp", TOP + "".join(f"#define TILEWAVE_X{i} {i}\n" for i in range(9)))),
    ("room", "include/tilewave/arch/gfx950/mma.hpp", remove("include/tilewave/arch/gfx950/mma.hpp")),
    ("room", "include/tilewave/arch/sm90/tma.hpp", write("include/tilewave/arch/sm90/tma.hpp", TOP)),
    ("room", "include/tilewave/arch/gfx942/mma.hpp",
     append("include/tilewave/arch/gfx942/mma.hpp", '#include "tilewave/arch/gfx950/mma.hpp"\n')),
    ("op-test", OP, remove("test/ops/paged_attention/*_test.cpp")),
    ("op-bench", OP, remove("bench/ops/paged_attention/main.cpp")),
    ("op-bench", "include/tilewave/ops/nothing/", write("include/tilewave/ops/nothing/spec.hpp", TOP)),
    ("op-files", OP + "launch.hpp", remove(OP + "launch.hpp")),
    ("umbrella", OP, replace("include/tilewave/tilewave.hpp", "ops/paged_attention/registry.hpp", "core/vec.hpp")),
    ("mirror", "test/nowhere/x_test.cpp", write("test/nowhere/x_test.cpp", TOP)),
    ("tuned", "include/tilewave/ops/paged_attention/tuned/sm90.hpp", write("include/tilewave/ops/paged_attention/tuned/sm90.hpp", TOP + "// source: a.csv\n")),
    ("word", "include/tilewave/core/value_list.hpp", append("include/tilewave/core/value_list.hpp", "inline void tell_all() {}\n")),
    ("comment", "include/tilewave/core/vec.hpp",
     append("include/tilewave/core/vec.hpp", "/// Whether it is so.\ninline bool is_so() { return true; }\n")),
    ("comment", "include/tilewave/core/launch_arguments.hpp",
     append("include/tilewave/core/launch_arguments.hpp", "  // Of a row: its\n  // columns.\ninline void of_row() {}\n")),
    ("notebook", "docs/notebook/2026-01-01-x.md", write("docs/notebook/2026-01-01-x.md", "# A page\n")),
    ("link", "docs/guide/x.md", write("docs/guide/x.md", "See [it](no_such.md).\n")),
    ("link", "docs/guide/x.md", write("docs/guide/x.md", "See [it](../../include/tilewave/version.hpp).\n")),
    ("link", "docs/guide/x.md", write("docs/guide/x.md", "See [it](start.md#no-such-heading).\n")),
    ("guide", "docs/guide/x.md", write("docs/guide/x.md", "Measured on 2026-11-27.\n")),
    ("guide", "docs/guide/x.md", write("docs/guide/x.md", "word " * 31 + "\n")),
    ("guide", "docs/guide/x.md", write("docs/guide/x.md", "Two words. " * 51 + "\n")),
    ("template", "include/tilewave/core/hip.hpp",
     append("include/tilewave/core/hip.hpp", "template <class A, class B, class C, class D, int E = 0>\nstruct F {};\n")),
    ("run", "include/tilewave/core/long.hpp",
     write("include/tilewave/core/long.hpp", TOP + "struct K {\nstatic void run(int a) {\n" + "a += 1;\n" * 118 + "}\n};\n")),
    ("clone", "include/tilewave/core/stand_in.hpp",
     lambda root: shutil.copy(root / "include/tilewave/core/dtype.hpp", root / "include/tilewave/core/stand_in.hpp")),
]

LEGAL = [  # looks like a violation and is none
    append("include/tilewave/core/math.hpp", "// turned and told in a comment\ninline void foretell() {}\n"),
    write("docs/guide/x.md", "Two words. " * 50 + "\n\n```\n" + "code " * 200 + "\n```\n\n- " + "word " * 30 + "\n"),
    append("include/tilewave/core/math.hpp", "// __shfl and threadIdx in a comment, #if 0 as well\n"),
    append("include/tilewave/core/math.hpp", "inline float f(int* __restrict x) { return __builtin_bit_cast(float, *x); }\n"),
    append("include/tilewave/core/math.hpp", "// " + "\u00e4" * 117 + "\n"),
    append("include/tilewave/arch/sm90/lanes.hpp", "inline int f(int x) { return __ballot_sync(~0u, x); }\n"),
    write("include/tilewave/core/edge.hpp", TOP + lines(397)),
    write("include/tilewave/ops/paged_attention/tuned/sm90.hpp", TOP + "// source: pa.csv\n// device: MI300X\n// commit: 0123abc\n"),
    write("include/tilewave/core/four.hpp",
          TOP + "template <class A, class B = std::pair<int, int>, int C = f(1, 2), int D = 0>\nstruct F {};\n"),
    append("include/tilewave/core/math.hpp", "/// Returns true.\n/// Of two, the first.\ninline void f_() {}\n"),
    write("build/host/x.o", ""),
    write("README.md", "x\n" * 120),
]


def check(root):
    return subprocess.run([sys.executable, str(SOURCE / "tools/check_tree"), str(root)], capture_output=True, text=True,
                          check=False)


def copy_tree(root):
    """A part of the tree that has what every rule is about: the whole would only take its time sixty times."""
    for name in ("include/tilewave/core", "include/tilewave/arch", OP, "test/ops/paged_attention"):
        shutil.copytree(SOURCE / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("include/tilewave/tilewave.hpp", "bench/ops/paged_attention/main.cpp", "bench/ops/norm/main.cpp", "tools/gpu_check"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / name, root / name)


def rounds():
    """The legal changes, then the breaks: one at each path a round, since a run of the checks takes longer than they do."""
    yield [("", "", legal) for legal in LEGAL]
    left = list(BREAKS)
    while left:
        paths = set()
        now = [b for b in left if not any(b[1].startswith(p) or p.startswith(b[1]) for p in paths) and not paths.add(b[1])]
        left = [b for b in left if b not in now]
        yield now


def main():
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        pristine = Path(scratch) / "pristine"
        copy_tree(pristine)
        before = set(check(pristine).stdout.splitlines())  # what ails the tree anyway is the other test's business
        for number, changes in enumerate(rounds()):
            root = Path(scratch) / str(number)
            shutil.copytree(pristine, root)
            for _, _, change in changes:
                change(root)
            result = check(root)
            new = [line for line in result.stdout.splitlines() if line not in before]
            for rule, path, _ in changes:
                if rule and not (result.returncode == 1 and any(l.startswith(path + ":") and f": {rule}: " in l for l in new)):
                    failures.append(f"broken rule '{rule}' at {path} was not reported, but: {new} {result.stderr}")
            if not changes[0][0] and new:
                failures.append(f"a legal change was refused: {new}")
            shutil.rmtree(root)
    print("\n".join(failures) or f"{len(BREAKS)} broken rules reported, {len(LEGAL)} legal changes accepted")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
