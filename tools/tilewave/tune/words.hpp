// SPDX-License-Identifier: MIT
// Specs and policies of a benchmark's rows as they stand in source code.
#pragma once

#include <cstdint>
#include <string>

#include "tools/tilewave/common/csv.hpp"

namespace tilewave::tool {

/// A word of the CSV that may stand in source code; refuses others.
std::string tried_word(const Csv& csv, std::size_t row, const char* column);
/// A number from 0 to 2^30; refuses others.
std::int64_t tried_count(const Csv& csv, std::size_t row, const char* column);

// Returns the spec as braces after the type. Each refuses a row without the columns.
std::string gemm_spec_text(const Csv& csv, std::size_t row);
std::string gemm_policy_text(const Csv& csv, std::size_t row);
std::string paged_attention_spec_text(const Csv& csv, std::size_t row);
std::string paged_attention_policy_text(const Csv& csv, std::size_t row);

}  // namespace tilewave::tool
