# SPDX-License-Identifier: MIT
# The host room links some hundred programs, and lld, which is there for AMD code, takes a fifth of the time of GNU ld. g++ looks
# for a program of the name ld.lld, which Debian has in a folder of LLVM's, hence a link to it.
option(TILEWAVE_USE_LLD "link the host room's programs with the lld of the AMD compiler, where there is one" ON)

if(NOT TILEWAVE_USE_LLD OR NOT TILEWAVE_AMD_CLANG OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
execute_process(COMMAND ${TILEWAVE_AMD_CLANG} -print-prog-name=ld.lld OUTPUT_VARIABLE lld OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT IS_ABSOLUTE "${lld}")
  return()
endif()
set(linker ${CMAKE_BINARY_DIR}/linker)
file(MAKE_DIRECTORY ${linker})
file(CREATE_LINK ${lld} ${linker}/ld.lld SYMBOLIC)
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LINK_OPTIONS -fuse-ld=lld -B${linker})
check_cxx_source_compiles("int main() {}" TILEWAVE_LLD_LINKS)
if(TILEWAVE_LLD_LINKS)
  add_link_options(${CMAKE_REQUIRED_LINK_OPTIONS})
endif()
unset(CMAKE_REQUIRED_LINK_OPTIONS)
