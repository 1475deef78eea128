// SPDX-License-Identifier: MIT
// Times mla_decode in bf16 and FlashMLA's dense decode on sm90 in turns: in one process, on the same tensors, cold.
// Both answers are compared. FlashMLA's plan is made before, as its users do. It is built beside FlashMLA's source,
// whose csrc is F, and CUTLASS's headers, C:
//   O="-std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr --expt-extended-lambda
//      -IF -IF/sm90 -IF/kerutils/include -IC -Iinclude"
//   nvcc $O --use_fast_math -c F/sm90/decode/dense/instantiations/bf16.cu F/smxx/decode/combine/combine.cu
//        F/smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.cu
//   nvcc $O bench/peers/flash_mla.cu bf16.o combine.o get_decoding_sched_meta.o -o flash_mla && ./flash_mla
// Columns: batch, tokens, heads, query tokens, entry, us of both, ratio, TFLOP/s and GB/s of ours, largest difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "params.h"
#include "sm90/decode/dense/splitkv_mla.h"
#include "smxx/decode/combine/combine.h"
#include "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h"
#include "tilewave/arch/sm90/backend.hpp"
#include "tilewave/ops/mla_decode/registry.hpp"

namespace {

using namespace tilewave;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(error));
  std::exit(1);
}
template <class T>
T* device(std::size_t count) {
  void* p = nullptr;
  check(cudaMalloc(&p, count * sizeof(T) + 256));
  return static_cast<T*>(p);
}

/// Fills a tensor of bf16 with U(-1.73, 1.73), the same 2^22 values again and again.
void fill(std::uint16_t* to, std::size_t count, std::uint64_t seed) {
  static std::vector<std::uint16_t> some(1 << 22);
  for (std::uint16_t& x : some) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x = f32_to_bf16((static_cast<float>(seed >> 40) * 0x1p-24f - 0.5f) * 3.46f);
  }
  for (std::size_t i = 0; i < count; i += some.size())
    check(cudaMemcpy(to + i, some.data(), 2 * std::min(some.size(), count - i), cudaMemcpyHostToDevice));
}

struct Cell {
  int batch, tokens, heads, query_tokens;
};

/// The tensors of a cell, on the device; pages have 64 tokens and an order that looks drawn.
struct Call {
  Cell c;
  int rows, pages;
  std::uint16_t *q, *kv, *ours, *theirs;
  float *lse, *their_lse;
  int *table, *lengths;

  explicit Call(const Cell& cell)
      : c(cell), rows(c.batch * c.query_tokens * c.heads), pages(c.batch * (c.tokens / 64)) {
    q = device<std::uint16_t>(std::size_t(rows) * 576), kv = device<std::uint16_t>(std::size_t(pages) * 64 * 576);
    ours = device<std::uint16_t>(std::size_t(rows) * 512), theirs = device<std::uint16_t>(std::size_t(rows) * 512);
    lse = device<float>(rows), their_lse = device<float>(rows), table = device<int>(pages);
    lengths = device<int>(c.batch);
    fill(q, std::size_t(rows) * 576, 1);
    fill(kv, std::size_t(pages) * 64 * 576, 2);
    std::vector<int> order(pages), all(c.batch, c.tokens);
    for (std::int64_t i = 0; i < pages; ++i) order[i] = static_cast<int>(i * 1000003 % pages);
    check(cudaMemcpy(table, order.data(), 4 * order.size(), cudaMemcpyHostToDevice));
    check(cudaMemcpy(lengths, all.data(), 4 * all.size(), cudaMemcpyHostToDevice));
  }
  ~Call() {
    for (void* p : std::vector<void*>{q, kv, ours, theirs, lse, their_lse, table, lengths}) check(cudaFree(p));
  }
};

MlaDecodeProblem our_problem(const Call& of) {
  MlaDecodeProblem p;
  p.q = of.q, p.kv = of.kv, p.out = of.ours, p.lse = of.lse;
  p.block_table = of.table, p.context_lengths = of.lengths, p.softmax_scale = 0.0417f;
  p.batch = of.c.batch, p.query_tokens = of.c.query_tokens, p.num_q_heads = of.c.heads;
  p.block_size = 64, p.table_columns = of.c.tokens / 64, p.num_pages = of.pages;
  return MlaDecodeProblem::dense(p);
}

/// FlashMLA's call with its plan and its workspace.
struct Theirs {
  DenseAttnDecodeParams d{};
  CombineParams combine{};
  std::vector<void*> owned;

  Theirs(const Call& of, float scale) {
    int sms = 0;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    const Cell& c = of.c;
    const int rows = c.query_tokens * c.heads, parts = std::max(sms / ((rows + 63) / 64), 1), splits = c.batch + parts;
    auto* const plan = device<DecodingSchedMeta>(parts);
    int* const counts = device<int>(c.batch + 1);
    float *const lse = device<float>(std::size_t(splits) * rows), *const out =
                                                                      device<float>(std::size_t(splits) * rows * 512);
    owned = {plan, counts, lse, out};
    GetDecodeSchedMetaParams planned = {c.batch, c.query_tokens, 64,   5,      -1,    -1, nullptr,
                                        nullptr, of.lengths,     plan, counts, parts, 0};
    smxx::decode::run_get_decoding_sched_meta_kernel(planned);
    d.b = c.batch, d.s_q = c.query_tokens, d.q_seq_per_hk = rows, d.d = 576, d.d_v = 512, d.h_q = c.heads, d.h_k = 1;
    d.num_blocks = of.pages, d.q_head_per_hk = c.heads, d.is_causal = c.query_tokens > 1;
    d.scale_softmax = scale, d.scale_softmax_log2 = scale * log2_e;
    d.q_ptr = of.q, d.k_ptr = of.kv, d.o_ptr = of.theirs, d.softmax_lse_ptr = of.their_lse;
    d.q_batch_stride = std::int64_t{576} * rows, d.k_batch_stride = 64 * 576,
    d.o_batch_stride = std::int64_t{512} * rows;
    d.q_row_stride = d.k_row_stride = d.q_head_stride = d.k_head_stride = 576, d.o_row_stride = 512;
    d.o_head_stride = std::int64_t{512} * rows;
    d.block_table = of.table, d.block_table_batch_stride = c.tokens / 64, d.page_block_size = 64;
    d.seqlens_k_ptr = of.lengths, d.tile_scheduler_metadata_ptr = plan, d.num_sm_parts = parts,
    d.num_splits_ptr = counts;
    d.total_num_splits = splits, d.softmax_lseaccum_ptr = lse, d.oaccum_ptr = out;
    combine = {c.batch,
               c.query_tokens,
               c.heads,
               512,
               of.their_lse,
               of.theirs,
               rows,
               c.heads,
               rows * 512,
               c.heads * 512,
               512,
               lse,
               out,
               rows,
               c.heads,
               rows * 512,
               c.heads * 512,
               512,
               plan,
               counts,
               parts,
               nullptr,
               0};
  }
  ~Theirs() {
    for (void* p : owned) check(cudaFree(p));
  }
  void run() {
    ::sm90::run_flash_splitkv_mla_kernel<cutlass::bfloat16_t>(d);
    ::smxx::decode::run_flash_mla_combine_kernel<cutlass::bfloat16_t>(combine);
  }
};

/// The median of samples of both sides, one after the other, each behind a write of 256 MB.
template <class A, class B>
std::pair<double, double> in_turns(int rounds, const A& a, const B& b) {
  static char* const flush = device<char>(256 << 20);
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) check(cudaEventCreate(&begin)), check(cudaEventCreate(&end));
  std::vector<float> times[2];
  const auto sample = [&](const auto& run, std::vector<float>& to) {
    check(cudaMemsetAsync(flush, static_cast<int>(to.size()), 256 << 20, nullptr));
    check(cudaEventRecord(begin));
    run();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, begin, end));
    to.push_back(1e3f * ms);
  };
  a(), b(), check(cudaDeviceSynchronize());
  for (int i = 0; i < rounds; ++i) {
    if (i % 2 == 0) sample(a, times[0]), sample(b, times[1]);
    if (i % 2 == 1) sample(b, times[1]), sample(a, times[0]);
  }
  for (std::vector<float>& t : times) std::sort(t.begin(), t.end());
  return {times[0][times[0].size() / 2], times[1][times[1].size() / 2]};
}

double largest_difference(const Call& of) {
  std::vector<std::uint16_t> a(std::size_t(of.rows) * 512), b(a.size());
  check(cudaMemcpy(a.data(), of.ours, 2 * a.size(), cudaMemcpyDeviceToHost));
  check(cudaMemcpy(b.data(), of.theirs, 2 * b.size(), cudaMemcpyDeviceToHost));
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(bf16_to_f32(a[i]) - bf16_to_f32(b[i]));
    largest = d <= largest ? largest : std::isnan(d) ? HUGE_VAL : d;
  }
  return largest;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  std::vector<Cell> cells;
  for (int batch : {1, 16, 64, 128})
    for (int tokens : {1024, 8192, 32768}) cells.push_back({batch, tokens, 128, 1});
  for (int heads : {16, 32, 64}) cells.push_back({64, 8192, heads, 1});
  cells.push_back({64, 8192, 16, 2}), cells.push_back({64, 8192, 128, 2});
  double logarithms = 0.0;
  int counted = 0;
  std::printf("batch,tokens,heads,query_tokens,entry,us,flash_mla_us,ratio,tflops,gbps,difference\n");
  for (const Cell& c : cells) {
    const Call call(c);
    MlaDecodeProblem p = our_problem(call);
    MlaDecodePlan plan;
    if (Status s = mla_decode_plan<tilewave::sm90::Backend, MlaDecodeSpec{}>(p, plan); !s.ok())
      return std::puts(s.reason);
    p.workspace_bytes = plan.workspace_bytes(p), p.workspace = device<char>(p.workspace_bytes);
    Theirs theirs(call, p.softmax_scale);
    const auto run = [&] {
      if (Status s = plan.launch(p, nullptr); !s.ok()) std::puts(s.reason), std::exit(1);
    };
    const auto [us, their_us] = in_turns(rounds, run, [&] { theirs.run(); });
    const double flops = 2.0 * c.batch * c.query_tokens * c.heads * c.tokens * 1088.0;
    const double bytes = 1152.0 * c.batch * c.tokens + 2176.0 * call.rows;
    std::printf("%d,%d,%d,%d,%s,%.1f,%.1f,%.3f,%.0f,%.0f,%.5f\n", c.batch, c.tokens, c.heads, c.query_tokens,
                plan.name().c_str(), us, their_us, their_us / us, flops / us * 1e-6, bytes / us * 1e-3,
                largest_difference(call));
    if (c.heads == 128 && c.query_tokens == 1) logarithms += std::log(their_us / us), ++counted;
    check(cudaFree(p.workspace));
  }
  std::printf("# geometric mean of the ratio with 128 heads: %.3f\n", std::exp(logarithms / counted));
}
