// SPDX-License-Identifier: MIT
// The rules for a workspace, device memory that the caller lends for one call. They are the same for every op.
#pragma once

#include <cstddef>

#include "tilewave/core/region.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

/// Checks the size of a workspace. More bytes than can exist would overlap every tensor, which would be a misleading
/// reason.
inline Status check_workspace_bytes(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(Region::most_bytes))
    return {StatusCode::bad_value, "workspace_bytes is more than 2^56"};
  return {};
}
/// Checks the address of a workspace, which is aligned to 16 bytes. Null is.
inline Status check_workspace_alignment(const void* workspace) {
  if (!is_aligned(workspace, 16)) return {StatusCode::misaligned, "workspace needs 16-byte alignment"};
  return {};
}
/// Checks the workspace of a launch that needs so many bytes. A launch that needs none looks at its size alone. Errors:
/// bad_value, null_pointer, workspace_too_small, misaligned.
inline Status check_workspace(const void* workspace, std::size_t bytes, std::size_t needed) {
  if (Status s = check_workspace_bytes(bytes); !s.ok() || needed == 0) return s;
  if (workspace == nullptr) return {StatusCode::null_pointer, "workspace is null"};
  if (bytes < needed)
    return {StatusCode::workspace_too_small, "workspace_bytes is less than plan.workspace_bytes(problem)"};
  return check_workspace_alignment(workspace);
}

}  // namespace tilewave
