// SPDX-License-Identifier: MIT
// Every spec of the long list, in each of its layouts.
#include "test/ops/flash_attention/shapes.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("every spec that is served is right in every layout of its keys") {
  CHECK(!all_flash_attention_wide_entries().empty());
  for (const FlashAttentionEntry* entry : all_flash_attention_wide_entries()) {
    REQUIRE(flash_attention_policy_status(entry->arch, entry->spec, entry->policy).ok());
    check_spec(*entry);
  }
}

}  // namespace
}  // namespace tilewave::test
