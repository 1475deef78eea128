// SPDX-License-Identifier: MIT
// The second launch of balanced entries by itself. The test writes the partials, as decode would leave them.
#include <cmath>
#include <limits>
#include <vector>

#include "test/catch_compat.hpp"
#include "test/poison.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {
namespace {

template <ArchId arch>
constexpr PagedAttentionPolicy balanced_policy() {
  for (const PagedAttentionPolicy& policy : paged_attention_policies(arch, paged_attention_specs(arch)[0])) {
    if (policy.balanced()) return policy;
  }
  return {};
}

/// One long sequence among empty ones, with a stage for each block of the chip. Partial w of its rows is w everywhere.
template <ArchId arch>
void combine_all_blocks() {
  using B = host::Backend<arch>;
  static constexpr PagedAttentionSpec spec = paged_attention_specs(arch)[0];
  static constexpr PagedAttentionPolicy policy = balanced_policy<arch>();
  using Combine = PagedAttentionBalancedCombine<B, spec, policy>;
  const int workers = paged_attention_chip_blocks(policy, B::facts), tokens = policy.block_tokens(spec);
  constexpr int heads = policy.block_rows();                     // one row block
  const int sequences = 2 * B::facts.compute_units / heads + 1;  // more rows than share waves

  std::vector<std::int32_t> lengths(sequences, 0);
  lengths[0] = workers * tokens;
  std::vector<std::uint16_t> out(std::size_t(sequences) * heads * spec.head_size, unwritten_half);
  std::vector<float> lse(sequences * heads, 7.0f);
  PagedAttentionProblem p{.spec = spec, .batch = sequences, .mtp = 1, .num_q_heads = heads, .num_kv_heads = 1};
  p.out = out.data();
  p.lse = lse.data();
  p.context_lengths = lengths.data();
  p.block_size = tokens;
  p.table_columns = workers;
  p.out_head_stride = spec.head_size;
  p.out_row_stride = heads * spec.head_size;
  const std::size_t bytes = paged_attention_workspace_size(p, policy, B::facts, 1);
  std::vector<float> workspace(bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  p.workspace = workspace.data();
  p.workspace_bytes = bytes;
  const PagedAttentionArgs args = paged_attention_args(p, policy, B::facts, 1);
  for (int w = 0; w < workers; ++w) {
    const int slot = 2 * w + (w == 0 ? 1 : 0);
    for (int row = 0; row < heads; ++row) {
      const std::size_t part = std::size_t(slot) * policy.block_rows() + row;
      args.partial_lse[part] = 0.0f;
      for (int d = 0; d < spec.head_size; ++d) args.partial_out[part * spec.head_size + d] = static_cast<float>(w);
    }
  }

  REQUIRE(args.combine_waves.divisor == 1);
  const LaunchShape shape{.grid = ceil_div(args.output_rows, Combine::waves), .block = Combine::block_threads};
  REQUIRE(B::template launch<Combine>(shape, args, nullptr).ok());
  const std::uint16_t mean = f32_to_bf16(static_cast<float>(workers - 1) / 2);
  for (int row = 0; row < heads; ++row) {
    CHECK(out[row * spec.head_size] == mean);
    CHECK(lse[row] == Approx(std::log(workers)).epsilon(1e-6));
  }
  for (std::size_t row = heads; row < lse.size(); ++row) {
    REQUIRE(out[row * spec.head_size] == 0);
    REQUIRE(lse[row] == -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

TEST_CASE("a row that lies with every block of a balanced launch is the sum of all its parts") {
  combine_all_blocks<ArchId::gfx942>();
  combine_all_blocks<ArchId::gfx950>();
  combine_all_blocks<ArchId::sm90>();
}

}  // namespace tilewave::test
