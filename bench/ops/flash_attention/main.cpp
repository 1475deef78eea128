// SPDX-License-Identifier: MIT
// bench_flash_attention: the entries of this build, one a line.
#include <cstdio>

#include "entries/flash_attention.hpp"

int main() {
  for (const tilewave::FlashAttentionEntry* e : tilewave::all_flash_attention_entries())
    std::printf("%s %s\n", name_of(e->spec).c_str(), name_of(e->policy).c_str());
}
