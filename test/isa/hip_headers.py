#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles code of the gfx rooms, kernels and hosts, against HIP headers of another version than this machine's: those that a
wheel of triton on PyPI carries. Usage: hip_headers.py ROOT GENERATED SCRATCH CLANG TRITON HIP [FLAG...]

TRITON is the version of the wheel, HIP that of its headers, FLAGs what they need. Prints `skipped: why` where the wheel cannot
be fetched."""
import subprocess
import sys
import zipfile
from pathlib import Path

HEADERS = "triton/backends/amd/include/"


def fetch(folder, version):
    """The wheel, which an earlier run may have left there; 160 to 250 MB."""
    found = list(folder.glob(f"triton-{version}-*.whl"))
    if not found:
        platforms = [f"--platform=manylinux_2_{glibc}_x86_64" for glibc in (27, 28)]
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                               "--python-version=3.11", *platforms, "--dest", str(folder), f"triton=={version}"],
                              capture_output=True, text=True, check=False)
        found = list(folder.glob(f"triton-{version}-*.whl"))
        if not found:
            said = done.stderr.strip().splitlines() or ["pip left no wheel"]
            print(f"skipped: triton {version} cannot be fetched: {said[-1]}")
            sys.exit(0)
    return found[0]


def main(root, generated, scratch, clang, triton, hip, *flags):
    root, folder = Path(root), Path(scratch) / f"hip_{hip}"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(fetch(folder, triton)) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(HEADERS)])
    major, minor = hip.split(".")
    (folder / "version.hpp").write_text("#include <hip/hip_version.h>\n"
                                        f"static_assert(HIP_VERSION_MAJOR == {major} && HIP_VERSION_MINOR == {minor});\n")
    plain = [clang, "-x", "hip", "-nogpulib", "-std=c++20", "-D__HIP_PLATFORM_AMD__=1", *flags, "-Wall", "-Wextra", "-isystem",
             str(folder / HEADERS), "-include", str(folder / "version.hpp"), f"-I{root}", f"-I{root}/include", f"-I{generated}"]
    failures = 0
    for arch in ("gfx942", "gfx950"):
        backend = f'-DROOM_HEADER="tilewave/arch/{arch}/backend.hpp"'
        kernel = ["--cuda-device-only", "-O3", "-c", "-o", str(folder / "kernel.o")]
        for what in (
                [*kernel, "-DENTRY=0", str(root / "test/isa/paged_attention_entry.hip")],
                [*kernel, "-DLIST=softmax", "-DOP=softmax", "-DNAME=Softmax", "-DHEADER=registry", "-DFIRST=0", "-DSTEP=1",
                 str(root / "test/isa/row_entries.hip")],
                ["-O3", backend, "-c", "-o", str(folder / "both.o"), str(root / "test/tools/room_consumer/main.cpp")],
                ["--cuda-host-only", "-fsyntax-only", backend, str(root / "bench/ops/paged_attention/main.cpp")]):
            command = [*plain, f"--offload-arch={arch}", f"-DROOM={arch}", *what]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            print("right" if done.returncode == 0 else "WRONG", arch, what[-1])
            if done.returncode != 0:
                print(" ".join(command), done.stderr[:4000], sep="\n")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
