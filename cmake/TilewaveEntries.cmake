# SPDX-License-Identifier: MIT
# tilewave_pa_entries: every paged-attention entry of the room, one generated source per (architecture, spec) slice, so
# that the kernels compile in parallel. bench/harness/entries.hpp declares what it offers.

set(generated ${PROJECT_BINARY_DIR}/generated)
set(spec_count 9)  # checked against paged_attention_specs() by the generated list

set(slices)
set(sources)
function(add_slices arch header backend)
  math(EXPR last "${spec_count} - 1")
  foreach(index RANGE ${last})
    set(slice pa_entries_${arch}_${index})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/paged_attention_slice.cpp.in ${generated}/${slice}.cpp @ONLY)
    list(APPEND slices ${slice})
    list(APPEND sources ${generated}/${slice}.cpp)
  endforeach()
  set(slices ${slices} PARENT_SCOPE)
  set(sources ${sources} PARENT_SCOPE)
endfunction()

if(TILEWAVE_ROOM STREQUAL "host")
  foreach(arch gfx942 gfx950 sm90)
    add_slices(${arch} host/backend.hpp "host::Backend<ArchId::${arch}>")
  endforeach()
else()
  add_slices(${TILEWAVE_ROOM} ${TILEWAVE_ROOM}/backend.hpp ${TILEWAVE_ROOM}::Backend)
endif()

list(JOIN slices "(),\n        " names)  # one text serves as declarators and as calls
configure_file(${PROJECT_SOURCE_DIR}/cmake/paged_attention_entries.cpp.in ${generated}/pa_entries.cpp @ONLY)

add_library(tilewave_pa_entries OBJECT ${generated}/pa_entries.cpp ${sources})
target_include_directories(tilewave_pa_entries PUBLIC ${PROJECT_SOURCE_DIR})
tilewave_use_room(tilewave_pa_entries)
