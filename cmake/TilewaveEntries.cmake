# SPDX-License-Identifier: MIT
# The entries of every op, in one object library for each list of specs: a program compiles what it runs and nothing else.
#
# A list L of an op is, in a header of its folder, an array `L_specs(arch)` and for each of these an array `L_entries<B, S>` of
# <Op>Entry. The library tilewave_L_entries holds those of the room, and the generated header entries/<op>.hpp declares for
# every list of the op
#   std::span<const <Op>Entry* const> all_L_entries();   // by architecture, then spec, then as the op lists them
# An op has the list of its own name, in registry.hpp. Where there is more to say, the op's folder has an entries.cmake with a
# line `tilewave_entries(...)` for each list.

# TILEWAVE_FOCUS=LIST[/ARCH[/SPEC]]: of all lists that one alone has entries, those of the architecture and of the spec with that
# number, from 0; `all/ARCH`: of all lists those of one architecture. A benchmark is then built in seconds: what an optimiser does round after round. Tests need all entries.

set(TILEWAVE_FOCUS "" CACHE STRING "entries of one list alone, LIST[/ARCH[/SPEC]]: for optimisers, whose benchmarks build in seconds")
if(TILEWAVE_FOCUS AND TILEWAVE_BUILD_TESTS)
  message(FATAL_ERROR "TILEWAVE_FOCUS=${TILEWAVE_FOCUS} leaves out what tests need: add -D TILEWAVE_BUILD_TESTS=OFF")
endif()
string(REPLACE "/" ";" focus "${TILEWAVE_FOCUS};;")
list(GET focus 0 focus_list)
list(GET focus 1 focus_arch)
list(GET focus 2 focus_spec)

# TILEWAVE_GENERATED_ENTRIES=FOLDER: a list OP_generated of candidates that nobody wrote into the library, from the header
# FOLDER/OP_generated.hpp: for `tilewave tune run --generate`, and bench/ladder. The op's benchmark has it beside its other lists.
set(TILEWAVE_GENERATED_ENTRIES "" CACHE PATH "folder of OP_generated.hpp, candidates that a tuner made")

set(generated ${PROJECT_BINARY_DIR}/generated)

# The emulated device takes seconds to read, in a hundred files: it is precompiled, once for each way to optimise.
if(TILEWAVE_ROOM STREQUAL "host")
  file(CONFIGURE OUTPUT ${generated}/precompiled.cpp CONTENT "")
  foreach(target tilewave_precompiled tilewave_precompiled_rows tilewave_precompiled_quick)
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${generated}/precompiled.cpp)
    tilewave_use_room(${target})
    if(target MATCHES "quick$")
      tilewave_compile_quickly(${target})
    else()
      tilewave_optimise_less(${target})
    endif()
    if(target MATCHES "rows$")
      tilewave_optimise_rows(${target})
    endif()
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include/tilewave/arch/host/backend.hpp)
  endforeach()
endif()

# tilewave_entries(LIST [HEADER file] [SOURCES count] [POLICY_SOURCES count] [HOST_SOURCES count | TOGETHER] [ROWS] [TESTS])
# HEADER: by default registry.hpp. SOURCES: among how many files an architecture's specs are divided, that they compile in
# parallel: one takes the least time in all. POLICY_SOURCES: among how many files the policies of one spec are divided, where
# there is a file for each spec and L_entries takes one more argument, an EntryPart (GPU rooms alone, whose
# kernels take seconds each). HOST_SOURCES: the same as SOURCES in the host room, whose kernels take less, and whose
# headers more; without it files are compiled in threes there. TOGETHER: in the host room all chips' entries are one file: each file more
# takes a second for the emulated device, which it compiles anew. ROWS: kernels of rows, whose lanes mostly wait for each other, and latent decode, whose
# products are the emulated device's: -Og compiles them for the host room in a third less time, and they run nearly as fast (GEMM takes twice the
# time, decode a third more). TESTS: only tests run these entries, the op's benchmark does not.
macro(tilewave_entries list)
  cmake_parse_arguments(arg "ROWS;TESTS;TOGETHER" "HEADER;SOURCES;POLICY_SOURCES;HOST_SOURCES" "" ${ARGN})
  tilewave_entry_list(${list})
endmacro()

function(tilewave_entry_list list)  # of the op of tilewave_op_entries, by the arguments above
  set(header registry.hpp)
  if(arg_HEADER)
    set(header ${arg_HEADER})
  endif()
  if(NOT IS_ABSOLUTE ${header})
    set(header ${folder}/${header})
  endif()
  set(parts 1)
  if(arg_SOURCES)
    set(parts ${arg_SOURCES})
  endif()
  set(archs ${TILEWAVE_ROOM})
  if(TILEWAVE_ROOM STREQUAL "host")
    set(archs ${tilewave_chip_rooms})
    if(arg_HOST_SOURCES)
      set(parts ${arg_HOST_SOURCES})
    elseif(arg_TOGETHER)
      set(parts 1)
    endif()
  endif()
  if(focus_list AND NOT focus_list STREQUAL "all" AND NOT focus_list STREQUAL list AND NOT list STREQUAL "traffic")
    set(archs)
  elseif(focus_arch)
    set(archs ${focus_arch})
  endif()
  if(focus_list STREQUAL list AND NOT focus_spec STREQUAL "")
    set(parts 1)
  endif()
  set(policy_parts 1)
  if(arg_POLICY_SOURCES AND NOT TILEWAVE_ROOM STREQUAL "host")
    set(policy_parts ${arg_POLICY_SOURCES})
  endif()
  math(EXPR last "${parts} * ${policy_parts} - 1")
  set(calls)
  set(declarations)
  foreach(arch IN LISTS archs)
    foreach(part RANGE ${last})
      string(APPEND calls "\n    add_${list}_${arch}_${part}(entries);")
      string(APPEND declarations "void add_${list}_${arch}_${part}(Entries&);\n")
    endforeach()
  endforeach()
  # The function that has them all stands in the first file: one of its own would mostly read the op's headers.
  file(READ ${PROJECT_SOURCE_DIR}/cmake/entries.cpp.in all_entries)
  string(CONFIGURE "${all_entries}" all_entries @ONLY)
  set(sources)
  foreach(arch IN LISTS archs)
    set(room ${TILEWAVE_ROOM})
    set(backend ${arch}::Backend)
    if(room STREQUAL "host")
      set(backend "host::Backend<ArchId::${arch}>")
    endif()
    foreach(part RANGE ${last})
      set(function add_${list}_${arch}_${part})
      math(EXPR spec_part "${part} / ${policy_parts}")
      math(EXPR policy_part "${part} % ${policy_parts}")
      set(first "count * ${spec_part} / ${parts}")
      set(end "count * (${spec_part} + 1) / ${parts}")
      set(of_policies)
      if(policy_parts GREATER 1)
        set(of_policies ", EntryPart{${policy_part}, ${policy_parts}}")
      endif()
      if(focus_list STREQUAL list AND NOT focus_spec STREQUAL "")
        set(first ${focus_spec})
        set(end "${focus_spec} + 1")
      endif()
      configure_file(${PROJECT_SOURCE_DIR}/cmake/entries_part.cpp.in ${generated}/${list}_${arch}_${part}.cpp @ONLY)
      list(APPEND sources ${generated}/${list}_${arch}_${part}.cpp)
      set(all_entries)
    endforeach()
  endforeach()
  if(NOT sources)  # the focus is on another list: this one has no entries
    set(sources ${generated}/${list}_entries.cpp)
    file(CONFIGURE OUTPUT ${sources} CONTENT "#include \"${header}\"\n#include <span>\n#include <vector>\n${all_entries}")
  endif()

  set(target tilewave_${list}_entries)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${generated})
  tilewave_use_room(${target})
  tilewave_optimise_less(${target})
  # Of a small list a third of each file's time is the emulated device and the op's headers: all chips have one.
  if(TILEWAVE_ROOM STREQUAL "host" AND NOT arg_HOST_SOURCES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 3)
  endif()
  set(precompiled tilewave_precompiled)
  if(arg_ROWS)
    set(precompiled tilewave_precompiled_rows)
    tilewave_optimise_rows(${target})
  endif()
  if(TARGET ${precompiled})
    target_precompile_headers(${target} REUSE_FROM ${precompiled})
  endif()
  set_property(GLOBAL APPEND PROPERTY tilewave_${op}_headers ${header})
  set_property(GLOBAL APPEND PROPERTY tilewave_${op}_lists ${list})
  if(NOT arg_TESTS)
    set_property(GLOBAL APPEND PROPERTY tilewave_${op}_bench_entries ${target})
  endif()
endfunction()

# tilewave_op_entries(OP ROOT FOLDER): all lists of an op; #include has FOLDER, a folder of ROOT, in the names of its headers.
function(tilewave_op_entries op root folder)
  string(REPLACE "_" ";" words ${op})
  set(entry_type)
  foreach(word IN LISTS words)
    string(SUBSTRING ${word} 0 1 first)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND entry_type ${first}${rest})
  endforeach()
  set_property(GLOBAL PROPERTY tilewave_${op}_name ${entry_type})
  string(APPEND entry_type Entry)
  if(EXISTS ${root}/${folder}/entries.cmake)
    include(${root}/${folder}/entries.cmake)
  else()
    tilewave_entries(${op})
  endif()
  if(TILEWAVE_GENERATED_ENTRIES AND EXISTS ${TILEWAVE_GENERATED_ENTRIES}/${op}_generated.hpp)
    tilewave_entries(${op}_generated HEADER ${TILEWAVE_GENERATED_ENTRIES}/${op}_generated.hpp)
    target_compile_definitions(tilewave_${op}_generated_entries INTERFACE TILEWAVE_GENERATED)
  endif()

  get_property(headers GLOBAL PROPERTY tilewave_${op}_headers)
  list(REMOVE_DUPLICATES headers)
  list(JOIN headers "\"\n#include \"" includes)
  get_property(lists GLOBAL PROPERTY tilewave_${op}_lists)
  list(JOIN lists "_entries();\nstd::span<const ${entry_type}* const> all_" declarations)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/entries.hpp.in ${generated}/entries/${op}.hpp @ONLY)
endfunction()

foreach(op IN LISTS TILEWAVE_OPS)
  tilewave_op_entries(${op} ${PROJECT_SOURCE_DIR}/include tilewave/ops/${op})
endforeach()
tilewave_op_entries(traffic ${PROJECT_SOURCE_DIR} bench/harness)  # no op: every benchmark measures its ceilings with them
