#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: amd_clang.sh SCRATCH CLANG OBJDUMP
# The two commands of the README in their order, on a machine with nothing but an old clang++ until the second installs CLANG
# and OBJDUMP; then with a clang that no longer works. A copy of the tree is configured, nothing is built.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$1 clang=$2 objdump=$3
failures=0
unset TILEWAVE_REQUIRE_ISA

rm -rf "$scratch"
mkdir -p "$scratch/bin" "$scratch/tree"
for part in CMakeLists.txt CMakePresets.json LICENSE README.md bench cmake docs include test tools; do
  cp -r "$root/$part" "$scratch/tree"
done
old_clang() {  # old_clang NAME
  rm -f "$scratch/bin/$1"
  printf '#!/bin/sh\n[ "$1" = --version ] && echo "clang version 14.0.6" && exit\necho "invalid target ID gfx950" >&2\nexit 1\n' \
    >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
stand_in() {  # stand_in NAME: a script from stdin
  cat >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
old_clang clang++
stand_in apt-get <<EOF
#!/bin/sh
case "\$*" in *install*clang-22*)
  ln -sf $clang $scratch/bin/clang++-22
  ln -sf $objdump $scratch/bin/llvm-objdump-22 ;;
esac
EOF
stand_in dpkg-query <<EOF
#!/bin/sh
case "\$*" in *clang*|*lld*|*llvm*|*amdhip*) [ -e $scratch/bin/clang++-22 ] || exit 1 ;; esac
printf "install ok installed"
EOF
# CMake sees the programs of ${scratch}/bin alone, and only configures.
tools=(ar g++ gcc ld make nm ninja objcopy objdump python3 ranlib strip)
for tool in "${tools[@]}"; do
  if path=$(command -v "$tool"); then ln -s "$path" "$scratch/bin/$tool"; fi
done
hidden=$(IFS=:; for folder in $PATH /opt/rocm/llvm/bin "$(dirname "$clang")"; do printf '%s;' "$folder"; done)
stand_in cmake <<EOF
#!/bin/sh
case "\$1" in
  --build) ;;
  *) exec $(command -v cmake) "\$@" "-DCMAKE_IGNORE_PATH=$hidden" ;;
esac
EOF
stand_in sudo <<<$'#!/bin/sh\nexec "$@"'
export PATH=$scratch/bin:$PATH CXX=$scratch/bin/g++

expect() {  # expect STATUS PATTERN ARGUMENT...: of quickstart, its exit status and what its last lines say
  local status said
  said=$("$scratch/tree/tools/quickstart" --arch host "${@:3}" 2>&1 >/dev/null </dev/null)
  status=$?
  if [[ $status -ne $1 || $said != *$2* ]]; then
    printf 'FAILED: quickstart %s: expected exit %s and "%s", got %s:\n%s\n' "${*:3}" "$1" "$2" "$status" "$said"
    failures=$((failures + 1))
  fi
}

# Nothing is built, so the benchmark is not there to be run: 126 or 127.
expect 127 "gates: left out, no clang" bench_pa --benchmark_format=csv
expect 0 "gates: $scratch/bin/clang++-22" test -N
old_clang clang++-22
expect 0 "not run: isa, 1 test, skipped: no clang" --no-install test -R "every kernel holds the gate"
TILEWAVE_REQUIRE_ISA=1 expect 2 "CMake Error" --no-install test -N
echo "$failures failures"
exit $((failures > 0))
