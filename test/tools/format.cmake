# SPDX-License-Identifier: MIT
# cmake -D SOURCE=... -D FORMAT=clang-format -P format.cmake
# Every C++ source is as clang-format 14 would write it.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${FORMAT} --version RESULT_VARIABLE result OUTPUT_VARIABLE version ERROR_QUIET)
if(NOT result EQUAL 0 OR NOT version MATCHES "clang-format version 14\\.")
  message(STATUS "skipped: no clang-format 14 here")
  return()
endif()
foreach(folder include bench test docs)
  foreach(suffix hpp cpp hip)
    file(GLOB_RECURSE found RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.${suffix})
    list(APPEND files ${found})
  endforeach()
endforeach()
execute_process(COMMAND ${FORMAT} --dry-run -Werror ${files} WORKING_DIRECTORY ${SOURCE}
                RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  string(REGEX MATCHALL "[^\n]+:[0-9]+:[0-9]+: error[^\n]*" places "${errors}")
  list(JOIN places "\n" places)
  message(FATAL_ERROR "clang-format -i would change:\n${places}")
endif()
