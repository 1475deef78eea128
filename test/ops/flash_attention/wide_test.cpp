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

/// Where the unit keeps 13 bits of a sum throughout, these come out by a quarter and by a half too low.
TEST_CASE("values of one sign are summed up over any number of keys") {
  for (const FlashAttentionEntry* entry : all_flash_attention_wide_entries()) {
    if (entry->policy.path != FlashAttentionPath::tensor || !is_fp8(entry->spec.q) || entry->spec.paged()) continue;
    for (const std::int32_t keys : {16384, 65536}) check_values_of_one_sign(*entry, keys);
  }
}

}  // namespace
}  // namespace tilewave::test
