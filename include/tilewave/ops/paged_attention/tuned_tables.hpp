// SPDX-License-Identifier: MIT
// Written by `tilewave tune write`: the tables of include/tilewave/tuned that paged_attention_select looks into.
#pragma once

#include <span>

#include "tilewave/ops/paged_attention/tuned.hpp"

namespace tilewave {

constexpr std::span<const TunedPagedAttention> tuned_paged_attention(ArchId) { return {}; }

}  // namespace tilewave
