# SPDX-License-Identifier: MIT
# cmake -D SOURCE=... -D SCRATCH=... -D PRESET=... -D GENERATOR=... -D TARGETS="bench_X ..." -D CORES=... -P gfx_preset.cmake
# The preset of an AMD room configures, compiles and links; without an AMD GPU its programs say so in one line and exit.
cmake_minimum_required(VERSION 3.25)
separate_arguments(TARGETS)

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}")
  endif()
endfunction()

function(says status pattern)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT result EQUAL status OR NOT output STREQUAL "" OR NOT errors MATCHES "^[^\n]*(${pattern})[^\n]*\n$")
    message(FATAL_ERROR "expected exit ${status} and one line with ${pattern}, got ${result}:\n${output}\n${errors}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --preset ${PRESET} -B ${SCRATCH} -G ${GENERATOR})
run(${CMAKE_COMMAND} --build ${SCRATCH} --parallel ${CORES} --target ${TARGETS})

list(GET TARGETS 0 benchmark)
if(benchmark STREQUAL "bench_pa")
  says(2 "host preset" ${SCRATCH}/bench/bench_pa --export-bundle=${SCRATCH}/bundle)
endif()
if(EXISTS /dev/kfd)
  message(STATUS "an AMD GPU may be here: not checking what happens without one")
else()
  says(2 "GPU|device" ${SCRATCH}/bench/${benchmark} --benchmark_format=csv)
  run(${SCRATCH}/bench/${benchmark} --benchmark_list_tests)  # needs none
  if("tilewave_tests" IN_LIST TARGETS)
    says(77 "GPU|device" ${SCRATCH}/test/test_arch_room)
  endif()
endif()
