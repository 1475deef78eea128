// SPDX-License-Identifier: MIT
// A library of prefill_in_turns.py that computes nothing: the name of a plan spells the call, and a run tells its stream.
#include <cstdint>
#include <string>

#include "bench/peers/prefill_call.hpp"

namespace {

std::string name, stream_name;

}  // namespace

const char* prefill_prepare(const PrefillCall* call, void** plan) {
  const PrefillCall& c = *call;
  if (c.head_size != 128) return "heads of 128 alone";
  name.clear();
  const auto add = [](auto number) { name += std::to_string(number) + " "; };
  for (const void* p : {c.q, c.k, c.v, static_cast<const void*>(c.out), static_cast<const void*>(c.one),
                        static_cast<const void*>(c.table), static_cast<const void*>(c.lengths)})
    add(reinterpret_cast<std::uintptr_t>(p));
  for (const std::int32_t n :
       {c.batch, c.q_heads, c.kv_heads, c.q_length, c.kv_length, c.head_size, c.block_size, c.fp8, c.causal, c.window})
    add(n);
  *plan = &name;
  return nullptr;
}

const char* prefill_run(void* plan, void* stream) {
  if (plan != &name) return "another plan";
  stream_name = "stream " + std::to_string(reinterpret_cast<std::uintptr_t>(stream));
  return stream_name.c_str();
}

const char* prefill_name(void* plan) { return static_cast<std::string*>(plan)->c_str(); }
