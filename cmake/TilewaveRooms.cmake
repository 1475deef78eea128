# SPDX-License-Identifier: MIT
# tilewave_add_room(ROOM): the target tilewave::sm90, tilewave::gfx942, ..., with what its compiler needs. In the
# tree and in the installed package; tilewave::host needs no compiler of its own and is exported.
#
# sm90: sources of language CUDA, in a target with CUDA_ARCHITECTURES OFF, since no other architecture may be compiled beside it.
# AMD rooms: sources of language CXX, with ROCm's amdclang++ or clang++ >= 20 as their compiler.
include(${CMAKE_CURRENT_LIST_DIR}/TilewaveHip.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/TilewaveRoomNames.cmake)

function(tilewave_add_room room)
  if(TARGET tilewave::${room})
    return()
  endif()
  add_library(tilewave::${room} INTERFACE IMPORTED GLOBAL)
  if(room STREQUAL "sm90")
    # Flags, because CMake 3.25 knows neither C++20 for nvcc nor the architecture 90a.
    target_compile_options(tilewave::sm90 INTERFACE
                           "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-gencode=arch=compute_90a,code=sm_90a>")
  else()
    tilewave_find_hip()
    target_compile_options(tilewave::${room} INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-x hip --offload-arch=${room}>")
    target_link_libraries(tilewave::${room} INTERFACE tilewave_hip_runtime)
  endif()
  target_link_libraries(tilewave::${room} INTERFACE tilewave::tilewave)
endfunction()
