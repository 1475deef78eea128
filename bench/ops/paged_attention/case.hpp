// SPDX-License-Identifier: MIT
// One configuration of the paged-attention sweeps, and everything about it that needs no memory: its name, the shape of
// its call, its lengths and block table, and the work that it asks for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/harness/column.hpp"
#include "bench/harness/config_parser.hpp"
#include "bench/harness/random.hpp"
#include "bench/harness/work.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/paged_attention/problem.hpp"
#include "tilewave/reference/paged_attention.hpp"

namespace tilewave::bench {

/// How K and V are drawn. uniform: from U(-1, 1), rounded to bf16. varied: each token of K and of V is also multiplied
/// by a factor of its own in [1/4, 4], for V half of that. Every scale then differs, and one that is mixed up shows.
enum class Inputs : int { uniform, varied };

constexpr std::string_view name_of(Inputs inputs) { return inputs == Inputs::uniform ? "uniform" : "varied"; }

/// The order of a cache's dimensions. Either K is in 16-byte units of a token and V as trans_v says; or both have whole
/// heads of a token, as NHD [pages, block_size, kv_heads, D] or HND [pages, kv_heads, block_size, D].
enum class KvLayout : int { units, nhd, hnd };

constexpr std::string_view name_of(KvLayout layout) {
  return layout == KvLayout::units ? "units" : layout == KvLayout::nhd ? "nhd" : "hnd";
}

template <>
inline constexpr int enumerators_of<Inputs> = 2;
template <>
inline constexpr int enumerators_of<KvLayout> = 3;

struct PagedAttentionCase {
  ArchId arch = ArchId::gfx950;
  DType q = DType::bf16;  // and out
  DType kv = DType::fp8_e4m3fn;
  Scaling quant = Scaling::per_token;
  int block_size = 1024;
  int mtp = 1;
  int head_size = 128;
  int batch = 3;
  int context_length = 1027;  // longest length of a sequence, the mtp new tokens included
  int num_q_heads = 8;
  int num_kv_heads = 1;
  KvLayout layout = KvLayout::units;
  bool any_block_size = false;  // of the spec; with nhd and hnd
  bool native = false;          // of the spec; with fp8
  bool trans_v = true;          // V shuffled [pages, kv_heads, bs/x, D, x]; else plain [pages, kv_heads, D, bs]
  bool kv_varlen = false;       // lengths uniform in [mtp, context_length]; else all context_length
  int sliding_window = 0;
  bool sinks = false;
  int soft_cap = 0;             // > 0: of the spec, in units of the score
  bool alibi = false;           // of the spec
  int split_tokens = 0;         // > 0: batch-invariant
  bool stage_starts = false;    // balanced, the caller having counted the lengths
  bool distinct_pages = false;  // every page used once, permuted; else drawn with repetition from a larger pool
  Inputs inputs = Inputs::uniform;
  std::uint64_t seed = 123;

  friend constexpr bool operator==(const PagedAttentionCase&, const PagedAttentionCase&) = default;

  static constexpr NamePart name_parts[] = {{"pa_decode", "kind", "pa_decode"},
                                            {"bs", "block_size"},
                                            {"mtp", "mtp"},
                                            {"h", "head_size"},
                                            {"b", "batch_size"},
                                            {"c", "context_length"},
                                            {"hq", "num_q_heads"},
                                            {"hkv", "num_kv_heads"},
                                            {"vt0", "v_layout", "plain"},
                                            {"vt1", "", "1"},  // as it is by default, and said of NHD and HND, too
                                            {"vl", "kv_varlen"},
                                            {"sw", "sliding_window"},
                                            {"sinks", "sinks", "1"},
                                            {"cap", "soft_cap"},
                                            {"alibi", "alibi", "1"},
                                            {"split", "split_tokens"},
                                            {"starts", "stage_starts", "1"},
                                            {"nhd", "k_layout", "nhd"},
                                            {"hnd", "k_layout", "hnd"},
                                            {"any", "any_block_size", "1"},
                                            {"native", "native", "1"},
                                            {"distinct", "distinct", "1"},
                                            {"varied", "inputs", "varied"}};
  static constexpr std::string_view name_types[] = {"kv_dtype", "q_dtype"}, name_mode = "quant_mode";
  static void imply(Words& words) {
    const auto kv = words.values.find("kv_dtype");
    if (kv != words.values.end() && kv->second == "f16") words.imply("q_dtype", "kv_dtype");
  }
  void complete() {}
  std::string fault() const {
    const std::pair<const char*, int> counts[] = {{"block_size", block_size},        {"mtp", mtp},
                                                  {"head_size", head_size},          {"batch_size", batch},
                                                  {"num_q_heads", num_q_heads},      {"num_kv_heads", num_kv_heads},
                                                  {"context_length", context_length}};
    if (soft_cap < 0) return "soft_cap is below 0";
    for (const auto& [name, count] : counts) {
      if (count < 1) return std::string(name) + " is below 1 or missing";
    }
    if (context_length < mtp) return "context_length is below mtp";
    if (num_q_heads > 1 << 16 || num_kv_heads > 1 << 16) return "more than 65536 heads";
    if (std::int64_t{batch} * mtp * num_q_heads > std::numeric_limits<std::int32_t>::max())
      return "2^31 query heads or more";
    const double slots = static_cast<double>(num_pages()) * block_size * num_kv_heads * head_size;
    if (slots > 0x1p38 || num_pages() > std::numeric_limits<std::int32_t>::max())
      return "a cache of more than 2^38 elements";
    return "";
  }

  template <class Case, class Visit>  // a PagedAttentionCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "pa_decode");
    visit("arch", c.arch);
    visit("q_dtype", c.q);
    visit("kv_dtype", c.kv);
    visit("quant_mode", c.quant);
    visit("block_size", c.block_size);
    visit("mtp", c.mtp);
    visit("head_size", c.head_size);
    visit("batch_size", c.batch);
    visit("context_length", c.context_length);
    visit("num_q_heads", c.num_q_heads);
    visit("num_kv_heads", c.num_kv_heads);
    visit("k_layout", c.layout);
    if (c.layout == KvLayout::units) {
      visit.words("v_layout", c.trans_v, "plain", "shuffled");
    } else {
      visit.derived("v_layout", c.layout);
    }
    visit("any_block_size", c.any_block_size);
    visit("native", c.native);
    visit("kv_varlen", c.kv_varlen);
    visit("sliding_window", c.sliding_window);
    visit("sinks", c.sinks);
    visit("soft_cap", c.soft_cap);
    visit("alibi", c.alibi);
    visit("split_tokens", c.split_tokens);
    visit("stage_starts", c.stage_starts);
    visit("distinct", c.distinct_pages);
    visit("inputs", c.inputs);
    visit("seed", c.seed);
  }

  constexpr int table_columns() const { return ceil_div(context_length, block_size); }
  constexpr std::int64_t num_pages() const {
    // The larger pool holds 16384 tokens a sequence, as in FlyDSL's tests/kernels/test_pa.py.
    return std::int64_t{batch} *
           ceil_div(distinct_pages ? context_length : std::max(16384, context_length), block_size);
  }
};

/// A case with an fp8 or bf16 cache, in the fp8 flavour of `arch`.
constexpr PagedAttentionCase case_of(ArchId arch, Scaling quant) {
  PagedAttentionCase c;
  c.arch = arch;
  c.quant = quant;
  c.kv = quant == Scaling::none ? DType::bf16 : facts_of(arch).fp8;
  return c;
}

/// `gfx950/fp8.per_token/bs1024/mtp1/h128/b3/c1027/hq8/hkv1/vt1/vl0/sw0`: every field that is swept, in one order.
/// Other fields follow where they are not the default.
inline std::string name_of(const PagedAttentionCase& c) {
  const auto field = [](const char* key, long value) { return std::string("/") + key + std::to_string(value); };
  std::string name = std::string(name_of(c.arch)) + "/" + (is_fp8(c.kv) ? "fp8." : "") +
                     (is_fp8(c.kv) ? std::string(name_of(c.quant)) : std::string(name_of(c.kv)));
  name += field("bs", c.block_size) + field("mtp", c.mtp) + field("h", c.head_size) + field("b", c.batch) +
          field("c", c.context_length) + field("hq", c.num_q_heads) + field("hkv", c.num_kv_heads) +
          field("vt", c.trans_v) + field("vl", c.kv_varlen) + field("sw", c.sliding_window);
  if (c.q != DType::bf16) name += "/" + std::string(name_of(c.q));
  if (c.layout != KvLayout::units) name += "/" + std::string(name_of(c.layout));
  if (c.any_block_size) name += "/any";
  if (c.native) name += "/native";
  if (c.sinks) name += "/sinks";
  if (c.soft_cap > 0) name += field("cap", c.soft_cap);
  if (c.alibi) name += "/alibi";
  if (c.split_tokens > 0) name += field("split", c.split_tokens);
  if (c.stage_starts) name += "/starts";
  if (c.distinct_pages) name += "/distinct";
  if (c.inputs == Inputs::varied) name += "/varied";
  return name;
}

/// A case of a spec. token_major specs get NHD caches, and specs with a soft cap get Gemma 2's of 50.
constexpr PagedAttentionCase case_of(ArchId arch, const PagedAttentionSpec& spec) {
  PagedAttentionCase c;
  c.arch = arch;
  c.q = spec.q;
  c.kv = spec.kv;
  c.quant = spec.quant;
  c.head_size = spec.head_size;
  c.layout = spec.values == ValueLayout::token_major ? KvLayout::nhd : KvLayout::units;
  c.any_block_size = spec.any_block_size;
  c.native = spec.native;
  c.soft_cap = spec.soft_cap ? 50 : 0;
  c.alibi = spec.alibi;
  return c;
}

constexpr PagedAttentionSpec spec_of(const PagedAttentionCase& c) {
  return {.q = c.q,
          .kv = c.kv,
          .out = c.q,
          .quant = c.quant,
          .head_size = c.head_size,
          .values = c.layout == KvLayout::units ? ValueLayout::dim_major : ValueLayout::token_major,
          .any_block_size = c.any_block_size,
          .soft_cap = c.soft_cap > 0,
          .alibi = c.alibi,
          .native = c.native};
}

constexpr PagedKeyStrides key_strides(const PagedAttentionSpec& s, KvLayout layout, int kv_heads, int block_size) {
  return layout == KvLayout::units ? packed_key_strides(s, kv_heads, block_size)
         : layout == KvLayout::nhd ? nhd_key_strides(s, kv_heads, block_size)
                                   : hnd_key_strides(s, kv_heads, block_size);
}
constexpr PagedValueStrides value_strides(const PagedAttentionSpec& s, KvLayout layout, bool trans_v, int kv_heads,
                                          int block_size) {
  return layout == KvLayout::units ? packed_value_strides(s, kv_heads, block_size, trans_v)
         : layout == KvLayout::nhd ? nhd_value_strides(s, kv_heads, block_size)
                                   : hnd_value_strides(s, kv_heads, block_size);
}

/// The call without its pointers. Q is a slice of a fused qkv tensor [batch * mtp, (Hq + 2 Hkv) * D]; rows of the
/// block table are one column further apart than they are wide. Everything else is packed.
inline PagedAttentionProblem shape_of(const PagedAttentionCase& c) {
  PagedAttentionProblem p;
  p.spec = spec_of(c);
  p.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_size)));
  p.sliding_window = c.sliding_window;
  p.soft_cap = static_cast<float>(c.soft_cap);
  p.split_tokens = c.split_tokens;
  p.balanced = c.stage_starts;
  p.batch = c.batch;
  p.mtp = c.mtp;
  p.num_q_heads = c.num_q_heads;
  p.num_kv_heads = c.num_kv_heads;
  p.block_size = c.block_size;
  p.table_columns = c.table_columns();
  p.num_pages = c.num_pages();
  p.q_row_stride = std::int64_t{c.num_q_heads + 2 * c.num_kv_heads} * c.head_size;
  p.q_head_stride = p.out_head_stride = c.head_size;
  p.out_row_stride = std::int64_t{c.num_q_heads} * c.head_size;
  p.k_strides = key_strides(p.spec, c.layout, c.num_kv_heads, c.block_size);
  p.v_strides = value_strides(p.spec, c.layout, c.trans_v, c.num_kv_heads, c.block_size);
  p.scale_page_stride = std::int64_t{c.num_kv_heads} * c.block_size;
  p.scale_head_stride = c.quant == Scaling::per_head ? 1 : c.block_size;
  p.table_row_stride = p.table_columns + 1;
  return p;
}

/// The context lengths, [batch].
inline std::vector<std::int32_t> lengths_of(const PagedAttentionCase& c) {
  std::vector<std::int32_t> lengths(c.batch, c.context_length);
  for (int b = 0; c.kv_varlen && b < c.batch; ++b) {
    const std::uint64_t bits = random_bits({c.seed, 'l', static_cast<std::uint64_t>(b)});
    lengths[b] = c.mtp + static_cast<std::int32_t>(random_below(bits, c.context_length - c.mtp + 1));
  }
  return lengths;
}

/// The block table, [batch, table_row_stride]. Entries that no length reaches hold INT_MAX and -1, which nobody may
/// follow.
inline std::vector<std::int32_t> table_of(const PagedAttentionCase& c, const std::vector<std::int32_t>& lengths) {
  const int columns = c.table_columns(), stride = columns + 1;
  const std::int64_t pages = c.num_pages();
  std::vector<std::int32_t> order;
  if (c.distinct_pages) {  // Fisher and Yates
    order.resize(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    for (std::int64_t i = pages - 1; i > 0; --i) {
      std::swap(order[i], order[random_below(random_bits({c.seed, 'p', static_cast<std::uint64_t>(i)}), i + 1)]);
    }
  }
  std::vector<std::int32_t> table(static_cast<std::size_t>(c.batch) * stride);
  for (int b = 0; b < c.batch; ++b) {
    const int used = ceil_div(std::max(lengths[b], 0), c.block_size);
    for (int column = 0; column < stride; ++column) {
      std::int32_t& page = table[static_cast<std::size_t>(b) * stride + column];
      const auto at = static_cast<std::uint64_t>(b) * columns + column;
      if (column >= used) {
        page = column % 2 ? -1 : std::numeric_limits<std::int32_t>::max();
      } else {
        page = c.distinct_pages ? order[at]
                                : static_cast<std::int32_t>(random_below(random_bits({c.seed, 't', at}), pages));
      }
    }
  }
  return table;
}

/// The number n of slots [0, n) that some sequence uses, for each page: [num_pages].
inline std::vector<std::int32_t> used_slots(const PagedAttentionCase& c, const std::vector<std::int32_t>& lengths,
                                            const std::vector<std::int32_t>& table) {
  std::vector<std::int32_t> used(static_cast<std::size_t>(c.num_pages()), 0);
  for (int b = 0; b < c.batch; ++b) {
    for (int first = 0, column = 0; first < lengths[b]; first += c.block_size, ++column) {
      std::int32_t& slots = used[table[static_cast<std::size_t>(b) * (c.table_columns() + 1) + column]];
      slots = std::max(slots, std::min(c.block_size, lengths[b] - first));
    }
  }
  return used;
}

/// The work that the call cannot avoid. bytes: every input and output byte that it needs, once. These are attended K
/// and V slots with their scales, where a slot that several sequences attend counts once, Q, out, lse, block table,
/// lengths, sinks and slopes. flops: two products of head_size multiply-adds for every visible pair of a query row and
/// a token, exact under both masks.
using PagedAttentionWork = Work;

inline PagedAttentionWork work_of(const PagedAttentionCase& c, const std::vector<std::int32_t>& lengths,
                                  const std::vector<std::int32_t>& table) {
  std::vector<bool> attended(static_cast<std::size_t>(c.num_pages()) * c.block_size);
  std::int64_t visible_rows = 0, table_entries = 0;
  for (int b = 0; b < c.batch; ++b) {
    for (int i = 0; i < c.mtp; ++i) {
      visible_rows += reference::visible_tokens(lengths[b], c.mtp, i, c.sliding_window).count() * c.num_q_heads;
    }
    // This is the union over the query tokens: the first one begins earliest, and the last one ends latest.
    const std::int64_t first = reference::visible_tokens(lengths[b], c.mtp, 0, c.sliding_window).first;
    const std::int64_t end = std::max(lengths[b], 0);
    for (std::int64_t t = first; t < end; ++t) {
      const std::int64_t page = table[static_cast<std::size_t>(b) * (c.table_columns() + 1) + t / c.block_size];
      attended[page * c.block_size + t % c.block_size] = true;
    }
    if (end > first) table_entries += ceil_div<std::int64_t>(end, c.block_size) - first / c.block_size;
  }
  const std::int64_t slots = std::count(attended.begin(), attended.end(), true) * c.num_kv_heads;
  const std::int64_t rows = std::int64_t{c.batch} * c.mtp * c.num_q_heads;
  const std::int64_t scales = c.quant == Scaling::per_token    ? slots
                              : c.quant == Scaling::per_head   ? c.num_kv_heads
                              : c.quant == Scaling::per_tensor ? 1
                                                               : 0;
  return {.bytes = 2 * (slots * c.head_size * size_of(c.kv) + 4 * scales) + rows * (2 * 2 * c.head_size + 4) +
                   4 * (table_entries + c.batch + c.num_q_heads * (std::int64_t{c.sinks} + c.alibi)),
          .flops = std::int64_t{4} * c.head_size * visible_rows};
}

}  // namespace tilewave::bench
