// SPDX-License-Identifier: MIT
// The vendor's library as a peer of bench_gemm: cuBLASLt or hipBLASLt, on the tensors of a GemmProblem.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/harness/sampler.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave::bench {

/// `cublaslt` or `hipblaslt`; empty where this build found neither.
std::string_view vendor_name();

/// A problem as the vendor's library takes it, with all that its heuristics propose for it.
class VendorGemm {
 public:
  virtual ~VendorGemm() = default;
  /// One side for each proposal, the most recommended first: launches keep pointers into this object. Each call multiplies with
  /// the next copy of B.
  virtual std::vector<Side> sides() = 0;
};

/// `p`: on the device, with an out of the peer's own. `weights`: copies of B that calls take in turns, at least one.
/// Fast sums of fp8 ask for the library's fast accumulation, promoted ones for its accurate mode. Null where the library has
/// nothing for such a problem, and `reason` says why.
std::unique_ptr<VendorGemm> vendor_gemm(const GemmProblem& p, std::span<const void* const> weights,
                                        std::string& reason);

}  // namespace tilewave::bench
