// SPDX-License-Identifier: MIT
// The rungs of the flash attention ladder. Their kernels are the library's, which tests of the op run.
#include <set>
#include <string>

#include "bench/ladder/flash_attention_generated.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("the ladder of flash attention ends with what the library takes, and begins below it") {
  for (const ArchId arch : {ArchId::sm90, ArchId::gfx942, ArchId::gfx950}) {
    for (const FlashAttentionSpec& spec : flash_attention_generated_specs(arch)) {
      INFO(name_of(arch) << " " << name_of(spec));
      const FlashAttentionPolicies rungs = flash_attention_generated_policies(arch, spec);
      REQUIRE(rungs.size() >= 2);
      CHECK(rungs[0].path == FlashAttentionPath::registers);
      std::set<std::string> names, served;
      for (const FlashAttentionPolicy& p : rungs) names.insert(name_of(p));
      for (const FlashAttentionPolicy& p : flash_attention_policies(arch, spec)) served.insert(name_of(p));
      CHECK(names.size() == rungs.size());
      CHECK(served.contains(name_of(rungs[rungs.size() - 1])));
    }
  }
}

}  // namespace
}  // namespace tilewave::test
