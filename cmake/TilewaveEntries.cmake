# SPDX-License-Identifier: MIT
# Every entry of the room, one generated source per (architecture, spec) slice, so that the kernels compile in parallel:
#   tilewave_pa_entries    all_paged_attention_entries()
#   tilewave_pa_feature_entries   all_paged_attention_feature_entries()
#   tilewave_pa_native_entries    all_paged_attention_native_entries()
#   tilewave_pa_score_entries     all_paged_attention_score_entries(): tests need them
#   tilewave_pa_wide_entries      all_paged_attention_wide_entries(), built only for the tests labelled full
#   tilewave_row_entries   all_attention_combine_entries(), all_norm_entries(), all_quant_entries(), all_softmax_entries()
#   tilewave_norm_wide_entries    all_norm_entries() of the specs that are not in tilewave_row_entries, for tests labelled full
#   tilewave_memory_entries   all_traffic_entries(), all_vec_add_entries(): every benchmark needs them
# bench/harness/entries.hpp declares what they offer.

set(generated ${PROJECT_BINARY_DIR}/generated)

# tilewave_op_entries(TARGET OP op NAME Name SPECS count [FIRST index] [LAST index] [GROUP specs] [HOST_GROUP specs]
# [REGISTRY header]): the header, by default OP's registry.hpp, has <op>_specs(arch), `count` of them, and <op>_entries<B, S> of
# <Name>Entry; all_<op>_entries() lists them, or those from FIRST to LAST, by architecture and spec. GROUP: specs of one source, since a second and more of each source's time is its headers and
# the host room's scheduler; HOST_GROUP: in the host room, where a kernel of GPU rooms takes too long for it.
function(tilewave_op_entries target)
  cmake_parse_arguments(arg "" "OP;NAME;SPECS;FIRST;LAST;GROUP;HOST_GROUP;REGISTRY" "" ${ARGN})
  set(op ${arg_OP})
  set(registry tilewave/ops/${op}/registry.hpp)
  if(arg_REGISTRY)
    set(registry ${arg_REGISTRY})
  endif()
  set(group 1)
  if(arg_GROUP)
    set(group ${arg_GROUP})
  endif()
  if(arg_HOST_GROUP AND TILEWAVE_ROOM STREQUAL "host")
    set(group ${arg_HOST_GROUP})
  endif()
  set(name ${arg_NAME})
  set(spec_count ${arg_SPECS})  # checked against <op>_specs() by the generated list
  set(first 0)
  if(arg_FIRST)
    set(first ${arg_FIRST})
  endif()
  math(EXPR last "${spec_count} - 1")
  if(arg_LAST)
    set(last ${arg_LAST})
  endif()
  set(slices)
  set(sources)
  set(archs ${TILEWAVE_ROOM})
  if(TILEWAVE_ROOM STREQUAL "host")
    set(archs gfx942 gfx950 sm90)
  endif()
  foreach(arch IN LISTS archs)
    set(header ${arch}/backend.hpp)
    set(backend ${arch}::Backend)
    if(TILEWAVE_ROOM STREQUAL "host")
      set(header host/backend.hpp)
      set(backend "host::Backend<ArchId::${arch}>")
    endif()
    set(functions)
    foreach(index RANGE ${first} ${last})
      set(slice ${op}_entries_${arch}_${index})
      string(APPEND functions "std::span<const ${name}Entry> ${slice}() {\n"
             "  return ${op}_entries<${backend}, ${op}_specs(ArchId::${arch})[${index}]>;\n}\n")
      list(APPEND slices ${slice})
      math(EXPR in_group "(${index} - ${first} + 1) % ${group}")
      if(in_group EQUAL 0 OR index EQUAL last)
        configure_file(${PROJECT_SOURCE_DIR}/cmake/entries_slice.cpp.in ${generated}/${slice}.cpp @ONLY)
        list(APPEND sources ${generated}/${slice}.cpp)
        set(functions)
      endif()
    endforeach()
  endforeach()
  list(JOIN slices "(),\n        " names)  # one text serves as declarators and as calls
  set(all ${generated}/${op}_entries_from_${first}.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/entries.cpp.in ${all} @ONLY)
  target_sources(${target} PRIVATE ${all} ${sources})
endfunction()

add_library(tilewave_pa_entries OBJECT)
tilewave_op_entries(tilewave_pa_entries OP paged_attention NAME PagedAttention SPECS 9 HOST_GROUP 3)
add_library(tilewave_pa_feature_entries OBJECT)
tilewave_op_entries(tilewave_pa_feature_entries OP paged_attention_feature NAME PagedAttention SPECS 10 HOST_GROUP 5
                    REGISTRY tilewave/ops/paged_attention/feature_specs.hpp)
add_library(tilewave_pa_native_entries OBJECT)
tilewave_op_entries(tilewave_pa_native_entries OP paged_attention_native NAME PagedAttention SPECS 2 HOST_GROUP 2
                    REGISTRY tilewave/ops/paged_attention/feature_specs.hpp)
add_library(tilewave_pa_wide_entries OBJECT EXCLUDE_FROM_ALL)  # SPECS: head sizes
tilewave_op_entries(tilewave_pa_wide_entries OP paged_attention_wide NAME PagedAttention SPECS 7
                    REGISTRY tilewave/ops/paged_attention/feature_specs.hpp)
add_library(tilewave_pa_score_entries OBJECT)
tilewave_op_entries(tilewave_pa_score_entries OP paged_attention_score NAME PagedAttention SPECS 4 HOST_GROUP 4
                    REGISTRY tilewave/ops/paged_attention/score_specs.hpp)
add_library(tilewave_row_entries OBJECT)
if(TILEWAVE_ROOM STREQUAL "host" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  # Their two thousand kernels compile in a quarter less time than with -O2 and run a tenth slower.
  target_compile_options(tilewave_row_entries PRIVATE -O1 -finline-functions -finline-small-functions)
endif()
tilewave_op_entries(tilewave_row_entries OP attention_combine NAME AttentionCombine SPECS 7 GROUP 4 HOST_GROUP 7)
tilewave_op_entries(tilewave_row_entries OP norm NAME Norm SPECS 28 LAST 19 GROUP 4 HOST_GROUP 7)
tilewave_op_entries(tilewave_row_entries OP quant NAME Quant SPECS 24 GROUP 4 HOST_GROUP 8)
tilewave_op_entries(tilewave_row_entries OP softmax NAME Softmax SPECS 6 GROUP 2 HOST_GROUP 3)
add_library(tilewave_norm_wide_entries OBJECT EXCLUDE_FROM_ALL)
tilewave_op_entries(tilewave_norm_wide_entries OP norm NAME Norm SPECS 28 FIRST 20 GROUP 4)
add_library(tilewave_memory_entries OBJECT)
tilewave_op_entries(tilewave_memory_entries OP traffic NAME Traffic SPECS 4 GROUP 4 REGISTRY bench/harness/traffic.hpp)
tilewave_op_entries(tilewave_memory_entries OP vec_add NAME VecAdd SPECS 3 GROUP 3)
foreach(target tilewave_pa_entries tilewave_pa_feature_entries tilewave_pa_native_entries tilewave_pa_score_entries
        tilewave_pa_wide_entries tilewave_row_entries tilewave_norm_wide_entries tilewave_memory_entries)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  tilewave_use_room(${target})
endforeach()
