# SPDX-License-Identifier: MIT
# cmake -D BUILD=... -D SOURCE=... -D SCRATCH=... -D GENERATOR=... -D VERSION=... [-D "OPTIONS=-D..."] -P install.cmake
# Installs BUILD into a fresh prefix, then builds and runs the project SOURCE against that prefix alone.
cmake_minimum_required(VERSION 3.25)
separate_arguments(OPTIONS)
cmake_path(GET SOURCE FILENAME program)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
if(OPTIONS)
  set(type -D CMAKE_BUILD_TYPE=Release)
endif()  # Without, it is the command that the example says. What the emulated device computes does not depend on that.
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH}/build -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix ${type} ${OPTIONS})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/${program})
if(OPTIONS)
  return()  # the rest is the same for all
endif()

# The page that README links to is where it says, and nothing but headers is among the headers.
if(NOT EXISTS ${SCRATCH}/prefix/share/doc/tilewave/README.md OR NOT EXISTS ${SCRATCH}/prefix/share/doc/tilewave/docs/reference/design.md)
  message(FATAL_ERROR "the documentation is not installed")
endif()
# The command runs from there.
if(EXISTS ${BUILD}/tools/tilewave/tilewave)
  run(${SCRATCH}/prefix/bin/tilewave --version)
endif()
file(GLOB_RECURSE others ${SCRATCH}/prefix/include/*)
list(FILTER others EXCLUDE REGEX "\\.hpp$")
if(others)
  message(FATAL_ERROR "not a header: ${others}")
endif()

# The prefix works when it is moved, and another minor version is refused.
file(RENAME ${SCRATCH}/prefix ${SCRATCH}/moved)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH}/build-moved -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${SCRATCH}/moved)
file(WRITE ${SCRATCH}/newer/CMakeLists.txt
     "cmake_minimum_required(VERSION 3.25)\nproject(newer LANGUAGES CXX)\nfind_package(tilewave 999.0 REQUIRED)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SCRATCH}/newer -B ${SCRATCH}/build-newer -G ${GENERATOR}
                        -D CMAKE_PREFIX_PATH=${SCRATCH}/moved
                RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE errors)
if(result EQUAL 0 OR NOT errors MATCHES "version: ${VERSION}")
  message(FATAL_ERROR "version 999.0 should have been refused, naming ${VERSION}: ${errors}")
endif()
