# SPDX-License-Identifier: MIT
tilewave_entries(gemm)
