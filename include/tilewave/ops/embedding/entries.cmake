# SPDX-License-Identifier: MIT
tilewave_entries(embedding ROWS)
