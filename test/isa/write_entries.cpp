// SPDX-License-Identifier: MIT
// Writes entries.json: what every AMD code object claims, taken from the registry. tools/isa holds the compiled code to
// it, and bench_pa --export-bundle finds an entry's code object by it.
//
//   write_entries FILE

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace {

using namespace tilewave;
using nlohmann::ordered_json;

/// As llvm-objdump prints the room's atom, without `v_mfma_`.
template <ArchId arch>
std::string atom_name() {
  constexpr AtomFacts atom = atom_of(arch);
  return "f32_" + std::to_string(atom.rows) + "x" + std::to_string(atom.kv) + "x" + std::to_string(atom.k) + "_bf16";
}

template <ArchId arch, PagedAttentionSpec spec, PagedAttentionPolicy policy>
ordered_json decode_claims(int index) {
  using Kernel = PagedAttentionDecode<host::Backend<arch>, spec, policy>;
  const std::string name(name_of(arch));
  return {{"code_object", "pa_" + name + "_" + std::to_string(index) + ".co"},
          {"arch", name},
          {"index", index},
          {"kernel", "decode"},
          {"spec", name_of(spec)},
          {"policy", name_of(policy, spec)},
          {"waves_per_simd", policy.waves_per_simd},
          {"waves_per_block", policy.waves_per_block()},
          {"lds_bytes", std::is_empty_v<typename Kernel::Shared> ? 0 : sizeof(typename Kernel::Shared)},
          {"mfma", atom_name<arch>()},
          // matrix instructions that one lane's 16-byte piece of K or V feeds
          {"mfma_per_load", spec.unit() / atom_of(arch).k_per_lane * policy.row_tiles}};
}

template <ArchId arch, int head_size>
ordered_json combine_claims() {
  using Kernel = PagedAttentionCombine<host::Backend<arch>, head_size>;
  static_assert(std::is_empty_v<typename Kernel::Shared>);
  const std::string name(name_of(arch));
  return {{"code_object", "combine_" + name + "_" + std::to_string(head_size) + ".co"},
          {"arch", name},
          {"kernel", "combine"},
          {"spec", "h" + std::to_string(head_size)},
          {"policy", ""},
          {"waves_per_simd", Kernel::waves_per_simd},
          {"waves_per_block", Kernel::waves},
          {"lds_bytes", 0},
          {"mfma", nullptr}};
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
    static_for<policies.size()>(
        [&](auto p) { file["entries"].push_back(decode_claims<arch, specs[s], policies[p]>(index++)); });
  });
  file["entries"].push_back(combine_claims<arch, 64>());
  file["entries"].push_back(combine_claims<arch, 128>());
  file["entries"].push_back(combine_claims<arch, 256>());
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
