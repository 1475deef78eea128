#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The command line of tilewave: exit statuses, one line on stderr for what is refused, an example in every --help.
# usage.sh TILEWAVE
set -uo pipefail
tilewave=$1
failures=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

failed() { printf 'FAILED: %s\n' "$*"; failures=$((failures + 1)); }

expect() {  # expect STATUS WORD ARGUMENTS...: the status, and WORD in what it says; a refusal is one line on stderr
  local wanted=$1 word=$2 out err status
  shift 2
  out=$("$tilewave" "$@" 2>err </dev/null)
  status=$?
  err=$(<err)
  [[ $status -eq $wanted ]] || failed "$*: status $status instead of $wanted: $err"
  [[ $out$err == *"$word"* ]] || failed "$*: no '$word' in: $out$err"
  case $wanted in
    2 | 3 | 14 | 20 | 31) [[ -z $out && $(wc -l <<<"$err") -eq 1 && $err == "tilewave: "* ]] || failed "$*: not one line: $out|$err" ;;
  esac
}
json() { python3 -c 'import json, sys; json.load(sys.stdin)' || failed "$1: no JSON"; }

expect 2 "subcommand"
expect 2 "frobnicate" frobnicate
expect 0 "Exit statuses" --help
for words in isa campaign trace tune; do expect 0 "Example" "$words" --help; done

# --- compare
expect 0 "Example" compare --help
printf 'block_size,us,err\n16,100,0\n64,50,0\n' >base.csv
printf 'block_size,us,err\n16,90,0\n64,50,0\n' >keep.csv
printf 'block_size,us,err\n16,90,0\n64,60,0\n' >split.csv
printf 'block_size,us,err\n16,1,1\n64,1,0\n' >wrong.csv
printf 'block_size,us,err\n16,1,0\n' >few.csv
: >empty.csv
expect 0 "verdict: keep" compare base.csv keep.csv
expect 10 "verdict: discard" compare keep.csv base.csv
expect 11 "verdict: tie" compare base.csv base.csv
expect 12 "verdict: split" compare base.csv split.csv
expect 13 "verdict: incorrect" compare base.csv wrong.csv
expect 14 "1 of 2 configs" compare base.csv few.csv
expect 2 "is empty" compare base.csv empty.csv
expect 2 "cannot read" compare base.csv nothing.csv
expect 2 "is a folder" compare base.csv .
expect 2 "is not from" compare base.csv keep.csv --tie nan
expect 2 "CANDIDATE" compare base.csv
"$tilewave" compare base.csv split.csv --json | json compare
printf 'Name,Calls,TotalDurationNs\ndecode,10,10000\n' >slow.csv
expect 11 "does not improve" compare base.csv keep.csv --kernel-trace slow.csv slow.csv

expect 2 "is measured, model_us modelled" compare base.csv keep.csv --time model_us --kernel-trace slow.csv slow.csv
printf 'm,us,err,model_us,model_chip\n1,nan,0,20,MI355X\n' >model.csv
expect 11 "base model_us" compare model.csv model.csv --time=model_us
printf 'm,us,err,model_us,model_clk,model_mhz,model_chip\n1,nan,0,22,40000,2000,MI355X\n' >slow_clk.csv
printf 'm,us,err,model_us,model_clk,model_mhz,model_chip\n1,nan,0,23,31500,1500,MI355X\n' >fast_clk.csv
expect 0 "ranked by model_clk" compare slow_clk.csv fast_clk.csv --time=model_us
expect 14 "was modelled" compare model.csv model.csv

# --- a report that nobody got is no verdict
for stdout in '>/dev/full' '>&-'; do
  eval '"$tilewave" compare base.csv keep.csv 2>err '"$stdout"
  [[ $? -eq 1 && $(<err) == "tilewave: cannot write to stdout"* ]] || failed "compare $stdout: $(<err)"
done

# --- isa
expect 2 "subcommand" isa
expect 0 "Example" isa show --help
expect 0 "side-by-side" isa diff --help
expect 2 "no uncompressed code" isa show empty.csv
expect 2 "cannot read" isa show nothing.co
expect 2 "no .co and no .cubin" isa show .
expect 2 "go together" isa diff --build true a b
expect 2 "no regular expression" isa show empty.csv --kernel '('
for words in gate table page; do expect 0 "Example" isa "$words" --help; done
expect 2 "entries is required" isa gate .
expect 2 "is no JSON" isa gate . --entries empty.csv
printf '{"schema": "tilewave-isa-entries/1", "archs": {}, "entries": []}' >entries.json
expect 2 "no entries" isa gate . --entries entries.json
printf '{"schema": "tilewave-isa-entries/1", "archs": {}, "entries": [{"code_object": "a.co"}]}' >entries.json
expect 2 "'arch' is missing" isa gate . --entries entries.json
expect 2 "no .co and no .cubin" isa table .
expect 2 "no uncompressed code" isa table empty.csv
expect 2 "is no JSON" isa page page.md --tables empty.csv
printf '{"schema": "tilewave.isa_tables/1", "compiler": "c", "full": true, "tables": [{"title": "t", "columns": ["arch", "kernel"], "rows": []}]}' >tables.json
expect 2 "cannot read" isa page page.md --tables tables.json
expect 2 "needs one" isa page tables.json --tables tables.json

# --- specs, roofline
expect 0 "Example" specs --help
expect 0 "MI355X" specs
expect 0 "hbm_bandwidth: 8 TB/s <- docs/reference/hardware/MI350X.md:" specs gfx950 --key hbm_bandwidth
expect 3 "UNKNOWN" specs H100 --key read_ceiling
expect 2 "no chip 'H300'" specs H300
expect 2 "has no 'speed'" specs H200 --key speed
expect 2 "cannot read" specs --hardware nowhere
"$tilewave" specs MI300X --json | json specs
expect 0 "Example" roofline --help
expect 0 "bound: memory" roofline --arch gfx950 --op paged_attention --shape batch=64,context=8192,q_heads=32,kv_heads=8
expect 0 "bound: compute" roofline --arch gfx950 --op gemm --shape m=8192,n=8192,k=8192
expect 2 "either --op" roofline --arch gfx950
expect 0 "bytes: 16392" roofline --arch gfx950 --op embedding --shape rows=1,columns=4096
printf 'us,model_us,flops,bytes_ideal\nnan,10,0,1e7\n' >modelled.csv
expect 2 "takes modelled ones" roofline --arch gfx950 --csv modelled.csv
expect 0 "12.5 %" roofline --arch gfx950 --csv modelled.csv --time model_us
printf 'us,flops,bytes_ideal\n1,1e300,1e-300\n' >endless.csv
expect 2 "no axis reaches" roofline --arch gfx950 --csv endless.csv --svg endless.svg
expect 2 "needs k=" roofline --arch gfx950 --op gemm --shape m=1,n=1
expect 2 "a roof of 0" roofline --arch gfx942 --peak fp4 --op gemm --shape m=1,n=1,k=1
printf 'name,us,flops,bytes_ideal\na,10,1e9,1e7\n' >rows.csv
expect 0 "0 of 1 rows" roofline --arch H200 --csv rows.csv --svg roof.svg --by name
expect 1 "cannot write" roofline --arch H200 --csv rows.csv --svg rows.csv/roof.svg
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("roof.svg")' || failed "roof.svg is no XML"
"$tilewave" roofline --arch H200 --csv rows.csv --json | json roofline

# --- gpu, with stand-ins for nvidia-smi
mkdir bin
cat >bin/nvidia-smi <<'EOF'
#!/bin/sh
case $1 in *compute-apps*) [ -z "$BUSY" ] || echo "GPU-a, 7, python" ;; *) printf '0, GPU-a, H200, %s, 0, 3, 143771\n1, GPU-b, H200, 99, 90, 90000, 143771\n' "${USE:-0}" ;; esac
EOF
chmod +x bin/nvidia-smi
path=$PATH
export PATH=$scratch/bin:/usr/bin:/bin TMPDIR=$scratch
unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
if ! command -v amd-smi >/dev/null && ! command -v rocm-smi >/dev/null; then
  expect 0 "Example" gpu --help
  expect 0 "yes, the idlest" gpu
  expect 0 "CUDA_VISIBLE_DEVICES=0" gpu wait --gap 0 -- true
  # shellcheck disable=SC2016
  expect 0 "on 0 --flag" gpu wait --gap 0 -- sh -c 'echo on $CUDA_VISIBLE_DEVICES $1' x --flag
  expect 7 "" gpu wait --gap 0 -- sh -c 'exit 7'
  expect 1 "cannot run" gpu wait --gap 0 -- "$scratch/nothing"
  expect 2 "no duration" gpu wait --retry soon -- true
  expect 2 "COMMAND" gpu wait
  export BUSY=yes
  expect 20 "process 7" gpu wait --retry 0 --limit 0 --gap 0 -- true
  unset BUSY
  CUDA_VISIBLE_DEVICES=1 expect 20 "of its memory" gpu wait --retry 1 --limit 0 --gap 0 -- true
  # What runs keeps the GPU to itself, until it ends.
  "$tilewave" gpu wait --gap 0 -- sh -c 'touch held; while [ -e held ]; do sleep 0.05; done' 2>/dev/null & holder=$!
  for _ in $(seq 200); do [[ -e held ]] && break; sleep 0.05; done
  expect 20 "taken" gpu wait --retry 1 --limit 0 --gap 0 -- true
  rm -f held
  wait $holder
  expect 0 "" gpu wait --gap 0 -- true
  "$tilewave" gpu --json | json gpu
  printf '#!/bin/sh\ncase $1 in metric) echo "[WARNING] groups: {render}"; cat amd.json ;; process) echo "WARNING: sudo"; echo "[]" ;; esac\n' >bin/amd-smi
  chmod +x bin/amd-smi
  printf '{"gpu_data": [{"gpu": 0, "usage": {"gfx_activity": {"value": 0}}, "mem_usage": {"total_vram": {"value": 9000}, "used_vram": {"value": 3}}}]}\n' >amd.json
  expect 0 "HIP_VISIBLE_DEVICES=0" gpu wait --gap 0 --limit 0 -- true
  rm bin/amd-smi
  printf '#!/bin/sh\necho Driver Not Loaded\n' >bin/nvidia-smi
  expect 20 "no GPU" gpu
fi
export PATH=$path

# --- trace
expect 0 "Example" trace report --help
mkdir -p profile nothing
printf 'Kind,Kernel_Name,Start_Timestamp,End_Timestamp,VGPR_Count\nKERNEL_DISPATCH,decode,0,5000,128\n' >profile/out_kernel_trace.csv
expect 0 "| decode | 1 | 5.000 |" trace report profile
expect 0 "registers" trace report profile --arch gfx950
expect 2 "holds no" trace report nothing
expect 2 "cannot read" trace report nowhere
"$tilewave" trace report profile --json | json trace
expect 0 "rocprofv3 --kernel-trace --stats -f csv -d cap -o out -- bench '--benchmark_filter=a b'" trace capture cap -- bench '--benchmark_filter=a b'
expect 0 "rocprofv3 -i cap/att.yaml" trace capture cap --what att --kernel 'a"b' -- bench
python3 -c 'import sys; sys.exit("advanced_thread_trace: true" not in open("cap/att.yaml").read())' || failed "att.yaml"
expect 0 "gpu__time_duration.sum" trace capture cap --profiler ncu -- bench
sh -n cap/capture.sh || failed "capture.sh is no script"
expect 0 "rocprofv3 --pmc SQ_WAVES TCC_HIT_sum TCC_MISS_sum --kernel" trace capture cap --what counters --counter SQ_WAVES --counter TCC_HIT_sum,TCC_MISS_sum -- bench
expect 0 "rocprofv3 --pmc SQ_INSTS_VALU SQ_INSTS_MFMA SQ_INSTS_VMEM SQ_WAVES --kernel" trace capture cap --what counters -- bench
# More than four are counted in several runs, which the report puts together.
expect 0 "--pmc E --kernel-include-regex '.*' -f csv -d cap/pmc_2 -o out -- bench" trace capture cap --what counters --counter A,B,C,D,E -- bench
[[ $(grep -c '^rocprofv3 --pmc' cap/capture.sh) -eq 2 ]] || failed "five counters in one run: $(<cap/capture.sh)"
mkdir -p faster
printf 'Kind,Kernel_Name,Start_Timestamp,End_Timestamp,VGPR_Count\nKERNEL_DISPATCH,decode,0,4000,64\n' >faster/out_kernel_trace.csv
expect 0 "| mean us | 5 | 4 | -20.0 % |" trace diff profile faster
expect 2 "is a file" trace report profile/out_kernel_trace.csv
expect 2 "holds no" trace diff profile nothing
expect 0 "Example" trace diff --help
"$tilewave" trace diff profile faster --json | json trace_diff
sed s/decode/other/ faster/out_kernel_trace.csv >nothing/out_kernel_trace.csv
printf 'KERNEL_DISPATCH,third,0,4000,64\n' >>nothing/out_kernel_trace.csv
expect 2 "no kernel in common" trace diff profile nothing
rm nothing/out_kernel_trace.csv

# --- what --out names is written, whatever it is: a device, a fifo or a link stays one
ln -s linked.md link.md
ln -s /dev/null null.md
mkfifo pipe.md
expect 0 "" trace report profile --out link.md
expect 0 "" trace report profile --out null.md
timeout 30 cat pipe.md >piped.md & reader=$!
expect 0 "" trace report profile --out pipe.md
[[ -p pipe.md ]] || failed "a fifo was replaced"
wait $reader
[[ -L link.md && -f linked.md && ! -L linked.md ]] || failed "a link was replaced"
[[ $(readlink null.md) == /dev/null && -c /dev/null ]] || failed "a link to /dev/null was replaced"
diff linked.md piped.md >/dev/null || failed "a fifo got something else than a file"
ln -s /proc/self/fd/1 stdout.md  # as /dev/stdout, which a fault here would take from the machine
[[ $("$tilewave" trace report profile --out stdout.md) == "$(<linked.md)" ]] || failed "--out of a link to stdout"
expect 1 "it is a folder" trace report profile --out profile
expect 0 "" roofline --arch H200 --csv rows.csv --svg null.md
[[ -L null.md ]] || failed "--svg replaced a link"
printf '\xff\xfea\0,\0b\0\n\0' >wide.csv
expect 2 "wide.csv is UTF-16: save it as UTF-8" compare base.csv wide.csv

# --- trace library from stand-ins for our benchmarks: one that knows the configuration and one that does not
mkdir -p benches
cat >benches/bench_scale <<'EOF'
#!/bin/bash
filter=. trace= time=2
for argument; do
  case $argument in
    --benchmark_filter=*) filter=${argument#*=} ;;
    --model-trace=*) trace=${argument#*=} ;;
    --model-time) time=nan ;;
  esac
done
echo "name,err,us,roof_us,model_us"
for row in a/1,0,$time,5,10 b/2,0,${time/2/4},5,20; do [[ ${row%%,*} =~ $filter ]] && echo "$row"; done
[[ -z $trace ]] || printf 'Kind,Kernel_Name,Start_Timestamp,End_Timestamp\nKERNEL_DISPATCH,"scale (modelled on x, not measured)",0,%s\n' "${#filter}000" >"$trace/model_kernel_trace.csv"
exit 0
EOF
printf '#!/bin/sh\nexit 2\n' >benches/bench_other
chmod +x benches/bench_*
ln -s bench_scale benches/bench_alias
expect 0 "(vec_add|paged)/': other" trace library made --benches benches --out pages --note 'of a stand-in'
grep -q '^of a stand-in$' pages/README.md pages/scale/REPORT.md || failed "no note on the pages"
grep -q '| \[scale\](scale/REPORT.md) | 64.6 % | 35.4 % |.*| a model |' pages/README.md || failed "the index: $(<pages/README.md)"
grep -q 'modelled, not measured' pages/scale/REPORT.md || failed "the report takes a model for rocprofv3"
grep -q 'benchmark_filter=.*b/2' made/scale/capture.sh || failed "not the row that takes longest is traced"
[[ ! -e pages/alias && ! -e pages/other ]] || failed "an op that is none"
expect 0 "*/capture.sh" trace library gpu_made --benches benches --profiler ncu --out pages
grep -q 'ncu --set full .*--kernel-name-base demangled .*--launch-count .* -o [^ ]*gpu_made/scale[^ ]*/out ' gpu_made/scale/capture.sh || failed "no command of ncu"
grep -q 'clock-control none.*benchmark_filter=.*b/2' gpu_made/scale/capture.sh || failed "ncu records other clocks, or not the row that takes longest"
"$tilewave" trace library gpu_made --benches benches --profiler ncu --out pages --json | json trace_library
mkdir -p none && cp benches/bench_other none
expect 2 "no benchmark of none ran a row" trace library none_made --benches none --out pages
expect 2 "holds no bench_OP" trace library made --benches nothing --out pages
expect 2 "cannot read" trace library made --benches nowhere --out pages

# --- report
expect 0 "Example" report --help
printf 'name,mtp,us,err,flops,bytes_ideal\na,1,10,0,1e9,1e7\nb,2,20,0,1e9,1e7\n' >timed.csv
printf 'kernel,model,speedup\nsoftmax,llama,1.5\n' >ledger.csv
expect 2 "nothing to show" report --out page.html
expect 2 "cannot read" report --out page.html --csv nothing.csv
expect 0 "" report --out page.html --csv timed.csv --arch H200 --compare base.csv keep.csv --ledger ledger.csv --table split.csv --isa tables.json
expect 0 "" report --out modelled.html --csv model.csv --compare model.csv model.csv --time model_us
grep -q 'with modelled times, not measured' modelled.html || failed "a page takes modelled times for measured ones"
python3 - <<'EOF' || failed "page.html"
import html.parser, sys
class Page(html.parser.HTMLParser):
    void, open, seen = {"meta"}, [], set()
    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        if tag not in self.void:
            self.open.append(tag)
        assert tag != "script" and not any(k in ("src", "href") for k, _ in attributes), "the page needs something else"
    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
page = Page()
page.feed(open("page.html").read())
assert not page.open and {"table", "svg", "title"} <= page.seen, page.seen
EOF
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [[ -n $browser ]]; then  # a phone's width; a picture of nothing is a few kilobytes
  "$browser" --headless --no-sandbox --disable-gpu --window-size=390,1600 --screenshot="$scratch/page.png" "file://$scratch/page.html" >/dev/null 2>&1
  [[ $(stat -c %s page.png 2>/dev/null || echo 0) -gt 20000 ]] || failed "the browser shows nothing"
else
  echo "no Chromium here: the page was parsed, not seen"
fi

# --- tune, on a stand-in for a benchmark of nine rows; where "broken" is, its third chunk fails
cat >bench <<'EOF'
#!/bin/bash
filter=.
for argument; do
  case $argument in
    --benchmark_list_tests*) for i in 1 2 3 4 5 6 7 8 9; do echo "row.$i/v"; done; exit ;;
    --benchmark_filter=*) filter=${argument#*=} ;;
  esac
done
echo "$filter" >>filters
echo "name,batch_size,lanes,us,err,policy_columns"
for i in 1 2 3 4 5 6 7 8 9; do
  [[ -e broken && $i == 5 && row.5/v =~ $filter ]] && exit 2
  [[ row.$i/v =~ $filter ]] && echo "row.$i/v,$((i % 3)),$((i / 3)),$((10 + i)),0,lanes"
done
exit 0
EOF
chmod +x bench
touch broken
expect 0 "Example" tune run --help
expect 1 "4 of 5 chunks" tune run tuning --benchmark ./bench --chunk 2
expect 14 "7 of 9 rows" tune merge tuning
expect 0 "class" tune merge tuning --partial
rm broken filters
expect 0 "5 of 5 chunks" tune run tuning --benchmark ./bench --chunk 2
[[ $(<filters) == *'row\.5/v|row\.6/v'* && $(wc -l <filters) -eq 1 ]] || failed "tune measured again what was there: $(<filters)"
expect 31 "another chunk size" tune run tuning --benchmark ./bench --chunk 3
expect 0 "+16.74 %" tune merge tuning --out tried.csv
[[ $(wc -l <tried.csv) -eq 10 ]] || failed "tried.csv has $(wc -l <tried.csv) lines"
expect 2 "i/n" tune run tuning --benchmark ./bench --shard 3/2
for shard in 1 2 3; do expect 0 "chunks measured" tune run "shard$shard" --benchmark ./bench --chunk 2 --shard $shard/3 --workers 2; done
expect 0 "class" tune merge shard1 shard2 shard3 --out together.csv
diff <(sort tried.csv) <(sort together.csv) >/dev/null || failed "shards give something else"
expect 2 "required" tune write tuning --op gemm --arch sm90
expect 2 "no column 'arch'" tune write tuning --op gemm --arch sm90 --device x --benchmark x --commit x --out t.hpp
[[ ! -e t.hpp && ! -e t.csv ]] || failed "a refused table was written"
expect 14 "measured twice" tune merge shard1 shard1
"$tilewave" tune merge tuning --json | json tune
expect 1 "cannot list" tune run other --benchmark false
[[ ! -e other ]] || failed "a run that could not begin left a folder"

# --- tune --patience: of config c the third is best, what follows is slower, and its last chunk is left; d is another config
cat >ordered <<'EOF'
#!/bin/bash
filter=.
for argument; do
  case $argument in
    --benchmark_list_tests*) for row in c/{1..7} d/1; do echo $row; done; exit ;;
    --benchmark_filter=*) filter=${argument#*=} ;;
  esac
done
echo "name,batch_size,lanes,us,err,policy_columns"
us=(0 9 8 7 9 9 1 1)
for row in c/{1..7} d/1; do [[ $row =~ $filter ]] && echo "$row,${row%/*},${row#*/},${us[${row#*/}]},$((${row#*/} > 5)),lanes"; done
exit 0
EOF
chmod +x ordered
expect 0 "4 of 4 chunks measured, 1 rows left out" tune run patient --benchmark ./ordered --chunk 3 --patience 3
expect 0 "4 of 4 chunks measured, 1 rows left out" tune run patient --benchmark ./ordered --chunk 3 --patience 3
expect 31 "patience" tune run patient --benchmark ./ordered --chunk 3
expect 0 "lanes=1" tune merge patient --out patient.csv
[[ $(wc -l <patient.csv) -eq 8 ]] || failed "patient.csv has $(wc -l <patient.csv) lines"
expect 2 "no column 'model_us'" tune run other --benchmark ./ordered --chunk 3 --patience 2 --metric model_us
rm -r other

# --- tune --generate and write, on a stand-in for bench_gemm, which its stand-in for cmake copies into the round's folder
mkdir -p lib/bin lib/include/tilewave/ops/gemm/tuned
cat >lib/bench_gemm <<'EOF'
#!/bin/bash
filter=.
tile=64
[[ $0 == *generated-* ]] && tile=32
for argument; do
  case $argument in
    --benchmark_list_tests*) echo "m8/t$tile"; echo "m16/t$tile"; exit ;;
    --benchmark_filter=*) filter=${argument#*=} ;;
  esac
done
echo "name,kind,arch,a_dtype,b_dtype,out_dtype,scale,group,layout,weights,activation,gated,out_scale,group_kind,batch,groups,m,n,k,config_m,config_n,config_k,tile_rows,tile_columns,depth,stages,waves_rows,waves_columns,path,swapped,cluster,splits,most_splits,waves_per_simd,waves_k,stream,us,err,policy_columns"
for m in 8 16; do
  [[ m$m/t$tile =~ $filter ]] && echo "m$m/t$tile,gemm,gfx950,bf16,bf16,bf16,none,0,nt,row_major,none,0,none,one,1,0,$m,4096,512,$m,4096,512,$tile,64,128,4,2,2,direct,0,1,1,16,2,1,0,$tile,0,tile_rows"
done
exit 0
EOF
cat >lib/bin/cmake <<'EOF'
#!/bin/bash
[[ $1 != --build ]] || { mkdir -p "$2/bench" && cp bench_gemm "$2/bench/"; }
EOF
chmod +x lib/bench_gemm lib/bin/cmake
cd lib || exit 1
PATH=$scratch/lib/bin:$PATH
expect 2 "needs --op" tune run tuning --benchmark ./bench_gemm --generate 1
expect 2 "no --shard" tune run sharded --benchmark ./bench_gemm --generate 1 --op gemm --arch gfx950 --shard 1/2
expect 2 "norm" tune run tuning --benchmark ./bench_gemm --generate 1 --op norm --arch gfx950
expect 2 "runs bench_gemm" tune run tuning --benchmark bench_norm --generate 1 --op gemm --arch gfx950
[[ ! -e tuning ]] || failed "a refused run began"
expect 0 "round 1 of generated candidates: 1 of 1" tune run tuning --benchmark ./bench_gemm --generate 1 --op gemm --arch gfx950
grep -q 'add({.rows = 32, .columns = 64' tuning/generated-1/gemm_generated.hpp || failed "no neighbour of half the rows"
before=$(<tuning/generated-1/gemm_generated.hpp)
expect 0 "round 1 of generated candidates: 1 of 1" tune run tuning --benchmark ./bench_gemm --generate 1 --op gemm --arch gfx950
[[ $before == "$(<tuning/generated-1/gemm_generated.hpp)" ]] || failed "a round that was generated is another one when it is resumed"
expect 0 "tile_rows=32" tune merge tuning --out all.csv
[[ $(wc -l <all.csv) -eq 5 ]] || failed "all.csv has $(wc -l <all.csv) lines"
: >include/tilewave/ops/gemm/tuned/tables.hpp
expect 0 "docs/notebook/tuned/gemm_gfx950.csv" tune write tuning --op gemm --arch gfx950 --device x --benchmark y --commit z
grep -q 'tuned_gemm_gfx950' include/tilewave/ops/gemm/tuned/tables.hpp || failed "the library does not look into the table"
grep -q '8, 16, 4096, 512, 1, 0' include/tilewave/ops/gemm/tuned/gfx950.hpp || failed "the table"
cd ..

echo "$failures failures"
exit $((failures > 0))
