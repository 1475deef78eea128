#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# link.sh CXX NVCC INCLUDE SCRATCH: one program of two halves, unoptimised, linked in both orders and run.
set -euo pipefail
cxx=$1 nvcc=$2 include=$3 scratch=$4
here=$(dirname "$0") cuda=$(dirname "$(dirname "$(realpath "$nvcc")")")
mkdir -p "$scratch"
"$cxx" -std=c++20 -O0 -I"$include" -c "$here/emulated.cpp" -o "$scratch/emulated.o"
"$nvcc" -std=c++20 -O0 -gencode=arch=compute_90a,code=sm_90a -I"$include" -c "$here/sm90.cu" -o "$scratch/sm90.o"
for halves in "emulated.o sm90.o" "sm90.o emulated.o"; do
  (cd "$scratch" && "$cxx" $halves -o both -L"$cuda/lib64" -lcudart_static -ldl -lrt -lpthread -lboost_context && ./both) ||
    { echo "wrong when linked as $halves"; exit 1; }
done
