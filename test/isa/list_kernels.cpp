// SPDX-License-Identifier: MIT
// Prints every AMD code object that test/isa builds, as a call of CMake: `compile(NAME SOURCE ARCH definitions...)`, or compile_full
// where the label full alone asks for it. It runs when CMake configures, so it includes registries alone. write_entries.cpp
// says what each must hold.
#include <cstdio>
#include <set>
#include <span>

#include "isa/row_lists.hpp"
#include "test/isa/row_objects.hpp"
#include "test/isa/slice.hpp"
#include "tilewave/ops/paged_attention/specs/features.hpp"
#include "tilewave/ops/paged_attention/specs/scores.hpp"

namespace {

using namespace tilewave;

void one_each(const char* prefix, const char* arch, std::size_t count, const char* definition) {
  for (std::size_t i = 0; i < count; ++i)
    std::printf("compile(%s_%s_%zu paged_attention_entry.hip %s -D%s=%zu)\n", prefix, arch, i, arch, definition, i);
}

/// Every entry of paged attention, and the combine of a balanced one, which is named by its spec.
void decodes(ArchId id, const char* arch) {
  std::size_t entry = 0, place = 0;
  for (const PagedAttentionSpec& spec : paged_attention_specs(id)) {
    std::size_t policy_place = 0;
    for (const PagedAttentionPolicy& policy : paged_attention_policies(id, spec)) {
      const char* const call = test::in_slice(id, spec, place, policy_place++) ? "compile" : "compile_full";
      std::printf("%s(pa_%s_%zu paged_attention_entry.hip %s -DENTRY=%zu)\n", call, arch, entry, arch, entry);
      if (policy.balanced())
        std::printf("%s(balanced_combine_%s_%zu paged_attention_entry.hip %s -DBALANCED=%zu)\n", call, arch, place,
                    arch, place);
      ++entry;
    }
    ++place;
  }
}

void combine(const char* arch, int head_size, const char* out) {
  std::printf("compile(combine_%s_h%d.%s paged_attention_entry.hip %s -DCOMBINE=%d -DOUT=%s)\n", arch, head_size, out,
              arch, head_size, out);
}

/// The kernels of flash attention through LDS, one a spec.
void flash_attentions(ArchId id) {
  const char* const arch = name_of(id).data();
  std::size_t place = 0;
  for (const FlashAttentionSpec& spec : flash_attention_specs(id)) {
    if (test::has_lds_path(id, spec))
      std::printf("%s(flash_attention_%s_%zu flash_attention_entry.hip %s -DSPEC=%zu)\n",
                  test::in_slice(id, spec, place) ? "compile" : "compile_full", arch, place, arch, place);
    ++place;
  }
}

/// The kernels of latent decode, one a policy.
void mla_decodes(ArchId id) {
  const char* const arch = name_of(id).data();
  for (const int index : test::mla_decode_objects) {
    const MlaDecodeSpec spec = mla_decode_specs(id)[index];
    for (std::size_t p = 0; p < mla_decode_policies(id, spec).size(); ++p)
      std::printf("%s(mla_decode_%s_%d_%zu mla_decode_entry.hip %s -DSPEC=%d -DPOLICY=%zu)\n",
                  test::in_slice(id, spec, p) ? "compile" : "compile_full", arch, index, p, arch, index, p);
  }
}

void gemms(const char* list, std::span<const int> specs, ArchId id) {
  const char* const arch = name_of(id).data();
  for (std::size_t place = 0; place < specs.size() && test::has_list(id, list); ++place)
    std::printf("%s(%s_%s_%d gemm_entries.hip %s -DLIST=%s -DSPEC=%d)\n",
                test::has_turn(id, place) ? "compile" : "compile_full", list, arch, specs[place], arch, list,
                specs[place]);
}

template <class Specs, class Policies>
[[maybe_unused]] void rows(const char* list, const char* op, const char* name, const char* header, ArchId id,
                           const Specs& specs, Policies policies_of) {
  const char* const arch = name_of(id).data();
  const std::size_t groups = test::row_groups(specs.size());
  std::set<std::size_t> objects;  // that have a kernel: a half of one policy has none
  for (std::size_t s = 0; s < specs.size(); ++s)
    for (std::size_t p = 0; p < policies_of(id, specs[s]).size(); ++p)
      objects.insert(test::row_object(s, p, specs.size()));
  for (const std::size_t i : objects)
    std::printf(
        "%s(%s_%s_%zu row_entries.hip %s -DLIST=%s -DOP=%s -DNAME=%s -DHEADER=%s -DFIRST=%zu -DSTEP=%zu "
        "-DHALF=%zu)\n",
        test::in_slice(id, list, op, i) ? "compile" : "compile_full", list, arch, i, arch, list, op, name, header,
        i / 2, groups, i % 2);
}

void list(ArchId id) {
  const char* const arch = name_of(id).data();
  decodes(id, arch);
  flash_attentions(id);
  mla_decodes(id);
  one_each("pa_feature", arch, paged_attention_feature_specs(id).size(), "FEATURE");
  one_each("pa_score", arch, paged_attention_score_specs(id).size(), "SCORE");
  for (const int head_size : paged_attention_head_sizes) combine(arch, head_size, "bf16");
  for (const int head_size : {64, 128}) combine(arch, head_size, "f16");
#define LIST_GEMMS(list) gemms(#list, test::list##_objects, id);
  GEMM_LISTS(LIST_GEMMS)
  std::printf("compile(find_scale_%s find_scale_entries.hip %s)\n", arch, arch);
  std::printf("compile(shared_sampling_%s shared_sampling_entries.hip %s)\n", arch, arch);
#define LIST_ROWS(list, op, name, header) rows(#list, #op, #name, #header, id, list##_specs(id), op##_policies);
  ROW_LISTS(LIST_ROWS)
}

}  // namespace

int main() {
  list(ArchId::gfx942);
  list(ArchId::gfx950);
}
