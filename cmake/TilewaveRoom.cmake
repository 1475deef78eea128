# SPDX-License-Identifier: MIT
# tilewave_use_room(TARGET): compile all sources of the target for TILEWAVE_ROOM, with that room's compiler and runtime.
# tilewave_unoptimised(sources...): of this folder, in the host room: they take longer to optimise than they ever run.

find_package(Threads REQUIRED)
if(TILEWAVE_ROOM STREQUAL "host")
  find_package(Boost CONFIG REQUIRED COMPONENTS context)
elseif(TILEWAVE_ROOM STREQUAL "sm90")
  enable_language(CUDA)
else()
  include(TilewaveHip)
endif()

add_library(tilewave_flags INTERFACE)
target_compile_options(tilewave_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>)
target_link_libraries(tilewave_flags INTERFACE Threads::Threads)  # the double-precision reference uses all cores
if(TILEWAVE_SANITIZE)
  target_compile_options(tilewave_flags INTERFACE -fsanitize=${TILEWAVE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(tilewave_flags INTERFACE -fsanitize=${TILEWAVE_SANITIZE})
endif()

function(tilewave_use_room target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE tilewave::tilewave tilewave_flags)
  if(TILEWAVE_ROOM STREQUAL "host")
    target_link_libraries(${target} PRIVATE tilewave::host)
  elseif(TILEWAVE_ROOM STREQUAL "sm90")
    get_target_property(sources ${target} SOURCES)
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
    # CMake 3.25 knows neither C++20 for nvcc nor the architecture 90a.
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES OFF)
    target_compile_options(${target} PRIVATE -std=c++20 -gencode=arch=compute_90a,code=sm_90a)
  else()
    tilewave_hip_target(${target} ${TILEWAVE_ROOM})
  endif()
endfunction()

function(tilewave_unoptimised)
  if(TILEWAVE_ROOM STREQUAL "host")
    set_property(SOURCE ${ARGV} APPEND PROPERTY COMPILE_OPTIONS -O0)
  endif()
endfunction()
