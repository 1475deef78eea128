#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The loop as the founding documents write it: evidence before each round, what is told to the next, what is recorded.
# campaign_loop.sh TILEWAVE
set -uo pipefail
tilewave=$1
source "$(dirname "$0")/campaign_toy.sh"

# A trace with registers, and a benchmark with work, of a chip.
make_traced() {
  make_repository
  cat >repository/bench/trace <<'SCRIPT'
#!/bin/sh
echo traced >>"$TILEWAVE_CAMPAIGN/traces"
read -r a b e <kernel
{
  echo Kind,Kernel_Name,Start_Timestamp,End_Timestamp,VGPR_Count,Accum_VGPR_Count,SGPR_Count,LDS_Block_Size,Scratch_Size
  echo "KERNEL_DISPATCH,decode,1000,$((1000 + a * 1000)),128,64,48,32768,0"
} >"$TILEWAVE_TRACE"
SCRIPT
  cat >repository/bench/run <<'SCRIPT'
#!/bin/sh
read -r a b e <kernel
echo "block_size,device,us,err,flops,bytes_ideal"
echo "16,NVIDIA H200,$a,$e,1000000,46800000"
echo "64,NVIDIA H200,$b,0,1000000,46800000"
exit "$e"
SCRIPT
  git -C repository commit -qam traced
}
faster='read -r a b e <kernel; echo "$((a - 10)) $b 0" >kernel'

make_traced; init --trace bench/trace
expect 0 "1 rounds" campaign baseline campaign
# --- the baseline: registers, LDS, bottlenecks, and targets that were computed
for file in campaign/rounds/round-1/summary.md campaign/baseline_report.md; do
  holds "$file" "vgpr: 128"
  holds "$file" "lds_bytes: 32768"
  holds "$file" "decode: 100.0 % of the GPU time"
done
holds campaign/profiles/round-1/REPORT.md "| decode | 1 | 100.000 |"
holds campaign/memory/v0.json '"lds_bytes": 32768'
holds campaign/memory/v0.json "boost_clock: UNKNOWN (docs/reference/hardware/H200.md"
holds campaign/README.md "hbm_bandwidth: 4.8 TB/s <- docs/reference/hardware/H200.md:"
holds campaign/README.md "Memory-bound rows: >= 4.212 TB/s (90 % of the roof)"
holds campaign/baseline_report.md "| memory | 100.000 | 10.000 | 11.111 | 10.0 % |"
# --- a round: its evidence before it, its plan, what is told to the next
cat >propose.sh <<SCRIPT
cp "\$TILEWAVE_FEEDBACK" ../feedback-\$TILEWAVE_ROUND
test -f "\$TILEWAVE_PROFILE/REPORT.md" || exit 9
case \$TILEWAVE_ROUND in
  2) $faster ;;
  3) echo "50 260 0" >kernel ;;
  4) exit 1 ;;
esac
echo '{"hypothesis": "h'\$TILEWAVE_ROUND'", "bucket": "K1", "tip": "promise of '\$TILEWAVE_ROUND'", "lesson": "taught by the round before '\$TILEWAVE_ROUND'",
  "pitfalls_and_fixes": ["pitfall of '\$TILEWAVE_ROUND'"]}' >"\$TILEWAVE_PROPOSAL"
SCRIPT
expect 0 "rounds done" campaign run campaign --rounds 1 --propose "sh ../propose.sh"
holds feedback-2 "decode: 100.0 % of the GPU time"
holds feedback-2 "profiles/round-1/REPORT.md"
holds campaign/plans/v1_plan.md "- Hypothesis: h2"
holds campaign/plans/v1_plan.md "  - decode: 100.0 % of the GPU time"
holds campaign/plans/v1_plan.md "- Outcome: keep"
holds campaign/memory/v1.json "pitfall of 2"
git -C worktree show HEAD:docs/notebook/campaigns/toy/performance.md >committed || failed "performance.md is not committed"
holds committed "| this commit | keep |"
lacks committed "$PWD"  # no path of this machine
[[ -z $(git -C worktree status --porcelain) ]] || failed "the worktree is not clean after a kept round"
expect 0 "rounds done" campaign run campaign --rounds 1 --propose "sh ../propose.sh"
holds feedback-3 "profiles/round-2/REPORT.md"
holds feedback-3 "pitfall of 2"
holds campaign/performance.md "Round 3 (split): h3"
holds campaign/performance.md "- block_size=16: candidate"
holds campaign/performance.md "- block_size=64: base"
# --- a proposer that ends, and a trace that was lost: the campaign goes on
rm -r campaign/profiles/round-2
expect 30 "the proposer ended with status 1" campaign run campaign --propose "sh ../propose.sh"
holds feedback-4 "split: propose a dispatch that keeps both kernels"
holds feedback-4 "- block_size=64: base"
[[ -f campaign/profiles/round-2/REPORT.md ]] || failed "the best version was not traced again before the round"
expect 0 "between rounds" campaign resume campaign
expect 31 "has not stopped" campaign resume campaign
holds campaign/logs/optimize.md "resumed after: the proposer ended with status 1"
expect 0 "rounds done" campaign run campaign --rounds 1 --propose "$faster; echo '{\"hypothesis\": \"h5\", \"bucket\": \"K1\"}' >\$TILEWAVE_PROPOSAL"
holds campaign/memory/v2.json "h3: split"
lacks campaign/memory/v2.json "pitfall of 2"
# --- tips: of what was measured
tips=repository/agent/historical_experience/sm90/pa/hip/tips.md
holds "$tips" "promise of 2 (toy, round 2, keep"
holds "$tips" "taught by the round before 3 (toy, round 2, keep"
expect 0 "" campaign tip campaign "spills beyond two tiles" --round 3
holds "$tips" "spills beyond two tiles (toy, round 3, split"
expect 0 "rounds done" campaign run campaign --rounds 1 --propose "echo '{\"hypothesis\": \"nothing\", \"bucket\": \"K1\", \"tip\": \"never measured\"}' >\$TILEWAVE_PROPOSAL"
lacks "$tips" "never measured"
expect 31 "was not measured" campaign tip campaign x --round 5
grep -q '| 5 | .* | failed | - | - | - | nothing |' campaign/logs/performance_trend.md || failed "a failed round has a score: $(tail -1 campaign/logs/performance_trend.md)"

# --- five that fail, and regressions: resumed with the count at 0; max_iterations holds until it is raised
make_repository; init --max-iterations 6
expect 30 "5 proposals in a row" campaign run campaign --propose "echo x >kernel"
sed -i 's/"date": "[^"]*"/"date": "2001-01-01 00:00"/' campaign/state.json
expect 0 "between rounds" campaign resume campaign
expect 30 "max_iterations = 6" campaign run campaign --propose "echo x >kernel"
lacks campaign/performance.md "Stop time: 2001"
expect 30 "still stopped" campaign resume campaign
expect 0 "between rounds" campaign resume campaign --max-iterations 20
expect 30 "5 consecutive measured regressions" campaign run campaign --propose "echo '150 200 0' >kernel; echo '{\"hypothesis\": \"h\", \"bucket\": \"K1\"}' >\$TILEWAVE_PROPOSAL"
expect 0 "CONSECUTIVE_REGRESSIONS 0" campaign resume campaign

# --- an hour without a GPU: the last look is at the limit, and the campaign can go on
mkdir bin
printf '#!/bin/sh\necho look >>%s/looks\n[ -f %s/idle ] || exit 1\ncase "$*" in *compute-apps*) ;; *) echo "0, GPU-a, H200, 0, 0, 3, 143771" ;; esac\n' "$PWD" "$PWD" >bin/nvidia-smi
chmod +x bin/nvidia-smi
make_repository; init --use-gpu wait --gpu-retry 4s --gpu-limit 1s
expect 20 "no GPU" campaign run campaign --propose true
PATH=$PWD/bin:$PATH expect 20 "no GPU" campaign run campaign --propose true
expect 0 "no baseline yet" campaign resume campaign
touch idle
PATH=$PWD/bin:$PATH expect 0 "rounds done" campaign run campaign --rounds 1 --propose true
cat >bin/nvidia-smi <<SCRIPT
#!/bin/sh
case "\$*" in
  *compute-apps*) ;;
  *) [ \$(date +%s) -ge \$(cat $PWD/from) ] && echo "0, GPU-a, H200, 0, 0, 3, 143771" || echo "0, GPU-a, H200, 99, 99, 3, 143771" ;;
esac
SCRIPT
echo $(($(date +%s) + 4)) >from
PATH=$PWD/bin:$PATH expect 0 "ran" gpu wait --retry 1h --limit 6s --gap 0s -- echo ran

# --- the quick test: made by init, filled by the baseline, run before the benchmark
make_repository
mv repository/bench/run repository/bench/bench_toy
sed -i '2i for word in "$@"; do case $word in --config=*) echo "$word" >>"$TILEWAVE_CAMPAIGN/quick" ;; esac; done' repository/bench/bench_toy
git -C repository add -A
git -C repository commit -qm bench_toy
benchmark="bench/bench_toy --sweep=all" init
holds campaign/quick_test_bench.sh "The baseline fills the configs in"
expect 0 "1 rounds" campaign baseline campaign
holds campaign/quick_test_bench.sh "one 'block_size=16'"
begin h
echo "90 200 0" >worktree/kernel
expect 0 "keep" campaign round validate campaign
holds campaign/quick "--config=block_size=64"

# --- targets: of the roof, computed; a share of modelled rows; rows of another chip
make_traced; init --target roof
expect 30 "performance_target reached: roof" campaign run campaign --propose "echo '11 11 0' >kernel; echo '{\"hypothesis\": \"h\", \"bucket\": \"K1\"}' >\$TILEWAVE_PROPOSAL"
make_traced; gpu=H100 init
expect 14 "is of H200, whose roof is not that of H100" campaign baseline campaign
make_repository
printf '#!/bin/sh\nread -r a b e <kernel\necho block_size,us,err,model_us,model_chip,flops,bytes_ideal\necho "16,nan,0,$a,MI355X,1000,80000000"\n' >repository/bench/run
git -C repository commit -qam modelled
gpu=gfx950 init --metric model_us --target '> 15 %'
expect 0 "1 rounds" campaign baseline campaign
holds campaign/README.md "docs/reference/hardware/MI355X.md"
begin h
echo "50 0 0" >worktree/kernel
expect 0 "keep" campaign round validate campaign
expect 0 "performance_target reached: > 15 %" campaign status campaign

# --- skewed routing
make_repository
cat >repository/bench/skewed <<'SCRIPT'
#!/bin/sh
read -r a b e <kernel
echo "m,us,err"
echo "1,$((b + 100 - a)),0"
SCRIPT
chmod +x repository/bench/skewed
git -C repository add -A
git -C repository commit -qm skewed
op=moe_gemm init --skew bench/skewed
expect 0 "1 rounds" campaign baseline campaign
begin h
echo "90 200 0" >worktree/kernel
expect 10 "but skewed routing loses" campaign round validate campaign
holds campaign/rounds/round-2/summary.md "- Skewed routing: discard by skew_command"
begin h
echo "90 180 0" >worktree/kernel
expect 0 "keep" campaign round validate campaign
make_repository
op=moe_gemm init
expect 0 "no row of the benchmark has skewed routing" campaign baseline campaign
begin h
echo "90 200 0" >worktree/kernel
expect 0 "keep" campaign round validate campaign
holds campaign/rounds/round-2/summary.md "- Skewed routing: not shown"

# --- workspace mode: the kernel, its tests and its benchmark alone, and the way back
make_repository
mkdir -p repository/kernels.d repository/test
echo "100 200 0" >repository/kernels.d/kernel
echo "exit 0" >repository/test/kernel_test
sed -i 's/<kernel/<src\/kernels.d\/kernel/' repository/bench/run
git -C repository add -A
git -C repository commit -qm project
workspace() {
  "$tilewave" campaign init --mode workspace --folder campaign --repository repository --name toy --op pa --backend HIP --gpu sm90 \
    --source kernels.d --tests test/kernel_test --bench bench/run --test "sh tests/test/kernel_test" --benchmark bench/bench/run >/dev/null
}
workspace || failed "init --mode workspace"
expect 0 "1 rounds" campaign baseline campaign
expect 31 "nothing was kept" campaign integrate campaign
holds campaign/stack/UPSTREAM "commit: $(git -C repository rev-parse HEAD)"
holds campaign/stack/UPSTREAM "src: kernels.d"
begin h
echo "90 200 0" >campaign/worktree/src/kernels.d/kernel
expect 0 "keep" campaign round validate campaign
holds campaign/rounds/round-2/kernel_snapshot/src/kernels.d/kernel "90 200 0"
begin cheat
echo "exit 1" >campaign/worktree/tests/test/kernel_test
expect 1 "which is fixed" campaign round validate campaign
[[ $(<repository/kernels.d/kernel) == "100 200 0" ]] || failed "the project was changed"
patch=$("$tilewave" campaign integrate campaign) || failed "integrate"
git -C repository apply "$patch" || failed "the patch does not apply"
[[ $(<repository/kernels.d/kernel) == "90 200 0" && $(git -C repository status --porcelain) == " M kernels.d/kernel" ]] ||
  failed "the patch is more or less than the kernel: $(git -C repository status --porcelain)"
expect 31 "does not apply" campaign integrate campaign
expect 31 "holds a campaign" campaign init --mode workspace --folder campaign --repository repository --op pa --backend HIP --gpu sm90 --source kernels.d --benchmark x
make_repository; init
expect 0 "1 rounds" campaign baseline campaign
expect 31 "its branch is optimize/toy" campaign integrate campaign

expect 0 "tilewave 0." --version

echo "$failures failures"
exit $((failures > 0))
