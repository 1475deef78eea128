#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What a campaign must not do to its user, and what a candidate must not do to its verdict.
# campaign_guard.sh TILEWAVE
set -uo pipefail
tilewave=$1
source "$(dirname "$0")/campaign_toy.sh"

# --- a worktree whose .git goes lies in somebody's checkout: nothing is reset there
make_repository
git clone -q repository outer
"$tilewave" campaign init --folder campaign --repository repository --worktree outer/worktree --name toy --op pa --backend HIP --gpu sm90 \
  --benchmark bench/run --source kernel >/dev/null || failed "init in another checkout"
ln -s outer/worktree worktree
expect 0 "1 rounds" campaign baseline campaign
begin h
echo "90 200 0" >worktree/kernel
echo "changed by the user" >outer/kernel
echo "not added yet" >outer/untracked
mv worktree/.git link
for words in "round abandon campaign" "round validate campaign" "run campaign --propose true"; do
  # shellcheck disable=SC2086
  expect 31 "is no worktree of" campaign $words
done
holds outer/kernel "changed by the user"
holds outer/untracked "not added yet"
[[ -z $(git -C outer diff --cached) ]] || failed "something was added in the user's checkout"
git init -q worktree  # a repository of its own is none either
expect 31 "a repository of its own" campaign report campaign
rm -rf worktree/.git
mv link worktree/.git
expect 0 "" campaign report campaign  # and what was to be done is done
[[ $(<worktree/kernel) == "100 200 0" ]] || failed "the round was not rolled back once .git was there again"
# Nor where variables of another repository are set, as in a hook.
echo "85 200 0" >repository/kernel
begin i
GIT_DIR=$PWD/repository/.git GIT_WORK_TREE=$PWD/repository "$tilewave" campaign round abandon campaign || failed "abandon with GIT_DIR"
holds repository/kernel "85 200 0"
git -C repository checkout -q kernel
# The proposer's own git is held back as well.
expect 0 "rounds done" campaign run campaign --rounds 1 --propose "mv .git ../../link; git add -A; git commit -qm stray; mv ../../link .git"
[[ $(git -C outer log --format=%s) == first ]] || failed "the proposer's git worked on the checkout around"
rm -rf outer worktree
make_repository
expect 2 "lies in the checkout" campaign init --folder campaign --repository repository --worktree repository/w --op pa --backend HIP --gpu sm90 --benchmark x

# --- a proposer on another branch: the campaign stays on its own, and moves no other
make_repository; init
git -C repository branch precious
expect 0 "rounds done" campaign run campaign --rounds 1 --propose \
  "git checkout -q -b mine; echo '90 200 0' >kernel; git commit -qam mine; echo '{\"hypothesis\": \"h\", \"bucket\": \"K1\"}' >\$TILEWAVE_PROPOSAL"
[[ $(branch) == optimize/toy && $(git -C repository log --format=%s -1 mine) == mine ]] || failed "on $(branch) after a proposer's checkout"
holds campaign/logs/performance_trend.md "| keep |"
expect 0 "rounds done" campaign run campaign --rounds 1 --propose "git checkout -q precious; echo '95 200 0' >kernel; echo '{\"hypothesis\": \"h\", \"bucket\": \"K1\"}' >\$TILEWAVE_PROPOSAL"
[[ $(branch) == optimize/toy && $(git -C repository log --format=%s -1 precious) == first ]] || failed "another branch was moved"
[[ $(git -C repository log --format=%s -1 optimize/toy) == h ]] || failed "the campaign's branch lost its kept round"

# --- what the verdict rests on is fixed, and so is what the commands name
make_repository
cp repository/bench/run repository/measure
mkdir -p repository/include/tilewave/reference repository/include/tilewave/arch/host
git -C repository add -A
git -C repository commit -qm measure
benchmark=./measure init
expect 0 "1 rounds" campaign baseline campaign
for file in tools/sim/clock bench/run CMakeLists.txt include/CMakeLists.txt cmake/flags.cmake CMakePresets.json tools/tilewave/new test/new measure \
  include/tilewave/reference/new.hpp include/tilewave/arch/host/new.hpp include/tilewave/ops/gemm/problem.hpp docs/reference/hardware/H20.md .gitignore; do
  begin cheat
  mkdir -p "worktree/$(dirname "$file")"
  echo "echo 16,1,0" >>"worktree/$file"
  expect 1 "touches $file, which is fixed" campaign round validate campaign
done
begin honest
mkdir -p worktree/include/tilewave/ops/gemm
echo "90 200 0" >worktree/kernel
echo "// kernel" >worktree/include/tilewave/ops/gemm/kernel.hpp
expect 0 "keep" campaign round validate campaign
make_repository; init --allow tools --fixed 'doc*/*.md'
holds campaign/manifest.yaml 'doc*/*.md'
expect 0 "1 rounds" campaign baseline campaign
begin allowed
echo "faster" >worktree/tools/sim/clock
expect 11 "tie" campaign round validate campaign

# --- GPU time is that of a call: all launches, not the mean of the hottest
make_repository; init --trace bench/trace
expect 0 "1 rounds" campaign baseline campaign
verdict() {  # STATUS WORD ROWS_OF_THE_TRACE
  begin "kernels $3"
  echo "90 200 0" >worktree/kernel
  printf "$3" >worktree/kernels
  expect "$1" "$2" campaign round validate campaign
}
verdict 10 "in 100 -> 200 launches" 'half1,100,600\nhalf2,100,600\n'  # one kernel split into two of 60 %
verdict 10 "+20.00 %" 'main,200,1200\n'                               # called twice
verdict 10 "does not improve" 'main,100,900\nsecond,100,400\n'        # a second kernel that eats the gain
verdict 1 "--per-call" 'main,50,500\n'                                # half the calls, or half the launches of a call?
verdict 0 "keep" 'main,100,900\n'

# --- small gains of GPU time count the second time, too
make_repository; init --trace bench/trace
expect 0 "1 rounds" campaign baseline campaign
for wanted in "11 tie" "0 twice"; do
  begin "half a percent"
  echo "99.4 200 0" >worktree/kernel
  printf 'main,100,994\n' >worktree/kernels
  expect "${wanted% *}" "" campaign round validate campaign
done
holds campaign/rounds/round-3/artifacts/compare.txt "the second time in this direction"

# --- what a proposal says against itself
expect 2 "a loss by the proposal's own estimate" campaign round begin campaign --hypothesis x --bucket K1 --real-gain=-2

# --- a stray child of a proposer that keeps the lock is named, and one in its group is ended
make_repository; init
expect 0 "rounds done" campaign run campaign --rounds 1 --propose 'sleep 77 & echo $! >../stray; exit 0'
expect 0 "Final Report" campaign report campaign
if [[ -n $(tr -d '\0' <"/proc/$(<stray)/cmdline") ]]; then failed "a stray child is left"; fi 2>/dev/null
daemon="setsid sh -c 'echo \$\$ >../pid; exec sleep 20' & while [ ! -s ../pid ]; do sleep 0.01; done"
"$tilewave" campaign run campaign --rounds 1 --propose "$daemon" >/dev/null 2>&1
expect 31 "$(<pid) (sleep)" campaign report campaign
kill "$(<pid)"

echo "$failures failures"
exit $((failures > 0))
