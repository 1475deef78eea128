# SPDX-License-Identifier: MIT
# tilewave_find_hip(): the target tilewave_hip_runtime, for C++ sources that clang compiles as HIP (-x hip).
#
# LANGUAGE HIP is not used: it needs hip-lang-config.cmake where only ROCm puts it, and Debian 12 has it elsewhere.
# Two HIPs work: ROCm 6 or newer through find_package(hip), and Debian 12's libamdhip64-dev 5.2.3 with clang 22, whose
# own hip-config.cmake stops when hipcc is not installed. Debian's headers predate clang 22: they expect the macro
# __AMDGCN_WAVEFRONT_SIZE, which it no longer defines, and device libraries in an older format, hence -nogpulib.

set(tilewave_hip_flags_debian -nogpulib -D__AMDGCN_WAVEFRONT_SIZE=64)

function(tilewave_find_hip)
  if(TARGET tilewave_hip_runtime)
    return()
  endif()
  find_path(TILEWAVE_HIP_INCLUDE hip/hip_version.h HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES include)
  if(NOT TILEWAVE_HIP_INCLUDE)
    message(FATAL_ERROR "a gfx room needs ROCm >= 6 or the package libamdhip64-dev; neither found")
  endif()
  file(STRINGS ${TILEWAVE_HIP_INCLUDE}/hip/hip_version.h major REGEX "^#define HIP_VERSION_MAJOR ")
  string(REGEX REPLACE ".* " "" major "${major}")

  add_library(tilewave_hip_runtime INTERFACE IMPORTED GLOBAL)
  if(major GREATER_EQUAL 6)
    cmake_path(GET TILEWAVE_HIP_INCLUDE PARENT_PATH rocm)
    find_package(hip CONFIG REQUIRED HINTS ${rocm})
    target_compile_options(tilewave_hip_runtime INTERFACE --rocm-path=${rocm})
    target_link_libraries(tilewave_hip_runtime INTERFACE hip::host)
  else()
    find_library(TILEWAVE_HIP_LIBRARY amdhip64 REQUIRED)
    target_compile_definitions(tilewave_hip_runtime INTERFACE __HIP_PLATFORM_AMD__=1)
    target_compile_options(tilewave_hip_runtime INTERFACE ${tilewave_hip_flags_debian})
    target_link_libraries(tilewave_hip_runtime INTERFACE ${TILEWAVE_HIP_LIBRARY})
  endif()
endfunction()
