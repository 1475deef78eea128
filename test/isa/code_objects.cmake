# SPDX-License-Identifier: MIT
# Builds what test/isa looks at:
#   tilewave_code_objects   code objects in ${objects}, with entries.json: one per kernel, and of row operations one per row_group
#                           specs
#   isa_cases               kernels that the gate must refuse, in ${cases}
set(pa_entry_count 36)  # entries of one architecture; the registry's own counts are asserted by the source
set(pa_feature_count 10)
set(row_group 4)


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

# All sources begin with the room's backend.hpp. It is precompiled: with HIP's and the standard's headers it takes as long as
# the kernel of a small code object.
foreach(arch gfx942 gfx950)
  set(backend ${CMAKE_CURRENT_BINARY_DIR}/backend_${arch}.pch)
  run_clang(${backend} ${PROJECT_SOURCE_DIR}/include/tilewave/arch/${arch}/backend.hpp backend_${arch}.pch ${arch}
            OPTIONS -fsyntax-only -Xclang -emit-pch -Xclang -o -Xclang ${backend})
endforeach()

# compile(OUTPUT SOURCE ARCH options...): appends to ${outputs}
set(outputs)
function(compile output source arch)
  get_filename_component(name ${output} NAME)
  set(backend ${CMAKE_CURRENT_BINARY_DIR}/backend_${arch}.pch)
  run_clang(${output} ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${name} ${arch} DEPENDS ${backend}
            OPTIONS -Xclang -include-pch -Xclang ${backend} ${ARGN} -o ${output})
  set(outputs ${outputs} ${output} PARENT_SCOPE)
endfunction()

math(EXPR last_entry "${pa_entry_count} - 1")
math(EXPR last_feature "${pa_feature_count} - 1")
foreach(arch gfx942 gfx950)
  foreach(index RANGE ${last_entry})
    compile(${objects}/pa_${arch}_${index}.co paged_attention_entry.hip ${arch} -DENTRY=${index} -DENTRY_COUNT=${pa_entry_count})
  endforeach()
  foreach(index RANGE ${last_feature})
    compile(${objects}/pa_feature_${arch}_${index}.co paged_attention_entry.hip ${arch} -DFEATURE=${index} -DFEATURE_COUNT=${pa_feature_count})
  endforeach()
  foreach(index RANGE 8)  # the specs of paged_attention_specs
    compile(${objects}/balanced_combine_${arch}_${index}.co paged_attention_entry.hip ${arch} -DBALANCED=${index})
  endforeach()
  foreach(combine 64.bf16 80.bf16 96.bf16 112.bf16 128.bf16 192.bf16 256.bf16 64.f16 128.f16)
    string(REPLACE "." ";" parts ${combine})
    list(POP_FRONT parts head_size out)
    compile(${objects}/combine_${arch}_h${combine}.co paged_attention_entry.hip ${arch} -DCOMBINE=${head_size} -DOUT=${out})
  endforeach()
endforeach()

# LIST OP NAME: the specs of LIST in include/tilewave/ops/OP/HEADER.hpp, kernel NAME, every entry of every spec
function(compile_row_entries list op name header spec_count)
  math(EXPR last_group "(${spec_count} - 1) / ${row_group}")
  foreach(arch gfx942 gfx950)
    foreach(group RANGE ${last_group})
      math(EXPR first "${group} * ${row_group}")
      compile(${objects}/${list}_${arch}_${group}.co row_entries.hip ${arch}
              -DLIST=${list} -DOP=${op} -DNAME=${name} -DHEADER=${header} -DFIRST=${first} -DCOUNT=${row_group})
    endforeach()
  endforeach()
  set(outputs ${outputs} PARENT_SCOPE)
endfunction()
compile_row_entries(norm norm Norm registry 20)
compile_row_entries(norm_wide norm Norm wide_specs 8)
compile_row_entries(quant quant Quant registry 24)
compile_row_entries(softmax softmax Softmax registry 6)

add_executable(write_isa_entries write_entries.cpp)
tilewave_use_room(write_isa_entries)
target_compile_definitions(write_isa_entries PRIVATE ROW_GROUP=${row_group})
tilewave_unoptimised(write_entries.cpp)
target_link_libraries(write_isa_entries PRIVATE nlohmann_json::nlohmann_json)
add_custom_command(OUTPUT ${objects}/entries.json COMMAND write_isa_entries ${objects}/entries.json
                   DEPENDS write_isa_entries VERBATIM)
add_custom_target(tilewave_code_objects DEPENDS ${outputs} ${objects}/entries.json)

# Kernels that the gate must refuse, and one source with both rooms' kernels compiled for both architectures in one call.
set(outputs)
file(MAKE_DIRECTORY ${cases})
foreach(arch gfx942 gfx950)
  foreach(case Good GoodPersistent NarrowLoads NarrowPersistent Spilling OneWave MuchLds Calling RowsGood
               RowsNarrowLoad RowsNarrowStore RowsEarlyWait RowsExchange RowsThroughLds RowsSecondBarrier)
    # MuchLds misses its own occupancy target, which is the point.
    compile(${cases}/${case}_${arch}.co gate_cases.hip ${arch} -DCASE=${case} -Wno-pass-failed)
  endforeach()
endforeach()
list(REMOVE_ITEM flags --no-gpu-bundle-output)
add_custom_command(OUTPUT ${cases}/fat.hipfb
  COMMAND ${TILEWAVE_AMD_CLANG} ${flags} --offload-arch=gfx942 --offload-arch=gfx950 --no-offload-compress
          ${CMAKE_CURRENT_SOURCE_DIR}/fat_binary.hip -o ${cases}/fat.hipfb
  # clang writes no dependency file for two architectures; these two objects have the same headers.
  DEPENDS fat_binary.hip ${objects}/pa_gfx942_0.co ${objects}/pa_gfx950_0.co COMMENT "Compiling fat.hipfb" VERBATIM)
add_custom_target(isa_cases DEPENDS ${outputs} ${cases}/fat.hipfb)

add_dependencies(isa_cases tilewave_code_objects)
add_custom_target(isa_tests ALL)
add_dependencies(isa_tests tilewave_code_objects isa_cases)
add_dependencies(tilewave_tests isa_tests)
