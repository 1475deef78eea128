#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# installed.sh CMAKE BUILD SOURCE SCRATCH PYTHON TESTS: installs BUILD, builds the engine on it, and serves with it.
set -euo pipefail
cmake=$1 build=$2 source=$3 scratch=$4 python=$5 tests=$6
rm -rf "$scratch"
"$cmake" --install "$build" --prefix "$scratch/prefix" > /dev/null
"$cmake" -S "$source" -B "$scratch/build" -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH="$scratch/prefix"
"$cmake" --build "$scratch/build" --parallel 2
exec "$python" "$tests/serve_test.py" "$scratch/build/engine" "$tests/models"
