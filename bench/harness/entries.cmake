# SPDX-License-Identifier: MIT
tilewave_entries(traffic HEADER traffic.hpp)
