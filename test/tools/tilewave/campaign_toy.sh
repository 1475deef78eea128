#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A toy kernel for the tests of `tilewave campaign`: to be sourced, with the command in $tilewave.
failures=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

failed() { printf 'FAILED: %s\n' "$*"; failures=$((failures + 1)); }
expect() {  # expect STATUS WORD ARGUMENTS...
  local wanted=$1 word=$2 out status
  shift 2
  out=$("$tilewave" "$@" 2>&1 </dev/null)
  status=$?
  [[ $status -eq $wanted && $out == *"$word"* ]] || failed "$*: status $status instead of $wanted, or no '$word': $out"
}
holds() { grep -qF -- "$2" "$1" 2>/dev/null || failed "$1: no '$2'"; }
lacks() { if grep -qF -- "$2" "$1"; then failed "$1: '$2'"; fi; }

# Two numbers, the times of two classes, and an error; the benchmark prints them. What `kernels` holds is its GPU trace.
make_repository() {
  rm -rf repository worktree campaign
  git init -q repository
  mkdir -p repository/bench repository/tools/sim
  echo "100 200 0" >repository/kernel
  echo "clock" >repository/tools/sim/clock
  printf 'main,100,1000\n' >repository/kernels
  cat >repository/bench/run <<'SCRIPT'
#!/bin/sh
read -r a b e <kernel
echo "block_size,us,err"
echo "16,$a,$e"
echo "64,$b,0"
exit "$e"
SCRIPT
  printf '#!/bin/sh\necho Name,Calls,TotalDurationNs >"$TILEWAVE_TRACE"\ncat kernels >>"$TILEWAVE_TRACE"\n' >repository/bench/trace
  chmod +x repository/bench/run repository/bench/trace
  git -C repository add -A
  git -C repository commit -qm first
}
init() {
  "$tilewave" campaign init --folder campaign --repository repository --worktree worktree --name toy --op "${op:-pa}" \
    --backend HIP --gpu "${gpu:-sm90}" --benchmark "${benchmark:-bench/run}" --source kernel "$@" >/dev/null || failed "init $*"
}
begin() { "$tilewave" campaign round begin campaign --hypothesis "$1" --bucket K1 >/dev/null || failed "begin $1"; }
branch() { git -C worktree symbolic-ref --short HEAD; }
