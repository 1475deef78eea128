// SPDX-License-Identifier: MIT
// Writes entries.json: what every AMD code object claims, taken from the registry. tools/isa holds the compiled code to
// it, and bench_pa --export-bundle finds an entry's code object by it.
//
//   write_entries FILE

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/norm/wide_specs.hpp"
#include "tilewave/ops/paged_attention/feature_specs.hpp"
#include "tilewave/ops/quant/registry.hpp"
#include "tilewave/ops/softmax/registry.hpp"

namespace {

using namespace tilewave;
using nlohmann::ordered_json;

/// As llvm-objdump prints the room's atom on a type, without `v_mfma_`.
template <ArchId arch>
std::string atom_name(DType type) {
  constexpr AtomFacts atom = atom_of(arch);
  return "f32_" + std::to_string(atom.rows) + "x" + std::to_string(atom.kv) + "x" + std::to_string(atom.k) + "_" +
         std::string(name_of(type));
}
/// The types of both products, each once.
template <ArchId arch>
ordered_json atom_names(const PagedAttentionSpec& spec) {
  ordered_json names = ordered_json::array({atom_name<arch>(spec.q)});
  if (spec.value_type() != spec.q) names.push_back(atom_name<arch>(spec.value_type()));
  return names;
}
/// Bytes of the loads that bring K and V.
template <ArchId arch>
ordered_json kv_widths(const PagedAttentionSpec& spec) {
  const int piece = value_tiles(atom_of(arch), spec).width * size_of(spec.kv);
  ordered_json widths = ordered_json::array({16});
  if (spec.values == ValueLayout::token_major && piece != 16) widths.push_back(piece);
  return widths;
}

template <ArchId arch, PagedAttentionSpec spec, PagedAttentionPolicy policy>
ordered_json decode_claims(const std::string& prefix, int index) {
  using Kernel = PagedAttentionDecode<host::Backend<arch>, spec, policy>;
  const std::string name(name_of(arch));
  return {{"code_object", prefix + name + "_" + std::to_string(index) + ".co"},
          {"arch", name},
          {"index", index},
          {"kernel", "decode"},
          {"spec", name_of(spec)},
          {"policy", name_of(policy, spec)},
          {"waves_per_simd", policy.waves_per_simd},
          {"waves_per_block", policy.waves_per_block()},
          {"lds_bytes", std::is_empty_v<typename Kernel::Shared> ? 0 : sizeof(typename Kernel::Shared)},
          {"mfma", atom_names<arch>(spec)},
          // matrix instructions that one lane's 16-byte piece of K or V feeds
          {"mfma_per_load", spec.unit() / atom_of(arch).k_per_lane * policy.row_tiles},
          {"kv_widths", kv_widths<arch>(spec)}};
}

template <ArchId arch, int head_size, DType out = DType::bf16>
ordered_json combine_claims() {
  using Kernel = PagedAttentionCombine<host::Backend<arch>, head_size, out>;
  static_assert(std::is_empty_v<typename Kernel::Shared>);
  const std::string name(name_of(arch));
  const std::string spec = combine_name(head_size, out);
  return {{"code_object", "combine_" + name + "_" + spec + ".co"},
          {"arch", name},
          {"kernel", "combine"},
          {"spec", spec},
          {"policy", ""},
          {"waves_per_simd", Kernel::waves_per_simd},
          {"waves_per_block", Kernel::waves},
          {"lds_bytes", 0},
          {"mfma", nullptr}};
}

/// The combine after the balanced entry of a spec; its code object is named by the spec's index.
template <ArchId arch, PagedAttentionSpec spec, PagedAttentionPolicy policy>
ordered_json balanced_combine_claims(int index) {
  using Kernel = PagedAttentionBalancedCombine<host::Backend<arch>, spec, policy>;
  const std::string name(name_of(arch));
  return {{"code_object", "balanced_combine_" + name + "_" + std::to_string(index) + ".co"},
          {"arch", name},
          {"index", index},
          {"kernel", "balanced_combine"},
          {"spec", name_of(spec)},
          {"policy", name_of(policy, spec)},
          {"waves_per_simd", Kernel::waves_per_simd},
          {"waves_per_block", Kernel::waves},
          {"lds_bytes", sizeof(typename Kernel::Shared)},
          {"mfma", nullptr}};
}

/// What the code of a row kernel must hold, beside what every kernel must; docs/isa.md says how tools/isa counts it.
struct RowUse {
  int inputs = 1;         // row tensors: x, and a residual
  int row_outputs = 1;    // row tensors written: the output, and a sum with the residual
  int exchanges = 1;      // between the waves of a row: one barrier each
  int values = 1;         // that they reduce over the row, all together
  int scalar_loads = 0;   // of 4 bytes: a tensor's scale, a row's length
  int scalar_stores = 0;  // of 4 bytes: statistics
};

/// Only the output's own type and scales matter beside `use`.
template <ArchId arch>
ordered_json row_claims(RowUse use, DType x, DType out, ScaleMode mode, const RowPolicy& p) {
  constexpr int wave = facts_of(arch).wave_lanes;
  const auto steps = [](int lanes) {
    int n = 0;
    while (lanes >> (n + 1) != 0) ++n;
    return n;
  };
  const int unit = p.vec / size_of(x), waves_per_row = std::max(1, p.lanes / wave);
  use.exchanges += mode == ScaleMode::per_token;
  use.values += mode == ScaleMode::per_token;
  use.scalar_stores += mode == ScaleMode::per_token;
  use.scalar_loads += mode == ScaleMode::per_tensor;
  const int partials = waves_per_row > 1 ? use.values * p.rows * waves_per_row : 0;
  const int spans = p.chunks / p.span;
  int group_steps = 0;
  if (mode == ScaleMode::per_group) {
    use.scalar_stores += spans;
    group_steps = spans * steps(scale_group / (unit * p.span));
  }
  // The rows of one tile in accesses of 16 bytes. A narrow output joins chunks of a span, and needs one store for each
  // but the last of them where a row ends between two.
  const int joined = std::max(1, std::min(p.span, 16 / (unit * size_of(out))));
  const int pieces = p.chunks / joined * (joined - 1);
  const int output_stores = p.chunks * unit * size_of(out) / 16;
  // The residual of a row comes in parts where the row is long. Lanes of one wave with rows of their own mask x before it.
  const bool beside = p.chunks <= 8 && p.lanes >= wave;
  return {{"vector", p.vec == 16},
          // clang joins single elements in registers, and waits for them, before it loads the next
          {"bytes_in_flight", p.held && p.vec == 16 ? p.chunks * p.vec * (beside ? use.inputs : 1) : 0},
          {"wide_loads", p.chunks * use.inputs},
          {"wide_stores", output_stores + p.chunks * (use.row_outputs - 1)},
          {"narrow_load_bytes", 4 * use.scalar_loads},
          {"narrow_store_bytes", 4 * use.scalar_stores + pieces * unit * size_of(out)},
          {"dpp", use.values * (steps(std::min(p.lanes, wave)) + steps(waves_per_row)) + group_steps},
          {"barriers", waves_per_row > 1 ? use.exchanges : 0},
          {"lds_bytes", partials * int{sizeof(float)}}};
}

template <ArchId arch>
ordered_json row_claims(const NormSpec& s, const RowPolicy& p) {
  // Of layers the sum and the squares.
  const RowUse use{.inputs = 2, .row_outputs = 2, .values = s.kind == NormKind::layer ? 2 : 1, .scalar_stores = 2};
  return row_claims<arch>(use, s.x, s.out, s.scale, p);
}
template <ArchId arch>
ordered_json row_claims(const SoftmaxSpec& s, const RowPolicy& p) {
  const RowUse use{.values = 2, .scalar_loads = 1, .scalar_stores = 1};  // maximum and sum together
  return row_claims<arch>(use, s.x, s.x, ScaleMode::none, p);
}
template <ArchId arch>
ordered_json row_claims(const QuantSpec& s, const RowPolicy& p) {
  RowUse use{.exchanges = 0, .values = 0};
  if (s.kind() == QuantKind::dequantise) use.scalar_loads = s.scale == ScaleMode::per_group ? p.chunks : 1;
  return row_claims<arch>(use, s.x, s.out, s.output().scale, p);
}

/// All entries of a row operation: the i-th policy of the s-th spec is the kernel RowEntryKernel<s, i>, in the code
/// object of its ROW_GROUP specs.
template <ArchId arch, class Specs, class Policies>
void add_rows(ordered_json& file, const std::string& list, const char* op, const Specs& specs, Policies policies_of) {
  const std::string name(name_of(arch));
  for (std::size_t s = 0; s < specs.size(); ++s) {
    const RowPolicies policies = policies_of(arch, specs[s]);
    const std::string code_object = list + "_" + name + "_" + std::to_string(s / ROW_GROUP) + ".co";
    for (int i = 0; i < policies.count; ++i) {
      const RowPolicy& policy = policies.list[i];
      const ordered_json row = row_claims<arch>(specs[s], policy);
      file["entries"].push_back({{"code_object", code_object},
                                 {"symbol", "RowEntryKernelILi" + std::to_string(s) + "ELi" + std::to_string(i) + "EE"},
                                 {"arch", name},
                                 {"kernel", op},
                                 {"spec", name_of(specs[s])},
                                 {"policy", name_of(policy)},
                                 {"waves_per_simd", policy.waves_per_simd},
                                 {"waves_per_block", policy.block_threads() / facts_of(arch).wave_lanes},
                                 {"lds_bytes", row["lds_bytes"]},
                                 {"mfma", nullptr},
                                 {"row", row}});
    }
  }
}

template <ArchId arch>
void add_arch(ordered_json& file) {
  constexpr ArchFacts facts = facts_of(arch);
  file["archs"][std::string(name_of(arch))] = {{"lds_bytes", facts.lds_bytes},
                                               {"simds_per_cu", facts.simds_per_cu},
                                               {"max_waves_per_simd", facts.max_waves_per_simd},
                                               {"register_file_lanes", facts.register_file_lanes},
                                               {"register_granule", facts.register_granule}};
  static constexpr auto specs = paged_attention_specs(arch);
  int index = 0;
  static_for<specs.size()>([&](auto s) {
    static constexpr auto policies = paged_attention_policies(arch, specs[s]);
    static_for<policies.size()>([&](auto p) {
      file["entries"].push_back(decode_claims<arch, specs[s], policies[p]>("pa_", index++));
      if constexpr (policies[p].balanced()) {
        file["entries"].push_back(balanced_combine_claims<arch, specs[s], policies[p]>(s));
      }
    });
  });
  static constexpr auto features = paged_attention_feature_specs(arch);
  static_for<features.size()>([&](auto s) {
    static constexpr PagedAttentionPolicy policy = paged_attention_other_policy(arch, features[s]);
    file["entries"].push_back(decode_claims<arch, features[s], policy>("pa_feature_", s));
  });
  static_for<std::size(paged_attention_head_sizes)>(
      [&](auto i) { file["entries"].push_back(combine_claims<arch, paged_attention_head_sizes[i]>()); });
  file["entries"].push_back(combine_claims<arch, 64, DType::f16>());
  file["entries"].push_back(combine_claims<arch, 128, DType::f16>());
  add_rows<arch>(file, "norm", "norm", norm_specs(arch), norm_policies);
  add_rows<arch>(file, "norm_wide", "norm", norm_wide_specs(arch), norm_policies);
  add_rows<arch>(file, "quant", "quant", quant_specs(arch), quant_policies);
  add_rows<arch>(file, "softmax", "softmax", softmax_specs(arch), softmax_policies);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_entries FILE\n");
    return 2;
  }
  ordered_json file{{"schema", "tilewave-isa-entries/1"}};
  add_arch<ArchId::gfx942>(file);
  add_arch<ArchId::gfx950>(file);
  std::ofstream out(argv[1]);
  out << file.dump(1) << "\n";
  out.close();
  if (!out) {
    std::fprintf(stderr, "write_entries: cannot write %s\n", argv[1]);
    return 1;
  }
  return 0;
}
