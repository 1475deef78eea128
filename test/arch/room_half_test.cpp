// SPDX-License-Identifier: MIT
// Products of 8 bytes a lane, and copies and loads of words and pairs of them, in the rooms that have them.
#include <cstdint>
#include <vector>

#include "test/arch/tensor_room.hpp"
#include "tilewave/arch/lds.hpp"

namespace tilewave::test {
namespace {

using Two = Vec<std::uint32_t, 2>;

/// One product of bf16. A lane has four elements of a row of both operands.
template <class B, int side>
struct HalfKernel {
  using Room = B;
  using Map = ProductMap<side>;
  using Sums = Vec<float, Map::sums>;
  static constexpr int block_threads = 64, waves_per_simd = 1;
  struct Args {
    const Two *kv, *rows;  // [lanes]
    Sums* out;             // [lanes]
  };
  struct Shared {};

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int lane = B::lane_id();
    Sums sums{};
    sums[0] = 1.0f;
    B::template multiply_half<DType::bf16, side>(B::load(args.kv + lane), B::load(args.rows + lane), sums);
    for (int i = 0; i < Map::sums; ++i) B::store(args.out[lane].data + i, sums[i]);
  }
};

template <class B, int side>
void check_half() {
  using K = HalfKernel<B, side>;
  using Map = typename K::Map;
  constexpr int elements = 4, k = elements * Map::units;
  const auto kv_of = [](int row, int e) { return static_cast<float>((3 * row + 5 * e) % 7 - 3); };
  const auto row_of = [](int row, int e) { return static_cast<float>((2 * row + 3 * e) % 11 - 5); };
  std::vector<Two> kv(64), rows(64);
  for (int lane = 0; lane < 64; ++lane) {
    for (int e = 0; e < elements; ++e) {
      const int at = elements * Map::unit(lane) + e, row = Map::row(lane);
      kv[lane][e / 2] |= (__builtin_bit_cast(std::uint32_t, kv_of(row, at)) >> 16) << 16 * (e % 2);
      rows[lane][e / 2] |= (__builtin_bit_cast(std::uint32_t, row_of(row, at)) >> 16) << 16 * (e % 2);
    }
  }
  const Device<Two> kv_device(kv), rows_device(rows);
  const Device<typename K::Sums> out(std::vector<typename K::Sums>(64));
  launch_kernel<K>(1, 1, typename K::Args{kv_device.data(), rows_device.data(), out.data()});
  const auto found = out.values();
  for (int lane = 0; lane < 64; ++lane) {
    for (int i = 0; i < Map::sums; ++i) {
      float sum = i == 0 ? 1.0f : 0.0f;
      for (int e = 0; e < k; ++e) sum += kv_of(Map::kv_row(lane, i), e) * row_of(Map::row(lane), e);
      CAPTURE(side, lane, i);
      CHECK(found[lane][i] == sum);
    }
  }
}

/// Copies 128 words into LDS, the second half by an offset of both addresses, and loads pairs of them past the end.
template <class B>
struct WordsKernel {
  using Room = B;
  static constexpr int block_threads = 64, waves_per_simd = 1, words = 128;
  struct Args {
    const std::uint32_t* in;  // [words]
    std::uint32_t* copied;    // [words]
    Two* loaded;              // [lanes]
  };
  struct Shared {
    alignas(16) std::uint32_t at[words];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    const typename B::Source source{args.in, 4 * words};
    source.copy_word(shared.at, 4 * lane, 0);
    source.template copy_word<256>(shared.at, 4 * (lane ^ 1), 0);
    B::template copies_wait<0>();
    B::lds_barrier();
    for (int i = lane; i < words; i += block_threads) B::store(args.copied + i, shared.at[i]);
    B::store(args.loaded + lane, source.load_two_words(16 * lane, 0));
  }
};

template <class B>
void check_words() {
  using K = WordsKernel<B>;
  std::vector<std::uint32_t> in(K::words);
  for (int i = 0; i < K::words; ++i) in[i] = 1000u + static_cast<std::uint32_t>(i);
  const Device<std::uint32_t> words(in), copied(std::vector<std::uint32_t>(in.size()));
  const Device<Two> loaded(std::vector<Two>(64));
  launch_kernel<K>(1, 1, typename K::Args{words.data(), copied.data(), loaded.data()});
  const auto in_lds = copied.values();
  const auto pairs = loaded.values();
  for (int lane = 0; lane < 64; ++lane) {
    CAPTURE(lane);
    CHECK(in_lds[lane] == in[lane]);
    CHECK(in_lds[64 + lane] == in[64 + (lane ^ 1)]);
    const bool inside = 4 * lane + 2 <= K::words;
    CHECK(pairs[lane][0] == (inside ? in[4 * lane] : 0u));
    CHECK(pairs[lane][1] == (inside ? in[4 * lane + 1] : 0u));
  }
}

struct CheckHalf {
  template <class B>
  void operator()() const {
    if constexpr (HalfProductBackend<B>) {
      check_half<B, 16>();
      check_half<B, 32>();
    }
  }
};
struct CheckWords {
  template <class B>
  void operator()() const {
    if constexpr (LdsBackend<B>) check_words<B>();
  }
};

}  // namespace

TEST_CASE("a product of 8 bytes a lane sums its part of k") { AllRooms::each(CheckHalf{}); }
TEST_CASE("words are copied with an offset of both addresses, and pairs are loaded") { AllRooms::each(CheckWords{}); }

}  // namespace tilewave::test
