// SPDX-License-Identifier: MIT
#include "tilewave/arch/facts.hpp"

#include <set>
#include <string>

#include "test/catch_compat.hpp"
#include "tilewave/arch/atom.hpp"

namespace {
using namespace tilewave;
}  // namespace

TEST_CASE("facts and atom of an architecture carry its id and agree on the wave") {
  std::set<std::string> names;
  for (const ArchId id : all_archs) {
    CHECK(facts_of(id).id == id);
    CHECK(atom_of(id).arch == id);
    CHECK(atom_of(id).lanes == facts_of(id).wave_lanes);
    CHECK(names.insert(std::string(name_of(id))).second);
    CHECK(facts_named(name_of(id)) == &facts_of(id));
  }
  CHECK(facts_named("gfx000") == nullptr);
}

TEST_CASE("facts are plausible numbers in the units they claim") {
  for (const ArchId id : all_archs) {
    const ArchFacts& f = facts_of(id);
    CAPTURE(name_of(id));
    CHECK((f.wave_lanes == 32 || f.wave_lanes == 64));
    CHECK((f.lds_bytes >= 64 * 1024 && f.lds_bytes <= 256 * 1024));
    CHECK((f.lds_banks == 32 || f.lds_banks == 64));
    CHECK(f.simds_per_cu == 4);
    CHECK((f.xcds >= 1 && f.compute_units % f.xcds == 0));
    CHECK((f.matrix == Matrix::mfma) == (f.wave_lanes == 64));
    CHECK(f.max_load_bytes == 16);
    CHECK((f.compute_units >= 100 && f.compute_units <= 400));
    CHECK(f.register_file_lanes % f.register_granule == 0);
    CHECK((f.hbm_bytes_per_second > 1e12 && f.hbm_bytes_per_second < 1e13));
    CHECK((f.last_level_cache_bytes >= 32LL << 20 && f.last_level_cache_bytes <= 1LL << 30));
    // fp8 doubles the matrix rate of bf16 on all three, and each is far above one flop per byte of memory.
    CHECK(f.fp8_flops / f.bf16_flops == test::Approx(2.0).epsilon(0.01));
    CHECK(f.bf16_flops / f.hbm_bytes_per_second > 100);
  }
}

TEST_CASE("each architecture takes its own fp8 flavour") {
  CHECK(gfx942_facts.fp8 == DType::fp8_e4m3fnuz);
  CHECK(gfx950_facts.fp8 == DType::fp8_e4m3fn);
  CHECK(sm90_facts.fp8 == DType::fp8_e4m3fn);
}
