// SPDX-License-Identifier: MIT
// Written by `tilewave tune write`: the tables of this folder that paged_attention_select looks into.
#pragma once

#include <span>

#include "tilewave/ops/paged_attention/tuned/row.hpp"

namespace tilewave {

constexpr std::span<const TunedPagedAttention> tuned_paged_attention(ArchId) { return {}; }

}  // namespace tilewave
