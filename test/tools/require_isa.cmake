# SPDX-License-Identifier: MIT
# cmake -D SOURCE=... -D SCRATCH=... -D GENERATOR=... -P require_isa.cmake
# With a compiler that compiles nothing, configuring leaves the checks of AMD code out and says so; it stops when
# TILEWAVE_REQUIRE_ISA asks for them, as an option, in the environment, or on a build directory where they once worked.

find_program(broken NAMES false REQUIRED)
unset(ENV{TILEWAVE_REQUIRE_ISA})
set(configure ${CMAKE_COMMAND} --preset host -S ${SOURCE} -B ${SCRATCH} -G ${GENERATOR} -D TILEWAVE_AMD_CLANG=${broken})

function(expect status pattern)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors
                  WORKING_DIRECTORY ${SOURCE})
  if((status AND NOT result) OR (result AND NOT status) OR NOT "${output}${errors}" MATCHES "${pattern}")
    message(FATAL_ERROR "expected exit ${status} and '${pattern}', got ${result}:\n${output}\n${errors}")
  endif()
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
expect(0 "gates: left out" ${configure})
expect(1 "CMake Error at test/isa.*gates: left[ \n]+out" ${configure} -D TILEWAVE_REQUIRE_ISA=ON)
expect(1 "CMake Error at test/isa.*gates: left[ \n]+out"
       ${CMAKE_COMMAND} -E env TILEWAVE_REQUIRE_ISA=1 ${configure} -D TILEWAVE_REQUIRE_ISA=OFF)
expect(1 "CMake Error at test/isa.*gates: left[ \n]+out"
       ${configure} -D TILEWAVE_AMD_CLANG_WORKS=/usr/bin/clang++ -D TILEWAVE_REQUIRE_ISA=ON)
