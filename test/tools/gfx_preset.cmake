# SPDX-License-Identifier: MIT
# cmake -D SOURCE=... -D SCRATCH=... -D PRESET=... -D GENERATOR=... -P gfx_preset.cmake
# The preset of an AMD room configures, compiles and links; without an AMD GPU its programs say so in one line and exit.

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}")
  endif()
endfunction()

function(says_so status)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT result EQUAL status OR NOT output STREQUAL "" OR NOT errors MATCHES "^[^\n]*(GPU|device)[^\n]*\n$")
    message(FATAL_ERROR "expected exit ${status} and one line about the missing GPU, got ${result}:\n${output}\n${errors}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --preset ${PRESET} -B ${SCRATCH} -G ${GENERATOR})
run(${CMAKE_COMMAND} --build ${SCRATCH} --target bench_pa test_arch_room)
if(EXISTS /dev/kfd)
  message(STATUS "an AMD GPU may be here: not checking what happens without one")
else()
  says_so(2 ${SCRATCH}/bench/bench_pa --benchmark_format=csv)
  says_so(77 ${SCRATCH}/test/test_arch_room)
endif()
