#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# link.sh ROOM CXX INCLUDE SCRATCH COMPILER [FLAG...]: an engine of one file by CXX and one by the device compiler, linked
# and run.
set -euo pipefail
room=$1 cxx=$2 include=$3 scratch=$4 compiler=$5
shift 5
here=$(dirname "$0")
mkdir -p "$scratch"
if [ "$room" = sm90 ]; then
  cuda=$(dirname "$(dirname "$(realpath "$compiler")")")
  host=(-D__HIP_PLATFORM_NVIDIA__=1 -isystem "$cuda/include" -include cuda_runtime_api.h)
  libraries=(-L"$cuda/lib64" -lcudart_static -ldl -lrt -lpthread)
else
  host=(-D__HIP_PLATFORM_AMD__=1 -include hip/hip_runtime_api.h) libraries=(-lamdhip64)
  rocm=${ROCM_PATH:-/opt/rocm}
  if [ -e "$rocm/include/hip" ]; then
    host+=(-isystem "$rocm/include") libraries+=(-L"$rocm/lib" -Wl,-rpath,"$rocm/lib")
  fi
fi
"$cxx" -std=c++20 -Wall -Wextra -Werror "${host[@]}" -I"$include" -c "$here/engine.cpp" -o "$scratch/engine.o"
"$compiler" "$@" -std=c++20 -O1 -DROOM="$room" -DROOM_HEADER="\"tilewave/arch/$room/backend.hpp\"" -I"$include" -c \
  "$here/device.cpp" -o "$scratch/device.o"
"$cxx" "$scratch/engine.o" "$scratch/device.o" -o "$scratch/engine" "${libraries[@]}"
"$scratch/engine"
