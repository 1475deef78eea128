# SPDX-License-Identifier: MIT
# An op without a test or a benchmark does not configure.

file(GLOB ops CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/tilewave/ops ${PROJECT_SOURCE_DIR}/include/tilewave/ops/*)
file(STRINGS ${PROJECT_SOURCE_DIR}/bench/CMakeLists.txt benches REGEX "^tilewave_bench\\(")
foreach(op IN LISTS ops)
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/ops/${op}/*_test.cpp)
  if(NOT tests)
    message(FATAL_ERROR "include/tilewave/ops/${op} has no test: write test/ops/${op}/*_test.cpp")
  endif()
  if(NOT benches MATCHES " OP ${op}[ )]")
    message(FATAL_ERROR "include/tilewave/ops/${op} has no benchmark: add tilewave_bench(bench_... OP ${op} ...)")
  endif()
endforeach()
