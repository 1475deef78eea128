# SPDX-License-Identifier: MIT
# Builds what test/isa looks at:
#   tilewave_slice_code_objects   what gates every change, in ${objects}, with entries.json: one per kernel of paged attention and
#                                 spec of GEMM, of row operations one per some specs (slice.hpp, row_objects.hpp)
#   tilewave_code_objects         with all of paged attention, for bundles
#   tilewave_full_code_objects    with what only tests labelled full look at
#   isa_cases               kernels that the gate must refuse, in ${cases}
set(flags -x hip --cuda-device-only --no-gpu-bundle-output ${tilewave_hip_flags_debian} -std=c++20 -O3 -Wall -Wextra
          -I${PROJECT_SOURCE_DIR}/include)

find_package(nlohmann_json REQUIRED)
file(MAKE_DIRECTORY ${objects})

# run_clang(OUTPUT SOURCE NAME ARCH [DEPENDS files...] OPTIONS options...)
function(run_clang output source name arch)
  set(dependencies ${CMAKE_CURRENT_BINARY_DIR}/${name}.d)
  cmake_parse_arguments(arg "" "" "DEPENDS;OPTIONS" ${ARGN})
  add_custom_command(OUTPUT ${output}
    # -MD -MF would be ignored: with a device link in the same call clang drops them.
    COMMAND ${TILEWAVE_AMD_CLANG} ${flags} --offload-arch=${arch} -DROOM=${arch} ${arg_OPTIONS}
            -Xclang -dependency-file -Xclang ${dependencies} -Xclang -MT -Xclang ${output} ${source}
    DEPENDS ${source} ${arg_DEPENDS} DEPFILE ${dependencies} COMMENT "Compiling ${name}" VERBATIM)
endfunction()

# precompile(NAME headers...): ${precompiled}/NAME_<arch>.pch, with the room's backend.hpp, with which all sources begin. With HIP's and
# the standard's headers it takes as long as the kernel of a small code object; an op of many objects has its headers there, too.
set(precompiled ${CMAKE_CURRENT_BINARY_DIR}/precompiled)
function(precompile name)
  list(TRANSFORM ARGN REPLACE ".+" "#include \"\\0\"\n" OUTPUT_VARIABLE includes)
  list(JOIN includes "" includes)
  foreach(arch gfx942 gfx950)
    set(pch ${precompiled}/${name}_${arch}.pch)
    file(CONFIGURE OUTPUT ${precompiled}/${name}_${arch}.hpp CONTENT "#include \"tilewave/arch/${arch}/backend.hpp\"\n${includes}")
    run_clang(${pch} ${precompiled}/${name}_${arch}.hpp ${name}_${arch}.pch ${arch}
              OPTIONS -fsyntax-only -Xclang -fpch-instantiate-templates -Xclang -emit-pch -Xclang -o -Xclang ${pch})
  endforeach()
endfunction()
precompile(backend)
precompile(paged_attention_entry tilewave/ops/paged_attention/specs/features.hpp tilewave/ops/paged_attention/specs/scores.hpp)
precompile(gemm_entries tilewave/ops/gemm/specs/gated.hpp tilewave/ops/gemm/specs/int4.hpp tilewave/ops/gemm/specs/moe.hpp
           tilewave/ops/gemm/specs/mx.hpp)

# compile(NAME SOURCE ARCH options...): the code object ${folder}/NAME.co, appended to ${outputs}
set(outputs)
function(compile name source arch)
  set(output ${folder}/${name}.co)
  get_filename_component(pch ${source} NAME_WE)
  if(NOT EXISTS ${precompiled}/${pch}_${arch}.hpp)
    set(pch backend)
  endif()
  set(pch ${precompiled}/${pch}_${arch}.pch)
  run_clang(${output} ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${name}.co ${arch} DEPENDS ${pch}
            OPTIONS -Xclang -include-pch -Xclang ${pch} ${ARGN} -o ${output})
  set(outputs ${outputs} ${output} PARENT_SCOPE)
endfunction()
function(compile_full)
  set(outputs ${full_outputs})
  compile(${ARGV})
  set(full_outputs ${outputs} PARENT_SCOPE)
endfunction()

# Row operations are those whose tests have an isa_claims.hpp; list_kernels.cpp tells the code objects of all ops.
set(includes)
set(claims)
set(row_lists)
set(lists_from list_kernels.cpp row_objects.hpp slice.hpp flash_attention_slice.hpp gemm_slice.hpp
    ${PROJECT_SOURCE_DIR}/include/tilewave/ops/paged_attention/registry.hpp
    ${PROJECT_SOURCE_DIR}/include/tilewave/ops/flash_attention/registry.hpp
    ${PROJECT_SOURCE_DIR}/include/tilewave/ops/flash_attention/choice/policies_cdna.hpp
    ${PROJECT_SOURCE_DIR}/include/tilewave/ops/paged_attention/feature_specs.hpp)
foreach(op IN LISTS TILEWAVE_OPS)
  if(EXISTS ${PROJECT_SOURCE_DIR}/test/ops/${op}/isa_claims.hpp)
    string(APPEND claims "#include \"test/ops/${op}/isa_claims.hpp\"\n")
    get_property(lists GLOBAL PROPERTY tilewave_${op}_lists)
    get_property(headers GLOBAL PROPERTY tilewave_${op}_headers)
    get_property(name GLOBAL PROPERTY tilewave_${op}_name)
    foreach(list header IN ZIP_LISTS lists headers)
      string(APPEND includes "#include \"${header}\"\n")
      list(APPEND lists_from ${PROJECT_SOURCE_DIR}/include/${header})
      get_filename_component(header ${header} NAME_WE)
      string(APPEND row_lists " LIST(${list}, ${op}, ${name}, ${header})")
    endforeach()
  endif()
endforeach()
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
file(CONFIGURE OUTPUT ${generated}/isa/row_lists.hpp CONTENT
"#pragma once
${includes}#define ROW_LISTS(LIST)${row_lists}
")
file(CONFIGURE OUTPUT ${generated}/isa/row_claims.hpp CONTENT "#pragma once\n#include \"isa/row_lists.hpp\"\n${claims}")

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lists_from})
set(list_kernels ${CMAKE_CURRENT_BINARY_DIR}/list_kernels)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -I${generated} -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
                        ${CMAKE_CURRENT_SOURCE_DIR}/list_kernels.cpp -o ${list_kernels} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${list_kernels} OUTPUT_FILE ${list_kernels}.cmake COMMAND_ERROR_IS_FATAL ANY)
set(folder ${objects})
include(${list_kernels}.cmake)

add_executable(write_isa_entries write_entries.cpp)
tilewave_use_room(write_isa_entries)
target_include_directories(write_isa_entries PRIVATE ${PROJECT_SOURCE_DIR} ${generated})
target_compile_options(write_isa_entries PRIVATE -O0)  # clang takes longer for its constants
target_link_libraries(write_isa_entries PRIVATE nlohmann_json::nlohmann_json)
add_custom_command(OUTPUT ${objects}/entries.json COMMAND write_isa_entries ${objects}/entries.json
                   DEPENDS write_isa_entries VERBATIM)
add_custom_target(tilewave_slice_code_objects DEPENDS ${outputs} ${objects}/entries.json)
set(decode_outputs ${full_outputs})
list(FILTER decode_outputs INCLUDE REGEX "/(pa|balanced_combine)_")
add_custom_target(tilewave_code_objects DEPENDS ${decode_outputs})
add_custom_target(tilewave_full_code_objects DEPENDS ${full_outputs})
add_dependencies(tilewave_code_objects tilewave_slice_code_objects)
add_dependencies(tilewave_full_code_objects tilewave_code_objects)

# Kernels that the gate must refuse, and one source with both rooms' kernels compiled for both architectures in one call.
set(outputs)
file(MAKE_DIRECTORY ${cases})
set(folder ${cases})
foreach(arch gfx942 gfx950)
  foreach(case Good GoodPersistent NarrowLoads NarrowPersistent Spilling OneWave MuchLds Calling RowsGood
               RowsNarrowLoad RowsNarrowStore RowsEarlyWait RowsExchange RowsThroughLds RowsSecondBarrier)
    # MuchLds misses its own occupancy target, which is the point.
    compile(${case}_${arch} gate_cases.hip ${arch} -DCASE=${case} -Wno-pass-failed)
  endforeach()
endforeach()
list(REMOVE_ITEM flags --no-gpu-bundle-output)
add_custom_command(OUTPUT ${cases}/fat.hipfb
  COMMAND ${TILEWAVE_AMD_CLANG} ${flags} --offload-arch=gfx942 --offload-arch=gfx950 --no-offload-compress
          ${CMAKE_CURRENT_SOURCE_DIR}/fat_binary.hip -o ${cases}/fat.hipfb
  # clang writes no dependency file for two architectures; these two objects have the same headers.
  DEPENDS fat_binary.hip ${objects}/pa_gfx942_1.co ${objects}/pa_gfx950_0.co COMMENT "Compiling fat.hipfb" VERBATIM)
add_custom_target(isa_cases DEPENDS ${outputs} ${cases}/fat.hipfb)

add_dependencies(isa_cases tilewave_slice_code_objects)
add_custom_target(isa_tests ALL)
add_dependencies(isa_tests tilewave_slice_code_objects isa_cases)
add_dependencies(tilewave_tests isa_tests)
