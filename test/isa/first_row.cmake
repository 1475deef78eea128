# SPDX-License-Identifier: MIT
# cmake -D BENCH=bench_X -D ARCH=gfx950 -D BUNDLE=DIR -P first_row.cmake
# A bundle of the first row of the benchmark's default sweep that has outputs; the row itself is verified as always.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${BENCH} --arch ${ARCH} --benchmark_list_tests=true OUTPUT_VARIABLE rows COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "nothing/[^\n]*\n|read/[^\n]*\n" "" rows "${rows}")
string(REGEX MATCH "^[^\n]+" first "${rows}")
string(REGEX REPLACE "([.+*?^$()|])" "\\\\\\1" first "${first}")
execute_process(COMMAND ${BENCH} --arch ${ARCH} "--benchmark_filter=^${first}$" --export-bundle ${BUNDLE}
                COMMAND_ERROR_IS_FATAL ANY)
