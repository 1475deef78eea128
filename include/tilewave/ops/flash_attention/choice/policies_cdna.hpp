// SPDX-License-Identifier: MIT
// Policies of CDNA through LDS.
#pragma once

#include "tilewave/ops/flash_attention/policy_status.hpp"

namespace tilewave {

constexpr void add_flash_policies_cdna(ArchId, const FlashAttentionSpec&, FlashAttentionPolicies&) {}

}  // namespace tilewave
