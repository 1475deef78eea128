// SPDX-License-Identifier: MIT
// The call of attention that prefill_in_turns.py hands to a library: ours, or one that is built beside a peer's source.
// A library makes a plan of a call, and runs it as often as it is asked to.
#pragma once

#include <cstdint>

/// q and out [batch, q_length, q_heads, head_size], K and V [batch, kv_length, kv_heads, head_size], without gaps, or K
/// and V in pages [pages, block_size, kv_heads, head_size] behind `table` [batch, kv_length / block_size]. Elements are
/// bf16, or e4m3 with one scale `one`, which is 1; out is bf16. Under a causal mask queries are the last positions.
struct PrefillCall {
  const void *q, *k, *v;
  void* out;
  const float* one;
  const std::int32_t* table;    // null: K and V are contiguous
  const std::int32_t* lengths;  // [batch], each kv_length; only with a table
  std::int32_t batch, q_heads, kv_heads, q_length, kv_length, head_size, block_size, fp8, causal, window;
};

extern "C" {
/// Makes *plan of a call. Returns why the library does not take it, or null.
const char* prefill_prepare(const PrefillCall* call, void** plan);
/// Queues a plan on a stream. Returns what went wrong, or null.
const char* prefill_run(void* plan, void* stream);
/// Returns what a plan runs, for the reader: the name of an entry or of a kernel's tiles.
const char* prefill_name(void* plan);
}
