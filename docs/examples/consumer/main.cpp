// SPDX-License-Identifier: MIT
// The smallest user of an installed tilewave: one paged-attention decode on the emulated gfx950. Exits 0 when the answer is
// right. On a GPU the only differences are the room's header and name, and device memory.
#include <cmath>
#include <cstdio>
#include <tilewave/arch/host/backend.hpp>
#include <tilewave/tilewave.hpp>
#include <vector>

using namespace tilewave;
using Room = host::Backend<ArchId::gfx950>;  // on silicon: gfx942::Backend, gfx950::Backend or sm90::Backend

int main() {
  constexpr PagedAttentionSpec spec{.kv = DType::bf16, .head_size = 128};
  constexpr int sequences = 2, q_heads = 8, kv_heads = 1, page = 16, pages = 8, length = 50;

  // Queries of zero attend to every token alike; V holds the token's position, so each answer is the mean position.
  std::vector<std::uint16_t> q(sequences * q_heads * 128), out(q.size()), k(pages * page * 128), v(k.size());
  const std::vector<std::int32_t> table{3, 1, 4, 0, 2, 5, 7, 6}, lengths{length, length};
  // K in units of 16 bytes, V the same with tokens shuffled into units: the strides follow from the sizes.
  PagedAttentionProblem problem = PagedAttentionProblem::in_units({.q = q.data(),
                                                                   .k = k.data(),
                                                                   .v = v.data(),
                                                                   .out = out.data(),
                                                                   .block_table = table.data(),
                                                                   .context_lengths = lengths.data(),
                                                                   .spec = spec,
                                                                   .batch = sequences,
                                                                   .num_q_heads = q_heads,
                                                                   .num_kv_heads = kv_heads,
                                                                   .block_size = page,
                                                                   .table_columns = 4,
                                                                   .num_pages = pages},
                                                                  /*shuffled=*/true);
  const PagedValueStrides& v_strides = problem.v_strides;
  for (int sequence = 0; sequence < sequences; ++sequence)
    for (int t = 0; t < length; ++t)
      for (int d = 0; d < 128; ++d)
        v[table[sequence * 4 + t / page] * v_strides.page + t % page / 8 * v_strides.unit + d * v_strides.dim + t % 8] =
            f32_to_bf16(static_cast<float>(t));

  PagedAttentionPlan plan;
  Status status = paged_attention_plan<Room, spec>(problem, plan);
  std::vector<std::byte> workspace(plan.workspace_bytes(problem));
  problem.workspace = workspace.data(), problem.workspace_bytes = workspace.size();
  if (status.ok()) status = plan.launch(problem, nullptr);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n%s", name_of(status.code).data(), status.reason, plan.explain(problem).c_str());
    return 1;
  }

  const float mean = bf16_to_f32(out[0]);
  std::printf("tilewave %d.%d.%d, entry %s: mean position %g\n", TILEWAVE_VERSION_MAJOR, TILEWAVE_VERSION_MINOR,
              TILEWAVE_VERSION_PATCH, plan.name().c_str(), static_cast<double>(mean));
  for (const std::uint16_t bits : out)
    if (std::fabs(bf16_to_f32(bits) - (length - 1) / 2.0f) > 0.1f) return 1;
  return 0;
}
