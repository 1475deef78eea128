# SPDX-License-Identifier: MIT
# The tools that compile and read AMD code beside the host room, where tests want that:
#   TILEWAVE_AMD_CLANG      a clang++ that compiles and links HIP for gfx942 and gfx950; LLVM 20 is the first. Or empty.
#   TILEWAVE_LLVM_OBJDUMP   llvm-objdump 20 or newer, or empty
# Both may be given. What is not is looked for at each configure: something better may have been installed, what was found may
# be gone. A program that is too old is no find.
include(TilewaveHip)  # the flags that Debian's HIP headers need; newer ones take them too

set(TILEWAVE_AMD_CLANG "" CACHE FILEPATH "clang++ for AMD code objects; empty: the newest that works")
set(TILEWAVE_LLVM_OBJDUMP "" CACHE FILEPATH "llvm-objdump for AMD code objects; empty: the newest")
option(TILEWAVE_REQUIRE_ISA "stop where the checks of compiled AMD code cannot run" OFF)

# A program with code for both chips needs all of it: headers, lld, clang-offload-bundler.
function(tilewave_compiles_amd works clang)
  execute_process(COMMAND ${clang} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "[^\n]*" version "${clang} ${version}")
  if(TILEWAVE_AMD_CLANG_WORKS STREQUAL version)
    return()
  endif()
  set(probe ${CMAKE_BINARY_DIR}/amd_probe)
  file(WRITE ${probe}.hip "#include <hip/hip_runtime.h>\n__global__ void probe() {}\n")
  execute_process(COMMAND ${clang} -x hip ${tilewave_hip_flags_debian} -D__HIP_PLATFORM_AMD__=1 -std=c++20 -O3
                          --offload-arch=gfx942 --offload-arch=gfx950 -c ${probe}.hip -o ${probe}.o
                  RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE errors)
  if(result EQUAL 0)
    set(TILEWAVE_AMD_CLANG_WORKS ${version} CACHE INTERNAL "the clang and version that was seen to work")
  else()
    file(APPEND ${probe}.log "${version}\n${errors}\n")
    set(${works} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(tilewave_reads_amd works objdump)
  execute_process(COMMAND ${objdump} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "LLVM version ([0-9]+)" version "${version}")
  if(NOT CMAKE_MATCH_1 GREATER_EQUAL 20)
    set(${works} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(tilewave_find_amd variable validator)
  set(found ${${variable}})
  set(works TRUE)
  if(found)
    cmake_language(CALL ${validator} works ${found})
  else()
    unset(found)
    find_program(found NAMES ${ARGN} HINTS $ENV{ROCM_PATH}/llvm/bin /opt/rocm/llvm/bin VALIDATOR ${validator} NO_CACHE)
  endif()
  if(NOT found OR NOT works)
    set(found "")
  endif()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

file(REMOVE ${CMAKE_BINARY_DIR}/amd_probe.log)
tilewave_find_amd(TILEWAVE_AMD_CLANG tilewave_compiles_amd clang++-22 clang++-21 clang++-20 amdclang++ clang++)
tilewave_find_amd(TILEWAVE_LLVM_OBJDUMP tilewave_reads_amd llvm-objdump-22 llvm-objdump-21 llvm-objdump-20 llvm-objdump)
if(TILEWAVE_AMD_CLANG)
  message(STATUS "AMD code objects and their gates: ${TILEWAVE_AMD_CLANG}")
else()
  set(severity STATUS)
  if(TILEWAVE_REQUIRE_ISA OR NOT "$ENV{TILEWAVE_REQUIRE_ISA}" STREQUAL "")
    set(severity FATAL_ERROR)
  endif()
  message(${severity} "AMD code objects and their gates: left out, no clang that compiles HIP for gfx950 was found "
    "(Debian: clang-22 clang-tools-22 lld-22 llvm-22 libamdhip64-dev); see ${CMAKE_BINARY_DIR}/amd_probe.log")
endif()
