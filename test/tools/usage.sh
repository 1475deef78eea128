#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Bad usage of the scripts: one line on stderr, nothing on stdout, a non-zero exit, and nothing done before it.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
failures=0

# Stand-ins that only write down their arguments, so that nothing is installed or built whatever the scripts do: no AMD
# compiler is there, and cmake fails.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/bin" "$scratch/rocm/bin"
printf '#!/bin/sh\necho apt-get "$@" >>%s\n' "$scratch/log" >"$scratch/bin/apt-get"
printf '#!/bin/sh\necho cmake "$@" >>%s\nexit 1\n' "$scratch/log" >"$scratch/bin/cmake"
printf '#!/bin/sh\ncase "$*" in *clang*|*lld*|*llvm*|*amdhip*) exit 1;; esac\nprintf "install ok installed"\n' \
  >"$scratch/bin/dpkg-query"
printf '#!/bin/sh\nexec "$@"\n' >"$scratch/bin/sudo"
printf '#!/bin/sh\n' >"$scratch/rocm/bin/amdclang++"
export PATH=$scratch/bin:$PATH
chmod +x "$scratch"/bin/* "$scratch"/rocm/bin/*

refuses() {  # refuses WORD COMMAND...: the line on stderr holds WORD
  local word=$1 out err status
  shift
  err=$("$@" 2>&1 >/dev/null </dev/null)
  status=$?
  out=$("$@" 2>/dev/null </dev/null)
  if [[ $status -ne 2 || -n $out || $(wc -l <<<"$err") -ne 1 || $err != *"$word"* ]]; then
    printf 'FAILED: %s\n  status %s, stdout "%s", stderr "%s"\n' "$*" "$status" "$out" "$err"
    failures=$((failures + 1))
  fi
}

refuses "which target" "$root/tools/quickstart"
refuses "bench_pa" "$root/tools/quickstart" bench_nothing
refuses "--frobnicate" "$root/tools/quickstart" --frobnicate test
refuses "gfx90a" "$root/tools/quickstart" --arch gfx90a test
refuses "needs a preset" "$root/tools/quickstart" --arch
refuses "unknown preset ''" "$root/tools/quickstart" --arch= test
refuses "unknown preset ''" "$root/tools/quickstart" --arch "" test
refuses "unknown preset 'host sm90'" "$root/tools/quickstart" --arch "host sm90" test
refuses "--frobnicate" "$root/tools/gpu_check" --frobnicate
refuses "everything" "$root/tools/gpu_check" --only everything
refuses "needs a list" "$root/tools/gpu_check" --only
refuses "usage" "$root/tools/check_tree" --frobnicate
refuses "directory" "$root/tools/bundle" check
refuses "command" "$root/tools/bundle"
refuses "times" "$root/tools/sim/validate"

[[ $("$root/tools/quickstart" --help 2>/dev/null) == usage:* ]] || { echo "FAILED: quickstart --help"; failures=$((failures + 1)); }
[[ $("$root/tools/gpu_check" --help 2>/dev/null) == usage:* ]] || { echo "FAILED: gpu_check --help"; failures=$((failures + 1)); }

# What quickstart would install and configure.
quickstart_with() {  # quickstart_with VARIABLE=VALUE ARGUMENT...: its log, in ${log}
  : >"$scratch/log"
  env -u TILEWAVE_REQUIRE_ISA "$1" "$root/tools/quickstart" "${@:2}" >/dev/null 2>&1 </dev/null
  log=$(<"$scratch/log")
}
logs() {  # logs yes|no PATTERN: whether the log has it
  local found=no
  if [[ $log == *$2* ]]; then found=yes; fi
  [[ $found == "$1" ]] || { printf 'FAILED: "%s" in the log is %s:\n%s\n' "$2" "$found" "$log"; failures=$((failures + 1)); }
}

for arch in gfx942 gfx950; do
  command -v amdclang++ >/dev/null && break  # ROCm on PATH: it is never missing
  quickstart_with ROCM_PATH=/nonexistent --arch "$arch" bench_pa
  logs yes "install -y --no-install-recommends clang-22 clang-tools-22 lld-22 llvm-22 libamdhip64-dev"
  logs yes "cmake --preset $arch"
  quickstart_with ROCM_PATH=/nonexistent --arch "$arch" --no-install bench_pa
  logs no "apt-get"
  quickstart_with ROCM_PATH="$scratch/rocm" --arch "$arch" bench_pa
  logs no "clang-22"
done
quickstart_with TILEWAVE_REQUIRE_ISA=1 --arch host test
logs yes "install -y --no-install-recommends clang-22 clang-tools-22 lld-22 llvm-22 libamdhip64-dev"
logs yes "cmake --preset host -D TILEWAVE_REQUIRE_ISA=ON"
quickstart_with TILEWAVE_REQUIRE_ISA=1 --arch host --no-install test
logs yes "cmake --preset host -D TILEWAVE_REQUIRE_ISA=ON"
quickstart_with TILEWAVE_REQUIRE_ISA= --arch host --no-install test
logs no "TILEWAVE_REQUIRE_ISA"
# Modelled times compile kernels for the chip: the benchmark's build needs the compiler that the tests want.
quickstart_with TILEWAVE_REQUIRE_ISA= --arch host bench_norm --model-time
logs yes "install -y --no-install-recommends clang-22 clang-tools-22 lld-22 llvm-22 libamdhip64-dev"
quickstart_with TILEWAVE_REQUIRE_ISA= --arch host --no-install bench_norm --model-time
logs yes "cmake --preset host"  # what came since the build was configured is found
quickstart_with TILEWAVE_REQUIRE_ISA= --arch host bench_norm
logs no "clang-22"

echo "$failures failures"
exit $((failures > 0))
