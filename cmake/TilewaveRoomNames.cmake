# SPDX-License-Identifier: MIT
# The rooms of chips, in the order of ArchId. The host room emulates each of them.
set(tilewave_amd_rooms gfx942 gfx950)
set(tilewave_chip_rooms ${tilewave_amd_rooms} sm90)
