// SPDX-License-Identifier: MIT
// A library of moe_in_turns.py that computes nothing: the name of a plan spells the call, and a run tells its stream.
#include <cstdint>
#include <string>

#include "bench/peers/moe_call.hpp"

namespace {

std::string name, stream_name;
bool held = false;

}  // namespace

const char* moe_prepare(const MoeCall* call, void** plan) {
  const MoeCall& c = *call;
  if (c.weights != 1) return "fp8 blocks alone";
  if (held) return "the plan before was not freed";
  held = true;
  name.clear();
  const auto add = [](auto number) { name += std::to_string(number) + " "; };
  for (const void* p : {c.x, c.logits, c.w1, c.w2, c.w1_scale, c.w2_scale, c.w1_zero, c.w2_zero, c.bias1, c.bias2,
                        static_cast<const void*>(c.out)})
    add(reinterpret_cast<std::uintptr_t>(p));
  for (const std::int32_t n : {c.tokens, c.hidden, c.intermediate, c.experts, c.topk, c.weights, c.scale_k}) add(n);
  *plan = &name;
  return nullptr;
}

const char* moe_run(void* plan, void* stream) {
  if (plan != &name) return "another plan";
  stream_name = "stream " + std::to_string(reinterpret_cast<std::uintptr_t>(stream));
  return stream_name.c_str();
}

const char* moe_name(void* plan) { return static_cast<std::string*>(plan)->c_str(); }
void moe_free(void* plan) { held = plan != &name; }
