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
tilewave_compile_quickly(test_isa_sim)
# Most of a file's time is headers of Catch2, of JSON and of the simulator.
tilewave_joined(test_isa_sim 7)
target_compile_definitions(test_isa_sim PRIVATE ISA_SIM_KERNELS="${kernels}" ISA_SIM_OBJDUMP="${TILEWAVE_LLVM_OBJDUMP}")
add_dependencies(test_isa_sim isa_sim_kernels)
add_dependencies(tilewave_tests test_isa_sim tilewave-sim)

# The test of the rooms' primitives, compiled for the chips, over the simulated HIP runtime.
include(TilewaveHip)
set(includes $<TARGET_PROPERTY:Catch2::Catch2,INTERFACE_INCLUDE_DIRECTORIES>)
set(flags -x hip ${tilewave_hip_flags_debian} -D__HIP_PLATFORM_AMD__=1 -std=c++20 -O3 -I${PROJECT_SOURCE_DIR}
          -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_BINARY_DIR}/generated
          "$<$<BOOL:${includes}>:-idirafter$<JOIN:${includes},$<SEMICOLON>-idirafter>>")
# joined(NAME parts...), in ${source}: tests, relative to test/ and without _test.cpp, as one: the headers of HIP, of Catch2 and
# of the op are half the time of each.
function(joined name)
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"test/\\1.cpp\"\n" OUTPUT_VARIABLE includes)
  list(JOIN includes "" includes)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "${includes}")
  set(source ${source} PARENT_SCOPE)
endfunction()
joined(room arch/room_test arch/room_mx_test arch/room_numbers_test arch/room_pairs_test arch/room_window_test)
foreach(arch gfx942 gfx950)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/room_${arch}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${TILEWAVE_AMD_CLANG} ${flags} -Xarch_host -O0 --offload-arch=${arch} -DROOM_BACKENDS=${arch}::Backend
            "-DROOM_HEADER=\"tilewave/arch/${arch}/backend.hpp\"" -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling room_${arch}.o" COMMAND_EXPAND_LISTS VERBATIM)
  add_executable(test_isa_sim_room_${arch} ${object})
  set_target_properties(test_isa_sim_room_${arch} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(test_isa_sim_room_${arch} PRIVATE test_main Catch2::Catch2 tilewave_sim_hip)
  add_dependencies(tilewave_tests test_isa_sim_room_${arch})
endforeach()

# Tests of ops over machine code: the same test files, with the entries that a source of this folder names.
# simulate(NAME [FULL] PARTS... KERNELS): test_isa_sim_NAME_<arch>, files relative to test/. Kernels are in the last one alone, of
# which the host's side is only the launches; the parts do not know the chip, and both programs have the same objects. FULL:
# test_isa_sim_NAME_full_<arch> has every policy of the specs (ENTRY_SHARES in pointers_to.hpp), built for the label full. ONLY_FULL:
# there is no other.
set(host_only --offload-host-only -O1 --offload-arch=gfx950)
set(parts_pch ${CMAKE_CURRENT_BINARY_DIR}/parts.pch)  # half of a part's time is headers that all have
add_custom_command(OUTPUT ${parts_pch}
  COMMAND ${TILEWAVE_AMD_CLANG} ${flags} ${host_only} -MD -MF ${parts_pch}.d -MT ${parts_pch} -Xclang -emit-pch
          -fsyntax-only ${PROJECT_SOURCE_DIR}/test/ops/rows.hpp -Xclang -o -Xclang ${parts_pch}
  DEPENDS ${PROJECT_SOURCE_DIR}/test/ops/rows.hpp DEPFILE ${parts_pch}.d COMMENT "Compiling parts.pch"
  COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(isa_sim_parts_pch DEPENDS ${parts_pch})
function(simulate name)
  cmake_parse_arguments(arg "FULL;ONLY_FULL" "" "" ${ARGN})
  set(parts ${arg_UNPARSED_ARGUMENTS})
  list(POP_BACK parts kernels)
  joined(${name}_parts ${parts})
  simulated_object(${source} ${host_only} -Xclang -include-pch -Xclang ${parts_pch} DEPENDS ${parts_pch})
  set(part_objects ${object})
  add_custom_target(isa_sim_${name}_parts DEPENDS ${part_objects})  # else make compiles them for each program
  add_dependencies(isa_sim_${name}_parts isa_sim_parts_pch)
  foreach(arch gfx942 gfx950)
    set(side -Xarch_host -O0 --offload-arch=${arch} -DROOM=${arch})
    if(NOT arg_ONLY_FULL)
      simulated_object(${PROJECT_SOURCE_DIR}/test/${kernels}.cpp ${side} SUFFIX _${arch}
                       "-DCODE_OBJECTS=\"${PROJECT_BINARY_DIR}/code_objects\"")
      simulated_program(${name} ${arch} ${part_objects} ${object})
      # The program loads kernels from code objects. As a target of its own the object is compiled before they are.
      add_custom_target(isa_sim_${name}_${arch}_kernels DEPENDS ${object})
      add_dependencies(test_isa_sim_${name}_${arch} isa_sim_${name}_${arch}_kernels tilewave_slice_code_objects)
      add_dependencies(tilewave_tests test_isa_sim_${name}_${arch})
    endif()
    if(arg_FULL OR arg_ONLY_FULL)
      simulated_object(${PROJECT_SOURCE_DIR}/test/${kernels}.cpp ${side} -DENTRY_SHARES=1 SUFFIX _full_${arch})
      simulated_program(${name} full_${arch} ${part_objects} ${object})
      set_target_properties(test_isa_sim_${name}_full_${arch} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
  endforeach()
endfunction()
function(simulated_object source)  # in ${object}
  cmake_parse_arguments(arg "" "SUFFIX;DEPENDS" "" ${ARGN})
  get_filename_component(part_name ${source} NAME_WE)
  string(APPEND part_name ${arg_SUFFIX})
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${part_name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${TILEWAVE_AMD_CLANG} ${flags} ${arg_UNPARSED_ARGUMENTS} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} ${arg_DEPENDS} DEPFILE ${object}.d COMMENT "Compiling ${part_name}.o" COMMAND_EXPAND_LISTS VERBATIM)
  set(object ${object} PARENT_SCOPE)
endfunction()
function(simulated_program name of)
  set(target test_isa_sim_${name}_${of})
  add_executable(${target} ${ARGN})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PRIVATE test_main Catch2::Catch2 tilewave_sim_hip)
  add_dependencies(${target} isa_sim_${name}_parts)
endfunction()
# The longest come first: the build's last steps are these, and one that ran alone would leave the other cores idle.
simulate(gemm FULL ops/gemm/gemm_test ops/gemm/gathered_test isa_sim/gemm_entries)
simulate(rows FULL
         ops/norm/norm_test ops/norm/norm_mx_test ops/quant/quant_test ops/quant/quant_mx_test ops/sampling/sampling_test
         ops/softmax/softmax_test ops/topk_gating/topk_gating_test ops/moe_sort/moe_sort_test isa_sim/row_entries)
simulate(mla_decode ops/mla_decode/mla_decode_test ops/latent_cache_write/latent_cache_write_test isa_sim/mla_decode_entries)
simulate(flash_attention ops/flash_attention/lds_test isa_sim/flash_attention_entries)
simulate(tiles
         ops/activation/activation_test ops/activation/activation_mx_test ops/embedding/embedding_test
         ops/moe_reduce/moe_reduce_test ops/mqa_logits/mqa_logits_test ops/mqa_logits/mqa_fp4_test isa_sim/tile_entries)
simulate(heads
         ops/rope/rope_test ops/kv_cache_write/kv_cache_write_test ops/kv_cache_write/latent_test isa_sim/head_entries)
simulate(mla_prefill ONLY_FULL ops/mla_prefill/mla_prefill_test isa_sim/mla_prefill_entries)

set(export ${PROJECT_SOURCE_DIR}/bench/harness/bundle.cpp)
if(TARGET bench_paged_attention)
  set(export $<FILTER:$<TARGET_OBJECTS:bench_paged_attention>,INCLUDE,/bundle.cpp>)  # compiled there
endif()
add_executable(isa_sim_entries entries.cpp ${export})
tilewave_quick_test(isa_sim_entries)
tilewave_use_room(isa_sim_entries)
target_include_directories(isa_sim_entries PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(isa_sim_entries PRIVATE tilewave_sim CLI11::CLI11)
add_dependencies(isa_sim_entries tilewave_slice_code_objects)
add_dependencies(tilewave_tests isa_sim_entries)
