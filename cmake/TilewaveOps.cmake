# SPDX-License-Identifier: MIT
# TILEWAVE_OPS: the folders of include/tilewave/ops. An op without a test or a benchmark does not configure.

file(GLOB TILEWAVE_OPS CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/tilewave/ops
     ${PROJECT_SOURCE_DIR}/include/tilewave/ops/*/registry.hpp)
list(TRANSFORM TILEWAVE_OPS REPLACE "/registry.hpp" "")
foreach(op IN LISTS TILEWAVE_OPS)
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/ops/${op}/*_test.cpp)
  if(NOT tests)
    message(FATAL_ERROR "include/tilewave/ops/${op} has no test: write test/ops/${op}/*_test.cpp")
  endif()
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/bench/ops/${op}/main.cpp)
    message(FATAL_ERROR "include/tilewave/ops/${op} has no benchmark: write bench/ops/${op}/main.cpp")
  endif()
endforeach()

# The headers are used as they stand in the tree as well, so what tilewave.hpp includes of ops is written there.
list(TRANSFORM TILEWAVE_OPS REPLACE ".+" "#include \"tilewave/ops/\\0/registry.hpp\"\n" OUTPUT_VARIABLE includes)
string(CONCAT includes ${includes})
set(umbrella ${PROJECT_SOURCE_DIR}/include/tilewave/tilewave.hpp)
file(READ ${umbrella} there)
string(REGEX REPLACE "(#include \"tilewave/ops/[^\n]*\n)+" "${includes}" wanted "${there}")
if(PROJECT_IS_TOP_LEVEL AND NOT wanted STREQUAL there)
  message(STATUS "include/tilewave/tilewave.hpp: includes of ops brought up to date")
  file(WRITE ${umbrella} "${wanted}")
endif()
