// SPDX-License-Identifier: MIT
// The border between the files that PyTorch's headers are in and those that the device compiler sees: one function for each op,
// which takes any problem whose spec was compiled. Nothing here knows PyTorch.
#pragma once

#include <functional>
#include <tilewave/tilewave.hpp>

namespace tilewave_torch {

using tilewave::hipStream_t;

/// Where a call runs, and device memory for it: bytes that live until the stream has passed the call.
struct Call {
  hipStream_t stream;
  std::function<void*(std::size_t)> workspace;
};

// Each queues its kernel on the stream. Errors: those of the op, and no_matching_entry for a spec that is in no list of the .cu
// files; nothing was queued then.
tilewave::Status run(const tilewave::VecAddProblem& p, const Call& call);
tilewave::Status run(const tilewave::GemmProblem& p, const Call& call);
tilewave::Status run(const tilewave::FlashAttentionProblem& p, const Call& call);
tilewave::Status run(const tilewave::PagedAttentionProblem& p, const Call& call);
tilewave::Status run(const tilewave::AttentionCombineProblem& p, const Call& call);
tilewave::Status run(const tilewave::KvCacheWriteProblem& p, const Call& call);
tilewave::Status run(const tilewave::RopeProblem& p, const Call& call);
tilewave::Status run(const tilewave::NormProblem& p, const Call& call);
tilewave::Status run(const tilewave::SoftmaxProblem& p, const Call& call);
tilewave::Status run(const tilewave::QuantProblem& p, const Call& call);
tilewave::Status run(const tilewave::ActivationProblem& p, const Call& call);
tilewave::Status run(const tilewave::EmbeddingProblem& p, const Call& call);
tilewave::Status run(const tilewave::SamplingProblem& p, const Call& call);
tilewave::Status run(const tilewave::TopkGatingProblem& p, const Call& call);
tilewave::Status run(const tilewave::MoeSortProblem& p, const Call& call);
tilewave::Status run(const tilewave::MoeReduceProblem& p, const Call& call);
tilewave::Status run(const tilewave::MqaLogitsProblem& p, const Call& call);

}  // namespace tilewave_torch
