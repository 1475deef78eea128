// SPDX-License-Identifier: MIT
// The roof that rows are compared with.
#include "bench/harness/ceiling.hpp"

#include <cmath>

#include "bench/ops/vec_add/sweep.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

using test::Approx;

TEST_CASE("a roof is that of a copy for what can be paired and of a read or a write for the rest") {
  const Ceilings c{.read = 5e12, .copy = 4e12, .write = 2e12};
  CHECK(c.seconds({.bytes = 5'000'000'000}) == Approx(1e-3));                            // reads only
  CHECK(c.seconds({.bytes = 2'000'000'000, .written = 2'000'000'000}) == Approx(1e-3));  // writes only
  CHECK(c.seconds({.bytes = 4'000'000'000, .written = 2'000'000'000}) == Approx(1e-3));  // as much of both
  CHECK(c.seconds({.bytes = 9'000'000'000, .written = 2'000'000'000}) == Approx(2e-3));  // reads 7, writes 2
  CHECK(c.seconds({.bytes = 6'000'000'000, .written = 4'000'000'000}) == Approx(2e-3));  // reads 2, writes 4
  CHECK(c.seconds({}) == 0);
  CHECK(std::isnan(Ceilings{}.seconds({.bytes = 1})));
  const Ceilings same = Ceilings::all(1e12);
  CHECK(same.seconds({.bytes = 7'000'000'000'000, .written = 3'000'000'000'000}) == Approx(7));
}

TEST_CASE("configs of bench_ceiling say what they move") {
  for (const CeilingCase& c : ceiling_sweep(ArchId::sm90)) {
    const Work w = work_of(c);
    const std::int64_t bytes = c.bytes;
    switch (c.kind) {
      case CeilingKind::nothing: CHECK((w.bytes == 0 && w.written == 0)); break;
      case CeilingKind::read: CHECK((w.bytes == bytes && w.written == 0)); break;
      case CeilingKind::copy: CHECK((w.bytes == 2 * bytes && w.written == bytes)); break;
      case CeilingKind::write: CHECK((w.bytes == bytes && w.written == bytes)); break;
      case CeilingKind::vec_add: CHECK((w.bytes == 3 * bytes && w.written == bytes)); break;
    }
    CHECK(w.flops == (c.kind == CeilingKind::vec_add ? bytes / size_of(c.x) : 0));
    if (emulated_device) CHECK(c.bytes <= emulated_bytes);
    if (!emulated_device) CHECK(c.bytes == c.config_bytes);
  }
}

TEST_CASE("names of bench_ceiling tell kind, type and size, and what the emulated device leaves out") {
  CeilingCase c{ArchId::sm90, CeilingKind::copy, DType::f32, 64 << 20, 64 << 20};
  CHECK(name_of(c) == "copy/sm90/64MiB");
  c.config_bytes = std::int64_t{4} << 30;
  CHECK(name_of(c) == "copy/sm90/64MiBof4GiB");
  c = {ArchId::gfx950, CeilingKind::vec_add, DType::bf16, 40960000, 40960000};
  CHECK(name_of(c) == "vec_add/gfx950/bf16/40960000B");
  c = {ArchId::gfx942, CeilingKind::nothing};
  CHECK(name_of(c) == "nothing/gfx942");
}

}  // namespace
}  // namespace tilewave::bench
