# SPDX-License-Identifier: MIT
# Before project(): finds the compiler of a GPU room, unless the caller or the environment names one.

if(TILEWAVE_ROOM MATCHES "^gfx9(42|50)$")
  if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
    set(rocm "/opt/rocm")
    if(DEFINED ENV{ROCM_PATH})
      set(rocm "$ENV{ROCM_PATH}")
    endif()
    # clang 20 is the first release with gfx950. hipcc is only a wrapper of amdclang++, and the room sets its flags itself.
    find_program(TILEWAVE_HIP_COMPILER NAMES amdclang++ clang++-22 clang++-21 clang++-20
                 HINTS ${rocm}/bin ${rocm}/llvm/bin)
    if(NOT TILEWAVE_HIP_COMPILER)
      message(FATAL_ERROR "room ${TILEWAVE_ROOM} needs ROCm's amdclang++ or clang++ >= 20; none found")
    endif()
    set(CMAKE_CXX_COMPILER ${TILEWAVE_HIP_COMPILER} CACHE FILEPATH "")
  endif()
elseif(TILEWAVE_ROOM STREQUAL "sm90")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(TILEWAVE_NVCC nvcc HINTS ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
    if(NOT TILEWAVE_NVCC)
      message(FATAL_ERROR "room sm90 needs nvcc; none found on PATH or in /usr/local/cuda")
    endif()
    set(CMAKE_CUDA_COMPILER ${TILEWAVE_NVCC} CACHE FILEPATH "")
  endif()
elseif(NOT TILEWAVE_ROOM STREQUAL "host")
  message(FATAL_ERROR "TILEWAVE_ROOM is '${TILEWAVE_ROOM}': expected host, gfx942, gfx950 or sm90")
endif()
