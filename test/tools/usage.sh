#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Bad usage of the scripts: one line on stderr, nothing on stdout, a non-zero exit, and nothing done before it.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
failures=0

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
refuses "--frobnicate" "$root/tools/gpu_check" --frobnicate
refuses "everything" "$root/tools/gpu_check" --only everything
refuses "needs a list" "$root/tools/gpu_check" --only
refuses "usage" "$root/tools/check_tree" --frobnicate

[[ $("$root/tools/quickstart" --help 2>/dev/null) == usage:* ]] || { echo "FAILED: quickstart --help"; failures=$((failures + 1)); }
[[ $("$root/tools/gpu_check" --help 2>/dev/null) == usage:* ]] || { echo "FAILED: gpu_check --help"; failures=$((failures + 1)); }
echo "$failures failures"
exit $((failures > 0))
