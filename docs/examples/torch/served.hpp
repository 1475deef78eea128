// SPDX-License-Identifier: MIT
// What the .cu files share: the room of the chip, and the way from a problem to the plan of its spec and its launch.
#pragma once

#include <array>
#include <span>
#include <tilewave/arch/sm90/backend.hpp>

#include "kernels.hpp"

namespace tilewave_torch {

using Room = tilewave::sm90::Backend;  // the only line that knows the chip

inline constexpr tilewave::DType bf16 = tilewave::DType::bf16, f16 = tilewave::DType::f16, f32 = tilewave::DType::f32,
                                 fp8 = Room::facts.fp8;

/// A spec that is compiled, and the function that plans it.
template <class Spec, class Problem, class Plan>
struct Served {
  Spec spec;
  tilewave::Status (*plan)(const Problem&, Plan&);
};

inline constexpr tilewave::Status not_served{
    tilewave::StatusCode::no_matching_entry,
    "spec: this library was built without it; its .cu files list what there is"};

/// Memory for the plan, then its launch.
template <class Problem, class Plan>
tilewave::Status launch(Problem p, const Plan& plan, const Call& call) {
  if constexpr (requires { p.workspace_bytes; }) {
    if (const std::size_t bytes = plan.workspace_bytes(p); bytes > 0)
      p.workspace = call.workspace(bytes), p.workspace_bytes = bytes;
  }
  return plan.launch(p, call.stream);
}

/// Plans the problem by the spec in the list that is its own, and launches it.
template <class Spec, class Problem, class Plan, std::size_t count>
tilewave::Status serve(const Problem& p, const Call& call, const std::array<Served<Spec, Problem, Plan>, count>& list) {
  for (const auto& served : list) {
    if (!(served.spec == p.spec)) continue;
    Plan plan;
    const tilewave::Status status = served.plan(p, plan);
    return status.ok() ? launch(p, plan, call) : status;
  }
  return not_served;
}

}  // namespace tilewave_torch
