// SPDX-License-Identifier: MIT
// Writes entries.json: what every AMD code object claims, taken from the registry. tilewave isa holds the compiled code
// to it, and bench_pa --export-bundle finds an entry's code object by it.
//
//   write_entries FILE

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "isa/row_claims.hpp"
#include "test/isa/gemm_claims.hpp"
#include "test/isa/row_claims.hpp"
#include "test/isa/row_objects.hpp"
#include "test/isa/slice.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/gemm/specs/gated.hpp"
#include "tilewave/ops/gemm/specs/int4.hpp"
#include "tilewave/ops/gemm/specs/moe.hpp"
#include "tilewave/ops/gemm/specs/mx.hpp"
#include "tilewave/ops/paged_attention/specs/features.hpp"
#include "tilewave/ops/paged_attention/specs/scores.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::test;

/// Returns the name of the room's atom on a type as llvm-objdump prints it, without `v_mfma_`.
template <ArchId arch>
std::string atom_name(DType type) {
  constexpr AtomFacts atom = atom_of(arch);
  return "f32_" + std::to_string(atom.rows) + "x" + std::to_string(atom.kv) + "x" + std::to_string(atom.k) + "_" +
         std::string(name_of(type));
}
/// The types of both products, each once.
template <ArchId arch>
ordered_json atom_names(const PagedAttentionSpec& spec, bool fp8_keys) {
  ordered_json names = ordered_json::array({fp8_keys ? "f32_16x16x32_fp8_fp8" : atom_name<arch>(spec.q)});
  if (fp8_keys || spec.value_type() != spec.q) names.push_back(atom_name<arch>(spec.value_type()));
  return names;
}
/// Bytes of the loads that bring K and V.
template <ArchId arch>
ordered_json kv_widths(const PagedAttentionSpec& spec) {
  const int piece = value_tiles(atom_of(arch), spec.value_shape()).width * size_of(spec.kv);
  ordered_json widths = ordered_json::array({16});
  if (spec.values == ValueLayout::token_major && piece != 16) widths.push_back(piece);
  return widths;
}

/// What a decode kernel claims, beside its name. It is a template of the chip alone, for the reason that GemmClaims gives.
template <ArchId arch>
ordered_json decode_entry(const std::string& prefix, int index, bool full, const PagedAttentionSpec& spec,
                          const PagedAttentionPolicy& policy, std::size_t lds_bytes, bool fp8_keys) {
  const std::string name(name_of(arch));
  return {{"code_object", prefix + name + "_" + std::to_string(index) + ".co"},
          {"full", full},
          {"arch", name},
          {"index", index},
          {"kernel", "decode"},
          {"spec", name_of(spec)},
          {"policy", name_of(policy, spec)},
          {"waves_per_simd", policy.waves_per_simd},
          {"waves_per_block", policy.waves_per_block()},
          {"lds_bytes", lds_bytes},
          {"mfma", atom_names<arch>(spec, fp8_keys)},
          // matrix instructions that one lane's 16-byte piece of K or V feeds
          {"mfma_per_load", spec.unit() / atom_of(arch).k_per_lane * policy.row_tiles},
          {"kv_widths", kv_widths<arch>(spec)}};
}
template <ArchId arch, PagedAttentionSpec spec, PagedAttentionPolicy policy>
ordered_json decode_claims(const std::string& prefix, int index, bool full = false) {
  using Kernel = PagedAttentionDecode<host::Backend<arch>, spec, policy>;
  using Shared = typename Kernel::Shared;
  return decode_entry<arch>(prefix, index, full, spec, policy, std::is_empty_v<Shared> ? 0 : sizeof(Shared),
                            Kernel::L::fp8_keys);
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
ordered_json balanced_combine_claims(int index, bool full) {
  using Kernel = PagedAttentionBalancedCombine<host::Backend<arch>, spec, policy>;
  const std::string name(name_of(arch));
  return {{"code_object", "balanced_combine_" + name + "_" + std::to_string(index) + ".co"},
          {"full", full},
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

/// An entry of a row kernel: what it is by name, and what it claims.
template <ArchId arch, class Policy>
ordered_json row_entry(const std::string& code_object, const std::string& symbol, const char* kernel,
                       const std::string& spec, const Policy& policy, const ordered_json& row, bool full = false) {
  return {{"code_object", code_object + ".co"},
          {"full", full},
          {"symbol", symbol},
          {"arch", std::string(name_of(arch))},
          {"kernel", kernel},
          {"spec", spec},
          {"policy", name_of(policy)},
          {"waves_per_simd", policy.waves_per_simd},
          {"waves_per_block", policy.block_threads() / facts_of(arch).wave_lanes},
          {"lds_bytes", row["lds_bytes"]},
          {"mfma", nullptr},
          {"row", row}};
}

/// All entries of a row operation: the i-th policy of the s-th spec is the kernel RowEntryKernel<s, i>.
template <ArchId arch, class Specs, class Policies>
void add_rows(ordered_json& file, const std::string& list, const char* op, const Specs& specs, Policies policies_of) {
  for (std::size_t s = 0; s < specs.size(); ++s) {
    const auto policies = policies_of(arch, specs[s]);
    for (std::size_t i = 0; i < policies.size(); ++i) {
      const std::size_t object = row_object(s, i, specs.size());
      const std::string code_object = list + "_" + std::string(name_of(arch)) + "_" + std::to_string(object);
      const std::string symbol = "RowEntryKernelILi" + std::to_string(s) + "ELi" + std::to_string(i) + "EE";
      file["entries"].push_back(row_entry<arch>(code_object, symbol, op, name_of(specs[s]), policies[i],
                                                row_claims<arch>(specs[s], policies[i]),
                                                !in_slice(arch, list, op, object)));
    }
  }
}

/// Both kernels that find the scale of a tensor.
template <ArchId arch>
void add_find_scale(ordered_json& file) {
  constexpr DType codes = facts_of(arch).fp8;
  constexpr QuantSpec spec{.out = codes, .scale = Scaling::per_tensor};
  const auto add = [&](const std::string& symbol, const RowPolicy& policy, const ordered_json& row) {
    file["entries"].push_back(row_entry<arch>("find_scale_" + std::string(name_of(arch)), symbol,
                                              symbol.starts_with("Amax") ? "find_amax" : "find_scale", name_of(spec),
                                              policy, row));
  };
  const auto policies = quant_policies(arch, spec);
  for (std::size_t p = 0; p < policies.size(); ++p) {
    // A wave's partial result is its own; smooth is not part of what must be in flight.
    const RowUse use{.row_outputs = 0, .exchanges = 0, .scalar_stores = 1};
    ordered_json row = row_claims<arch>(use, spec.x, spec.x, Scaling::none, policies[p]);
    row["lds_bytes"] = 0;
    row["dpp"] = 6;
    add("AmaxEntryKernelILm" + std::to_string(p) + "EE", policies[p], row);
  }
  constexpr RowPolicy partials = quant_partials_policy();
  add("ScaleEntryKernel", partials,
      row_claims<arch>(RowUse{.row_outputs = 0, .scalar_stores = 1}, DType::f32, DType::f32, Scaling::none, partials));
}

/// Both kernels of a sampling whose rows blocks share: those policies whose rows are read again.
template <ArchId arch>
void add_shared_sampling(ordered_json& file) {
  constexpr SamplingSpec spec{};
  const auto policies = sampling_policies(arch, spec);
  for (std::size_t p = 1; p < policies.size(); ++p) {
    for (const bool weighs : {true, false}) {
      const std::string symbol = (weighs ? "Weigh" : "Draw") + ("EntryKernelILm" + std::to_string(p - 1)) + "EE";
      file["entries"].push_back(row_entry<arch>("shared_sampling_" + std::string(name_of(arch)), symbol,
                                                weighs ? "weigh" : "draw", name_of(spec), policies[p],
                                                shared_row_claims<arch>(policies[p], weighs)));
    }
  }
}

/// Vector instructions that a product of the steady loop may have beside it, on average: of each score the exponent, its
/// power and the sum, of two one for the maximum and what makes a word of them; where the reference of a row is raised
/// all sums are scaled; and addresses. Without ds_read_tr V is transposed in registers.
template <class Kernel>
constexpr double flash_valu() {
  using L = typename Kernel::L;
  constexpr int pack = L::type == DType::f16 ? 3 : 1, instructions = Kernel::Room::facts.direct_copies ? 1 : 2;
  constexpr int turned = Kernel::Room::facts.lds_transposed ? 0 : 24 * L::Values::fetches;
  return (3.0 * L::elements + (1 + pack) * L::pairs + 16 * L::value_tiles + turned + 32) / (instructions * L::products);
}

/// Flash attention through LDS: as GEMM, products at the full rate, no wait that drains loads, and few vector instructions.
template <ArchId arch>
void add_flash_attention(ordered_json& file) {
  static constexpr auto specs = flash_attention_specs(arch);
  static_for<specs.size()>([&](auto s) {
    static constexpr FlashAttentionSpec spec = specs[s];
    if constexpr (has_lds_path(arch, spec)) {
      static constexpr FlashAttentionPolicy policy = flash_attention_policies(arch, spec)[0];
      using Kernel = FlashAttentionLds<host::Backend<arch>, spec, policy>;
      const std::string name(name_of(arch));
      file["entries"].push_back({{"code_object", "flash_attention_" + name + "_" + std::to_string(int{s}) + ".co"},
                                 {"full", !in_slice(arch, spec, s)},
                                 {"symbol", "FlashAttentionEntryKernel"},
                                 {"arch", name},
                                 {"kernel", "flash_attention"},
                                 {"spec", name_of(spec)},
                                 {"policy", name_of(policy)},
                                 {"waves_per_simd", Kernel::waves_per_simd},
                                 {"waves_per_block", Kernel::block_threads / facts_of(arch).wave_lanes},
                                 {"lds_bytes", sizeof(typename Kernel::Shared)},
                                 {"mfma", nullptr},
                                 {"gemm",
                                  {{"mfma", gemm_mfma<arch>(GemmSpec{.a = spec.q}, 32)},
                                   {"writes_lds", !facts_of(arch).direct_copies},
                                   {"valu_of_products", flash_valu<Kernel>()}}}});
    }
  });
}

/// Latent decode through LDS: as flash attention. Vector instructions of a step are the softmax, five for each score, once
/// more with a mask, eight, offsets of copies and of reads, permutes of values, and where a reference is raised two moves
/// and a product of each sum.
template <class Kernel>
ordered_json mla_lds_claims() {
  using L = typename Kernel::L;
  using Loop = MlaLdsMainLoop<L>;
  constexpr double softmax = 13.0 * Loop::elements, offsets = 3 * Loop::copies + 32, raised = 3 * 256;
  return {{"mfma", gemm_mfma<Kernel::Room::facts.id>(GemmSpec{.a = L::spec.q}, L::side)},
          {"writes_lds", L::held},
          // Three stages are the tile whose values are multiplied, the next one, and one that lands during a step.
          {"drains", L::stages == 3},
          {"valu_of_products", (softmax + offsets + Loop::Products::permutes + raised) / Loop::products}};
}

/// Latent decode whose waves have tokens of their own: of codes, products of scores and of values. A load of 16 bytes
/// feeds products of scores, and if it has values, those of values.
template <class Kernel>
ordered_json mla_token_waves_claims(ordered_json entry) {
  using L = typename Kernel::L;
  using Tile = MlaTokenWavesTile<L>;
  constexpr ArchId arch = Kernel::Room::facts.id;
  constexpr int chunks = MlaTokenWavesLoop<L>::chunks;
  const std::string scores = gemm_mfma<arch>(GemmSpec{.a = L::spec.q}, L::side);
  entry["mfma"] = ordered_json::array({scores});
  double of_unit = is_fp8(L::type) ? 2 : 8.0 / atom_of(arch).k_per_lane, keys = L::units * of_unit;
  if (chunks == 2) {
    entry["mfma"].push_back("f32_16x16x32_fp8_fp8");
    keys = L::key_units / chunks + L::rope_units * of_unit;
  }
  entry["mfma_per_load"] = L::row_tiles * (L::key_tiles * keys + L::value_tiles) /
                           (Tile::tokens * Tile::lines + L::key_tiles * L::rope_units);
  entry["kv_widths"] = ordered_json::array({16});
  return entry;
}

/// Latent decode straight to registers: products of the room's atoms, rows of the cache in loads of 16 bytes, or of 8 if
/// codes are widened.
template <ArchId arch>
void add_mla_decode(ordered_json& file) {
  static_for<mla_decode_objects.size()>([&](auto object) {
    static constexpr int index = mla_decode_objects[object];
    static constexpr MlaDecodeSpec spec = mla_decode_specs(arch)[index];
    static constexpr auto policies = mla_decode_policies(arch, spec);
    static_for<policies.size()>([&](auto p) {
      static constexpr MlaDecodePolicy policy = policies[p];
      using Kernel = typename MlaDecodeKernel<host::Backend<arch>, spec, policy>::type;
      const std::string name(name_of(arch));
      constexpr bool lds = policy.path == MlaDecodePath::lds, token_waves = policy.path == MlaDecodePath::token_waves;
      ordered_json mfma = ordered_json::array({atom_name<arch>(DType::bf16)}), widths = ordered_json::array({16});
      double products = 8.0 / atom_of(arch).k_per_lane * policy.row_tiles();
      if (is_fp8(spec.q)) {
        // Sixteen codes of a key feed half a product of 128 k, or two of 32; eight of a value what a unit of bf16 does.
        mfma.push_back(gemm_mfma<arch>(GemmSpec{.a = spec.q}, 16));
        widths.push_back(8);
        products = 2 * products;
      }
      ordered_json entry = {{"code_object", "mla_decode_" + name + "_" + std::to_string(index) + "_" +
                                                std::to_string(std::size_t{p}) + ".co"},
                            {"full", !in_slice(arch, spec, p)},
                            {"symbol", lds           ? "MlaDecodeLds"
                                       : token_waves ? "MlaDecodeTokenWaves"
                                                     : "MlaDecodeRegisters"},
                            {"arch", name},
                            {"kernel", "mla_decode"},
                            {"spec", name_of(spec)},
                            {"policy", name_of(policy)},
                            {"waves_per_simd", policy.waves_per_simd},
                            {"waves_per_block", policy.waves},
                            {"lds_bytes", sizeof(typename Kernel::Shared)}};
      if constexpr (lds) {
        entry["mfma"] = nullptr;
        entry["gemm"] = mla_lds_claims<Kernel>();
      } else if constexpr (token_waves) {
        entry = mla_token_waves_claims<Kernel>(entry);
      } else {
        entry["mfma"] = mfma;
        entry["mfma_per_load"] = products;
        entry["kv_widths"] = widths;
      }
      file["entries"].push_back(entry);
    });
  });
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
      const bool full = !in_slice(arch, specs[s], s, p);
      file["entries"].push_back(decode_claims<arch, specs[s], policies[p]>("pa_", index++, full));
      if constexpr (policies[p].balanced()) {
        file["entries"].push_back(balanced_combine_claims<arch, specs[s], policies[p]>(s, full));
      }
    });
  });
  static constexpr auto features = paged_attention_feature_specs(arch);
  static_for<features.size()>([&](auto s) {
    static constexpr PagedAttentionPolicy policy = paged_attention_other_policy(arch, features[s]);
    file["entries"].push_back(decode_claims<arch, features[s], policy>("pa_feature_", s));
  });
  static constexpr auto scores = paged_attention_score_specs(arch);
  static_for<scores.size()>([&](auto s) {
    static constexpr PagedAttentionPolicy policy = paged_attention_policies(arch, scores[s])[0];
    file["entries"].push_back(decode_claims<arch, scores[s], policy>("pa_score_", s));
  });
  static_for<std::size(paged_attention_head_sizes)>(
      [&](auto i) { file["entries"].push_back(combine_claims<arch, paged_attention_head_sizes[i]>()); });
  file["entries"].push_back(combine_claims<arch, 64, DType::f16>());
  file["entries"].push_back(combine_claims<arch, 128, DType::f16>());
#define ADD_GEMMS(list)                \
  if constexpr (has_list(arch, #list)) \
    add_gemms<arch, list##_specs(arch), &list##_policies, list##_objects>(file, #list);
  GEMM_LISTS(ADD_GEMMS)
  add_flash_attention<arch>(file);
  add_mla_decode<arch>(file);
  add_find_scale<arch>(file);
  add_shared_sampling<arch>(file);
#define ADD_ROWS(list, op, name, header) add_rows<arch>(file, #list, #op, list##_specs(arch), op##_policies);
  ROW_LISTS(ADD_ROWS)
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
