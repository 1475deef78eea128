# SPDX-License-Identifier: MIT
# tilewave_use_room(TARGET): compile all sources of the target for TILEWAVE_ROOM, with that room's compiler and runtime.
# tilewave_compile_quickly(TARGET): sources that take longer to compile than they ever run.

find_package(Threads REQUIRED)
if(TILEWAVE_ROOM STREQUAL "host")
  find_package(Boost CONFIG REQUIRED COMPONENTS context)
else()
  if(TILEWAVE_ROOM STREQUAL "sm90")
    enable_language(CUDA)
  endif()
  tilewave_add_room(${TILEWAVE_ROOM})
endif()

add_library(tilewave_flags INTERFACE)
target_compile_options(tilewave_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Templates of kernels are alive until the file ends: a tenth of the compiler's time goes into looking for those that are not.
  target_compile_options(tilewave_flags INTERFACE
                         "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param=ggc-min-heapsize=1048576 --param=ggc-min-expand=300>")
endif()
target_link_libraries(tilewave_flags INTERFACE Threads::Threads)  # the double-precision reference uses all cores
if(TILEWAVE_SANITIZE)
  target_compile_options(tilewave_flags INTERFACE -fsanitize=${TILEWAVE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(tilewave_flags INTERFACE -fsanitize=${TILEWAVE_SANITIZE})
endif()

# The emulated matrix units and the references have vectors of 32 bytes where the CPU has: what is built here runs here. Without FMA, so
# no product is contracted.
set(tilewave_vectors)
if(TILEWAVE_ROOM STREQUAL "host" AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo has_avx2 REGEX "^flags.* avx2( |$)" LIMIT_COUNT 1)
  if(has_avx2)
    set(tilewave_vectors -mavx2)
  endif()
endif()

# The launch of the emulated device, the same for all kernels: a hundred files would compile it, and one does.
if(TILEWAVE_ROOM STREQUAL "host")
  set(tilewave_launch ${PROJECT_BINARY_DIR}/generated/host_launch.cpp)
  file(CONFIGURE OUTPUT ${tilewave_launch} CONTENT [=[
#include "tilewave/arch/host/launch.hpp"
namespace tilewave::host::detail {
[[gnu::used]] constexpr auto linked_start = &start;
}
]=])
  add_library(tilewave_host_launch STATIC EXCLUDE_FROM_ALL ${tilewave_launch})
  set_target_properties(tilewave_host_launch PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(tilewave_host_launch PUBLIC tilewave::host PRIVATE tilewave_flags)
  target_compile_options(tilewave_host_launch PRIVATE ${tilewave_vectors})
endif()

function(tilewave_use_room target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  if(TARGET tilewave_host_launch)
    target_compile_definitions(${target} PRIVATE TILEWAVE_HOST_LAUNCH_IS_LINKED)
    target_link_libraries(${target} PRIVATE tilewave_host_launch)
  endif()
  target_link_libraries(${target} PRIVATE tilewave::${TILEWAVE_ROOM} tilewave_flags)
  target_compile_options(${target} PRIVATE ${tilewave_vectors})
  if(TILEWAVE_ROOM STREQUAL "sm90")
    get_target_property(sources ${target} SOURCES)
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES OFF)
  endif()
endfunction()

# Thousands of kernels of the host room, and the tests around them, compile in a quarter less time than with -O2 and run a
# tenth slower.
function(tilewave_optimise_less target)
  if(TILEWAVE_ROOM STREQUAL "host" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(${target} PRIVATE -O1 -finline-functions -finline-small-functions)
  endif()
endfunction()

# After tilewave_optimise_less: kernels of rows, whose lanes mostly wait for each other, see ROWS of tilewave_entries().
function(tilewave_optimise_rows target)
  if(TILEWAVE_ROOM STREQUAL "host" AND NOT TILEWAVE_SANITIZE)
    target_compile_options(${target} PRIVATE -Og)
  endif()
endfunction()

# In the host room clang compiles them without optimising, in a third of g++'s time, where it is there for AMD code. Where it is not,
# the build's own compiler does. It stands before the precompiled headers of the target, which are compiled alike.
function(tilewave_compile_quickly target)
  if(NOT TILEWAVE_ROOM STREQUAL "host" OR TILEWAVE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    return()
  endif()
  target_compile_options(${target} PRIVATE -O0)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TILEWAVE_AMD_CLANG)
    set_target_properties(${target} PROPERTIES
                          CXX_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/cmake/as_clang;${TILEWAVE_AMD_CLANG}")
  endif()
endfunction()
