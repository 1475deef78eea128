// SPDX-License-Identifier: MIT
// The policies that a chip can have, their names, and the rows that they take.
#include "tilewave/tile/row_policy.hpp"

#include <string_view>

#include "test/catch_compat.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave::test {
namespace {

constexpr ArchFacts sm90 = facts_of(ArchId::sm90), gfx950 = facts_of(ArchId::gfx950);

bool fits(const ArchFacts& facts, const RowPolicy& policy, DType x = DType::bf16) {
  return row_policy_status(facts, x, policy).ok();
}

}  // namespace

TEST_CASE("a row policy prints what differs from a plain one") {
  CHECK(name_of(RowPolicy{}) == "l256.r1.c4.v16");
  CHECK(name_of(RowPolicy{.lanes = 64, .rows = 4, .chunks = 16, .vec = 2, .span = 8}) == "l64.r4.c16.v2.s8");
  CHECK(name_of(RowPolicy{.blocks = 8}) == "l256.r1.c4.v16.b8");
  CHECK(name_of(RowPolicy{.vec = 8, .held = false}) == "l256.r1.c4.v8.again");
}

TEST_CASE("clusters are of rows that are held, as large as the chip has them") {
  CHECK(fits(sm90, {.blocks = 8}));
  CHECK(fits(sm90, {.blocks = 16}));
  CHECK_FALSE(fits(sm90, {.blocks = 32}));
  CHECK_FALSE(fits(sm90, {.blocks = 3}));
  CHECK_FALSE(fits(sm90, {.blocks = 2, .held = false}));
  CHECK_FALSE(fits(gfx950, {.blocks = 2}));
}

TEST_CASE("a refused row policy says which law it breaks") {
  const auto why_not = [](const RowPolicy& policy) {
    return std::string_view(row_policy_status(gfx950, DType::bf16, policy).reason);
  };
  CHECK(why_not({}) == "");
  CHECK(why_not({.lanes = 96}) == "lanes is a power of two up to 1024");
  CHECK(why_not({.lanes = 32}) == "lanes times rows is a multiple of the wave");
  CHECK(why_not({.lanes = 512, .rows = 4}) == "lanes times rows is at most 1024, the largest block");
  CHECK(why_not({.vec = 8}) == "vec is 16 bytes, one element, or 8 bytes of elements of one byte");
  CHECK(why_not({.chunks = 0}) == "a lane holds at least one chunk, and at most 1024");
  CHECK(why_not({.rows = 1 << 28}) == "a block has at least one row, and at most 1024");
  CHECK(why_not({.waves_per_simd = 0}) == "waves_per_simd must be positive");
  CHECK(why_not({.chunks = 3, .span = 2}) == "span divides chunks: a lane's neighbours are whole runs");
  CHECK(why_not({.blocks = 2}) == "blocks is a power of two, up to the chip's largest cluster");
  const auto no_output = [](Scaling mode, const RowPolicy& policy) {
    return std::string_view(row_output_status(gfx950, DType::bf16, mode, policy).reason);
  };
  CHECK(no_output(Scaling::per_group, {}) == "");
  CHECK(no_output(Scaling::per_group, {.lanes = 8, .rows = 8}) ==
        "the lanes of a row in one wave have a whole group of a scale");
  CHECK(no_output(Scaling::mx, {.vec = 2, .span = 4}) == "mx scales are of rows that wide accesses take");
}

TEST_CASE("an access is 16 bytes, 8 of codes, or one element") {
  CHECK(fits(sm90, {.vec = 8}, DType::i8));
  CHECK_FALSE(fits(sm90, {.vec = 8}));
  CHECK(fits(sm90, {.vec = 2}));
  CHECK(RowPolicy{.vec = 8}.wide(DType::i8));
  CHECK_FALSE(RowPolicy{.vec = 2}.wide(DType::bf16));
  // Wide ones take rows of whole accesses of 16 bytes.
  CHECK(policy_takes({.vec = 8}, DType::i8, 64, true));
  CHECK_FALSE(policy_takes({.vec = 8}, DType::i8, 64, false));
  CHECK_FALSE(policy_takes({.vec = 8}, DType::i8, 72, true));
  CHECK(policy_takes({.vec = 1}, DType::i8, 71, false));
}

TEST_CASE("the policy for few rows has many lanes, for many rows few") {
  const RowPolicy few{.lanes = 256, .chunks = 4}, many{.lanes = 1024, .chunks = 1};
  CHECK(better_policy(many, few, DType::bf16, 128, sm90));
  CHECK_FALSE(better_policy(few, many, DType::bf16, 128, sm90));
  CHECK(better_policy(few, many, DType::bf16, 8192, sm90));
}

}  // namespace tilewave::test
