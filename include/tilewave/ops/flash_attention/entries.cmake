# SPDX-License-Identifier: MIT
tilewave_entries(flash_attention SOURCES 8 HOST_SOURCES 1)
