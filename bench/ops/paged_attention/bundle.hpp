// SPDX-License-Identifier: MIT
// Repro bundles: one call as files, for those who want to run the compiled kernels without this build. The format is in
// docs/reference/bundle.md.
#pragma once

#include <string>

#include "bench/ops/paged_attention/case.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::bench {

/// Writes the case, run by the plan's entry on gfx942 or gfx950, into `dir`: code objects, input tensors, expected
/// outputs and bundle.json. The directory is created. One that holds anything but an older bundle is refused. The code
/// objects of the target tilewave_code_objects are needed; `code_objects` is their directory, or empty for
/// ../code_objects as seen from this executable. Returns 0, or 2 after one line on stderr.
int export_bundle(const std::string& dir, const PagedAttentionCase& c, const PagedAttentionPlan& plan,
                  const std::string& code_objects = "");

}  // namespace tilewave::bench
