# SPDX-License-Identifier: MIT
# Builds the tests of isa_sim; ${cases}: the sources of test_isa_sim.
if(NOT TARGET tilewave_sim_hip)
  message(FATAL_ERROR "clang for AMD is here, but what tools/sim needs is not")
endif()
find_package(CLI11 REQUIRED)

# Toy kernels: no headers and no device library, so any clang that knows the chips compiles them.
set(kernels ${CMAKE_CURRENT_BINARY_DIR}/kernels)
file(MAKE_DIRECTORY ${kernels})
set(flags -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -std=c++20 -O3 -ffp-contract=off
          -Wall -Wextra)
set(outputs)
function(compile_kernels output source)
  add_custom_command(OUTPUT ${kernels}/${output}
    COMMAND ${TILEWAVE_AMD_CLANG} ${flags} ${ARGN} ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${source} -o ${kernels}/${output}
    DEPENDS kernels/${source} kernels/arithmetic.hpp COMMENT "Compiling ${output}" VERBATIM)
  set(outputs ${outputs} ${kernels}/${output} PARENT_SCOPE)
endfunction()
file(GLOB sources CONFIGURE_DEPENDS kernels/*.hip)
foreach(arch gfx942 gfx950)
  compile_kernels(toys_flush_${arch}.co toys.hip --offload-arch=${arch} -fgpu-flush-denormals-to-zero)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    compile_kernels(${name}_${arch}.co ${name}.hip --offload-arch=${arch})
  endforeach()
endforeach()
add_custom_command(OUTPUT ${kernels}/toys.hipfb
  COMMAND ${TILEWAVE_AMD_CLANG} -x hip --cuda-device-only --gpu-bundle-output -nogpuinc -nogpulib -std=c++20 -O1
          --offload-arch=gfx942 --offload-arch=gfx950 ${CMAKE_CURRENT_SOURCE_DIR}/kernels/toys.hip -o ${kernels}/toys.hipfb
  DEPENDS kernels/toys.hip kernels/arithmetic.hpp COMMENT "Compiling toys.hipfb" VERBATIM)
list(APPEND outputs ${kernels}/toys.hipfb)
add_custom_target(isa_sim_kernels DEPENDS ${outputs})

add_executable(test_isa_sim ${cases})
target_include_directories(test_isa_sim PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(test_isa_sim PRIVATE test_main Catch2::Catch2 tilewave_sim)
tilewave_use_room(test_isa_sim)
target_compile_options(test_isa_sim PRIVATE -ffp-contract=off)
target_compile_definitions(test_isa_sim PRIVATE ISA_SIM_KERNELS="${kernels}" ISA_SIM_OBJDUMP="${TILEWAVE_LLVM_OBJDUMP}")
add_dependencies(test_isa_sim isa_sim_kernels)
add_dependencies(tilewave_tests test_isa_sim tilewave-sim)

# The test of the rooms' primitives, compiled for the chips, over the simulated HIP runtime.
include(TilewaveHip)
set(includes $<TARGET_PROPERTY:Catch2::Catch2,INTERFACE_INCLUDE_DIRECTORIES>)
set(flags -x hip ${tilewave_hip_flags_debian} -D__HIP_PLATFORM_AMD__=1 -std=c++20 -O3 -I${PROJECT_SOURCE_DIR}
          -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_BINARY_DIR}/generated
          "$<$<BOOL:${includes}>:-idirafter$<JOIN:${includes},$<SEMICOLON>-idirafter>>")
foreach(arch gfx942 gfx950)
  set(objects)
  foreach(part room room_mx room_numbers room_window)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${part}_${arch}.o)
    list(APPEND objects ${object})
    add_custom_command(OUTPUT ${object}
      COMMAND ${TILEWAVE_AMD_CLANG} ${flags} --offload-arch=${arch} -DROOM_BACKENDS=${arch}::Backend
              "-DROOM_HEADER=\"tilewave/arch/${arch}/backend.hpp\"" -MD -MF ${object}.d -MT ${object}
              -c ${PROJECT_SOURCE_DIR}/test/arch/${part}_test.cpp -o ${object}
      DEPENDS ${PROJECT_SOURCE_DIR}/test/arch/${part}_test.cpp DEPFILE ${object}.d
      COMMENT "Compiling ${part}_${arch}.o" COMMAND_EXPAND_LISTS VERBATIM)
  endforeach()
  add_executable(test_isa_sim_room_${arch} ${objects})
  set_target_properties(test_isa_sim_room_${arch} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(test_isa_sim_room_${arch} PRIVATE test_main Catch2::Catch2 tilewave_sim_hip)
  add_dependencies(tilewave_tests test_isa_sim_room_${arch})
endforeach()

# Tests of ops over machine code: the same test files, with the entries that a source of this folder names.
# simulate(NAME PARTS...): test_isa_sim_NAME_<arch>, PARTS relative to test/. Kernels are in the part of this folder alone,
# of which the host's side is only the launches.
function(simulate name)
  foreach(arch gfx942 gfx950)
    set(objects)
    foreach(part IN LISTS ARGN)
      simulated_part(${part})
    endforeach()
    simulated_program(${name}_${arch})
    add_dependencies(tilewave_tests test_isa_sim_${name}_${arch})
  endforeach()
endfunction()
# simulate_full(NAME DEFINITION PARTS...): test_isa_sim_NAME_full_<arch>, built for the label full; the last part with DEFINITION
function(simulate_full name definition)
  foreach(arch gfx942 gfx950)
    set(objects)
    list(POP_BACK ARGN last)
    foreach(part IN LISTS ARGN)
      simulated_part(${part})
    endforeach()
    simulated_part(${last} ${definition})
    simulated_program(${name}_full_${arch})
    set_target_properties(test_isa_sim_${name}_full_${arch} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endforeach()
endfunction()
macro(simulated_part part)
  get_filename_component(part_name ${part} NAME)
  set(source ${PROJECT_SOURCE_DIR}/test/${part}.cpp)
  set(side --offload-host-only -O1)
  if(${part} MATCHES "^isa_sim/")
    set(side -Xarch_host -O1)
  endif()
  set(suffix "${ARGN}")
  string(MAKE_C_IDENTIFIER "${part_name}${suffix}_${arch}" object)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${object}.o)
  list(APPEND objects ${object})
  add_custom_command(OUTPUT ${object}
    COMMAND ${TILEWAVE_AMD_CLANG} ${flags} ${side} ${ARGN} --offload-arch=${arch} -DROOM=${arch} -MD -MF ${object}.d -MT ${object}
            -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling ${part_name}_${arch}.o" COMMAND_EXPAND_LISTS VERBATIM)
endmacro()
macro(simulated_program program)
  add_executable(test_isa_sim_${program} ${objects})
  set_target_properties(test_isa_sim_${program} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(test_isa_sim_${program} PRIVATE test_main Catch2::Catch2 tilewave_sim_hip)
endmacro()
set(rows ops/norm/norm_test ops/norm/norm_mx_test ops/quant/quant_test ops/quant/quant_mx_test ops/sampling/sampling_test
         ops/softmax/softmax_test ops/topk_gating/topk_gating_test ops/moe_sort/moe_sort_test isa_sim/row_entries)
simulate(rows ${rows})
simulate_full(rows -DENTRY_SHARES=1 ${rows})
simulate(heads ops/rope/rope_test ops/kv_cache_write/kv_cache_write_test ops/kv_cache_write/latent_test
         isa_sim/head_entries)
simulate(tiles ops/activation/activation_test ops/activation/activation_mx_test ops/embedding/embedding_test
         ops/moe_reduce/moe_reduce_test ops/mqa_logits/mqa_logits_test ops/mqa_logits/mqa_fp4_test
         isa_sim/tile_entries)
simulate(gemm ops/gemm/gemm_test isa_sim/gemm_entries)

set(export ${PROJECT_SOURCE_DIR}/bench/harness/bundle.cpp)
if(TARGET bench_paged_attention)
  set(export $<FILTER:$<TARGET_OBJECTS:bench_paged_attention>,INCLUDE,/bundle.cpp>)  # compiled there
endif()
add_executable(isa_sim_entries entries.cpp ${export})
tilewave_use_room(isa_sim_entries)
target_include_directories(isa_sim_entries PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(isa_sim_entries PRIVATE tilewave_sim CLI11::CLI11)
add_dependencies(isa_sim_entries tilewave_code_objects)
add_dependencies(tilewave_tests isa_sim_entries)
