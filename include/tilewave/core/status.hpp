// SPDX-License-Identifier: MIT
// The library refuses a call by a named code and a sentence, never by an exception, and never with a wrong answer.
#pragma once

#include <string_view>

namespace tilewave {

enum class StatusCode : int {
  ok = 0,
  null_pointer,
  misaligned,
  unsupported_dtype,
  unsupported_layout,
  unsupported_scaling,
  unsupported_head_size,
  unsupported_block_size,
  unsupported_mtp,
  unsupported_head_ratio,
  bad_extent,
  bad_stride,
  bad_value,
  length_beyond_block_table,
  workspace_too_small,
  no_matching_entry,
  launch_failed,
};

constexpr std::string_view name_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::null_pointer: return "null_pointer";
    case StatusCode::misaligned: return "misaligned";
    case StatusCode::unsupported_dtype: return "unsupported_dtype";
    case StatusCode::unsupported_layout: return "unsupported_layout";
    case StatusCode::unsupported_scaling: return "unsupported_scaling";
    case StatusCode::unsupported_head_size: return "unsupported_head_size";
    case StatusCode::unsupported_block_size: return "unsupported_block_size";
    case StatusCode::unsupported_mtp: return "unsupported_mtp";
    case StatusCode::unsupported_head_ratio: return "unsupported_head_ratio";
    case StatusCode::bad_extent: return "bad_extent";
    case StatusCode::bad_stride: return "bad_stride";
    case StatusCode::bad_value: return "bad_value";
    case StatusCode::length_beyond_block_table: return "length_beyond_block_table";
    case StatusCode::workspace_too_small: return "workspace_too_small";
    case StatusCode::no_matching_entry: return "no_matching_entry";
    case StatusCode::launch_failed: return "launch_failed";
  }
  return "unknown";
}

/// The answer of every entry point. `reason` is a static string that is empty exactly when the code is ok.
struct [[nodiscard]] Status {
  StatusCode code = StatusCode::ok;
  const char* reason = "";
  constexpr bool ok() const { return code == StatusCode::ok; }
};

}  // namespace tilewave
