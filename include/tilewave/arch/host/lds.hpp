// SPDX-License-Identifier: MIT
// LdsBackend in the host room: square products made from their lane maps, and copies that land as late as they may.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tilewave/arch/host/dense.hpp"
#include "tilewave/arch/host/memory.hpp"
#include "tilewave/arch/lds.hpp"

namespace tilewave::host {

namespace detail {

/// One operand of units of 16 bytes, or of 8, as dense rows, or as dense columns.
template <DType type, int side, int chunks, class Unit>
TILEWAVE_HOST_UNTRACKED inline void spread_units(const Unit (&units)[chunks], int lane, bool columns,
                                                 ProductSum<type>* to) {
  using Map = ProductMap<side>;
  constexpr int elements = sizeof(Unit) / size_of(type), k = Map::units * chunks * elements;
  for (int c = 0; c < chunks; ++c) {
    Chunk unit{};
    std::memcpy(&unit, &units[c], sizeof(Unit));
    ProductSum<type> wide[16];
    widen(type, &unit, wide);
    const int first = (Map::units * c + Map::unit(lane)) * elements, row = Map::row(lane);
    for (int e = 0; e < elements; ++e) to[columns ? (first + e) * side + row : row * k + first + e] = wide[e];
  }
}

template <DType type, int side, int chunks, class Unit>
TILEWAVE_HOST_UNTRACKED inline void multiply_units(const Unit (&kv)[chunks], const Unit (&rows)[chunks],
                                                   Vec<ProductSum<type>, side * side / 64>& sums, Where where) {
  using Map = ProductMap<side>;
  using Sum = ProductSum<type>;
  constexpr int k = Map::units * chunks * static_cast<int>(sizeof(Unit)) / size_of(type);
  Lane& self = *current_lane;
  Sum *const left = reinterpret_cast<Sum*>(self.wave->tile), *const right = left + side * k;
  Sum* const acc = right + side * k;
  static_assert((2 * side * k + side * side) * sizeof(float) <= sizeof(Wave::tile),
                "a wave's scratch holds both operands and the sums");
  spread_units<type, side>(rows, self.index, false, left);
  spread_units<type, side>(kv, self.index, true, right);
  Sum* const of_row = acc + Map::row(self.index) * side;
  for (int i = 0; i < Map::sums; ++i) of_row[Map::kv_row(self.index, i)] = sums[i];
  if (meet(self, {CollectiveKind::mma, side * 1024 + k, where})) {
    multiply_dense<side, side, k>(left, right, acc);
    ++self.cluster->counters.mma;
    complete(self);
  }
  for (int i = 0; i < Map::sums; ++i) sums[i] = of_row[Map::kv_row(self.index, i)];
}

/// Returns one lane's values of a product's operand. Its scales belong to the lanes whose k they cover: see
/// spread_scale.
template <DType type, int side>
TILEWAVE_HOST_UNTRACKED inline void spread_micro(const Chunk* units, int lane, bool columns, float* to) {
  using Map = ProductMap<side>;
  constexpr int runs = is_fp8(type) ? 2 : 1, run = 32 / runs, k = Map::units * 32,
                bits = 8 * size_of(type) / packing_of(type);
  for (int e = 0; e < 32; ++e) {
    const int at = (Map::units * (e / run) + Map::unit(lane)) * run + e % run, row = Map::row(lane);
    const int word = bits * e / 32, shift = bits * e % 32;
    const auto word_of = [&](int w) { return std::uint64_t{units[w / 4][w % 4]}; };
    const std::uint64_t both = word_of(word) | (shift + bits > 32 ? word_of(word + 1) << 32 : 0);
    const auto code = static_cast<std::uint8_t>(both >> shift);
    const float value = type == DType::fp4_e2m1 ? fp4_to_f32(code)
                        : is_fp6(type)          ? fp6_to_f32(type, code)
                                                : fp8_values(type)[code];
    to[columns ? at * side + row : row * k + at] = value;
  }
}
/// Multiplies the 32 k of a row by the scale that a lane has for them. This is exact unless a scale is extreme.
template <int side>
TILEWAVE_HOST_UNTRACKED inline void apply_scale(std::uint32_t scale, int lane, bool columns, float* to) {
  using Map = ProductMap<side>;
  constexpr int k = Map::units * 32;
  const float factor = e8m0_to_f32(static_cast<std::uint8_t>(scale));
  const int first = Map::unit(lane) * 32, row = Map::row(lane);
  for (int e = 0; e < 32; ++e) to[columns ? (first + e) * side + row : row * k + first + e] *= factor;
}

template <DType of_kv, DType of_rows, int side>
TILEWAVE_HOST_UNTRACKED inline void multiply_micro(const Chunk* kv, const Chunk* rows, std::uint32_t kv_scale,
                                                   std::uint32_t rows_scale, Vec<float, side * side / 64>& sums,
                                                   Where where) {
  using Map = ProductMap<side>;
  constexpr int k = Map::units * 32;
  Lane& self = *current_lane;
  float *const left = self.wave->tile, *const right = left + side * k, *const acc = right + side * k;
  auto* const scales = reinterpret_cast<std::uint32_t(*)[2]>(acc + side * side);
  static_assert((2 * side * k + side * side + 2 * 64) * sizeof(float) <= sizeof(Wave::tile),
                "a wave's scratch holds both operands, the sums and two scales a lane");
  spread_micro<of_rows, side>(rows, self.index, false, left);
  spread_micro<of_kv, side>(kv, self.index, true, right);
  scales[self.index][0] = rows_scale;
  scales[self.index][1] = kv_scale;
  float* const of_row = acc + Map::row(self.index) * side;
  for (int i = 0; i < Map::sums; ++i) of_row[Map::kv_row(self.index, i)] = sums[i];
  if (meet(self, {CollectiveKind::mma, side * 1024 + k, where})) {
    for (int lane = 0; lane < 64; ++lane) {
      apply_scale<side>(scales[lane][0], lane, false, left);
      apply_scale<side>(scales[lane][1], lane, true, right);
    }
    multiply_dense<side, side, k>(left, right, acc);
    ++self.cluster->counters.mma;
    complete(self);
  }
  for (int i = 0; i < Map::sums; ++i) sums[i] = of_row[Map::kv_row(self.index, i)];
}

template <int element_bytes>
TILEWAVE_HOST_UNTRACKED Vec<std::uint32_t, 2> read_transposed(const void* row, Where where) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  if (reinterpret_cast<std::uintptr_t>(row) % 8 != 0) bad_access(self, row, 8, where);
  if (!in_shared(self, row, 8)) {
    fail(self, "a row of load_transposed is not in shared memory at %s:%d", where.base_name(), where.line);
  }
  wave.posted[wave.parity][self.index] =
      static_cast<std::uint32_t>(static_cast<const std::byte*>(row) - wave.block->shared);
  if (meet(self, {CollectiveKind::load_transposed, element_bytes, where})) {
    order_acquire(&wave.ordered[wave.parity]);
    self.cluster->counters.lds_loads_bytes += 8 * wave.lanes;
    for (int lane = 0; lane < wave.lanes; ++lane) {  // the last lane reads for all, as the instruction does
      constexpr int rows = 8 / element_bytes, row_lanes = 16 / rows;  // a lane points at `rows` elements of a row
      std::byte column[8];
      for (int r = 0; r < rows; ++r) {
        const int from = lane / 16 * 16 + row_lanes * r + lane % 16 / rows;
        std::memcpy(column + element_bytes * r,
                    wave.block->shared + wave.posted[wave.parity][from] + element_bytes * (lane % rows), element_bytes);
      }
      std::memcpy(wave.dealt[lane], column, sizeof(column));
    }
    order_release(&wave.ordered[wave.parity]);  // the reads are before anything that a lane does next
    complete(self);
  }
  return {{wave.dealt[self.index][0], wave.dealt[self.index][1]}};
}

/// Lands the lane's oldest copies until `pending` are left.
inline void land_copies(Lane& self, int pending) {
  auto& copies = self.copies;
  int landed = 0;
  for (; copies.count - landed > pending; ++landed) {
    const auto& copy = copies.list[landed];
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  copies.count -= landed;
  for (int i = 0; i < copies.count && landed > 0; ++i) copies.list[i] = copies.list[i + landed];
}

/// Lands the copies of the lane's oldest batches until `pending` batches are left.
inline void land_batches(Lane& self, int pending) {
  auto& copies = self.copies;
  int kept = copies.open;
  const int first = std::max(copies.batches - pending, 0);
  for (int i = first; i < copies.batches; ++i) kept += copies.of_batch[i];
  land_copies(self, kept);
  std::copy(copies.of_batch + first, copies.of_batch + copies.batches, copies.of_batch);
  copies.batches -= first;
}

/// `from` is null for data beyond the buffer.
inline void queue_copy(void* to, const void* from, int bytes, Where where) {
  Lane& self = *current_lane;
  auto& copies = self.copies;
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0) bad_access(self, to, bytes, where);
  if (reinterpret_cast<std::uintptr_t>(from) % 4 != 0) bad_access(self, from, bytes, where);
  if (!in_shared(self, to, bytes)) {
    fail(self, "the target of a copy is not in shared memory at %s:%d", where.base_name(), where.line);
  }
  must_have_waited(self, false, where);
  if (copies.count == max_lane_copies) {
    fail(self, "more than %d copies that nobody has waited for at %s:%d", max_lane_copies, where.base_name(),
         where.line);
  }
  copies.list[copies.count++] = {to, from, bytes};
  Cluster& cluster = *self.cluster;
  cluster.counters.bulk_bytes += bytes;
  // A late copy reveals a missing wait, and an early one a target that others still read.
  const Schedule schedule = cluster.options.schedule;
  if (schedule == Schedule::last_wave_ahead || (schedule == Schedule::random && cluster.draw() % 2 == 0))
    land_copies(self, 0);
}

}  // namespace detail

template <ArchId Id>
struct Lds {};

template <ArchId Id>
requires(facts_of(Id).wave_lanes == 64) struct Lds<Id> {
  template <DType type>
  static constexpr int product_chunks = facts_of(Id).mx && (is_fp8(type) || is_fp6(type)) ? 2 : 1;

  template <DType type, int side, int chunks>
  static void multiply(const Chunk (&kv)[chunks], const Chunk (&rows)[chunks],
                       Vec<ProductSum<type>, side * side / 64>& sums, Where where = {}) {
    static_assert(chunks % product_chunks<type> == 0 && (!is_fp8(type) || type == facts_of(Id).fp8),
                  "operands are a whole number of products, and fp8 is of the chip's flavour");
    detail::multiply_units<type, side>(kv, rows, sums, where);
  }

  using Half = Vec<std::uint32_t, 2>;
  template <DType type, int side>
  static void multiply_half(const Half& kv, const Half& rows, Vec<ProductSum<type>, side * side / 64>& sums,
                            Where where = {}) {
    static_assert(!is_fp8(type) || type == facts_of(Id).fp8, "fp8 is of the chip's flavour");
    const Half left[] = {kv}, right[] = {rows};
    detail::multiply_units<type, side>(left, right, sums, where);
  }

  template <DType of_kv, DType of_rows, int side, int products>
  requires(facts_of(Id).mx) static void multiply_mx(const Chunk (&kv)[products * product_chunks<of_kv>],
                                                    const Chunk (&rows)[products * product_chunks<of_rows>],
                                                    const std::uint32_t (&kv_scales)[products],
                                                    const std::uint32_t (&rows_scales)[products],
                                                    Vec<float, side * side / 64>& sums, Where where = {}) {
    constexpr auto takes = [](DType type) {
      return type == DType::fp4_e2m1 || is_fp6(type) || type == facts_of(Id).fp8;
    };
    static_assert(takes(of_kv) && takes(of_rows), "scaled products take fp4, fp6 and the chip's fp8");
    for (int p = 0; p < products; ++p) {
      detail::multiply_micro<of_kv, of_rows, side>(kv + p * product_chunks<of_kv>, rows + p * product_chunks<of_rows>,
                                                   kv_scales[p], rows_scales[p], sums, where);
    }
  }

  template <int element_bytes>
  requires(facts_of(Id).lds_transposed && (element_bytes == 1 || element_bytes == 2))  //
      static Vec<std::uint32_t, 2> load_transposed(const void* row, Where where = {}) {
    return detail::read_transposed<element_bytes>(row, where);
  }

  /// A base or bytes that differ between the lanes of a wave fail the launch.
  struct Source {
    static constexpr std::uint32_t nowhere = 1u << 31;
    const void* base;
    std::uint32_t bytes;

    Chunk load(std::uint32_t lane_offset, std::int32_t offset, Where where = {}) const {
      const void* const from = at(lane_offset, offset, 16, where);
      return from == nullptr ? Chunk{} : Memory<Id>::load(static_cast<const Chunk*>(from), where);
    }
    std::uint32_t load_word(std::uint32_t lane_offset, std::int32_t offset, Where where = {}) const {
      const void* const from = at(lane_offset, offset, 4, where);
      return from == nullptr ? 0 : Memory<Id>::load(static_cast<const std::uint32_t*>(from), where);
    }
    Vec<std::uint32_t, 2> load_two_words(std::uint32_t lane_offset, std::int32_t offset, Where where = {}) const {
      using Two = Vec<std::uint32_t, 2>;
      const void* const from = at(lane_offset, offset, 8, where);
      return from == nullptr ? Two{} : Memory<Id>::load(static_cast<const Two*>(from), where);
    }
    Vec<Chunk, 2> load_sixes(std::uint32_t lane_offset, std::int32_t offset, Where where = {}) const {
      using Eight = Vec<std::uint32_t, 2>;
      Vec<Chunk, 2> sixes = {};
      const void* const from = at(lane_offset, offset, 24, where);
      for (int i = 0; from != nullptr && i < 3; ++i) {
        const Eight two = Memory<Id>::load(static_cast<const Eight*>(from) + i, where);
        sixes[i / 2][i % 2 * 2] = two[0], sixes[i / 2][i % 2 * 2 + 1] = two[1];
      }
      return sixes;
    }
    void copy(void* shared, std::uint32_t lane_offset, std::int32_t offset, Where where = {}) const {
      queue(shared, lane_offset, offset, 16, where);
    }
    template <int both = 0>
    void copy_word(void* shared, std::uint32_t lane_offset, std::int32_t offset, Where where = {}) const {
      queue(static_cast<std::byte*>(shared) + both, lane_offset + both, offset, 4, where);
    }

   private:
    const void* at(std::uint32_t lane_offset, std::int32_t offset, int width, Where where) const {
      agree(*current_lane, {"base of a buffer", reinterpret_cast<std::intptr_t>(base), where});
      agree(*current_lane, {"bytes of a buffer", bytes, where});
      agree(*current_lane, {"offset in a buffer", offset, where});
      const std::uint64_t byte = std::uint64_t{lane_offset} + static_cast<std::uint32_t>(offset);
      return byte + width <= bytes ? static_cast<const char*>(base) + byte : nullptr;
    }
    void queue(void* shared, std::uint32_t lane_offset, std::int32_t offset, int width, Where where) const {
      agree(*current_lane, {"target of a copy", reinterpret_cast<std::intptr_t>(shared), where});
      detail::queue_copy(static_cast<std::byte*>(shared) + width * current_lane->index,
                         at(lane_offset, offset, width, where), width, where);
    }
  };

  template <int pending>
  static void copies_wait() {
    static_assert(pending >= 0 && pending < 64, "vmcnt counts at most 63 copies under way");
    detail::land_copies(*current_lane, pending);
  }
  static void loads_wait() { copies_wait<0>(); }
  static void lds_barrier(Where where = {}) { block_barrier(*current_lane, where); }
  template <class T, int n>
  static void keep(Vec<T, n>&) {}
  static void keep(float&) {}
  static std::int32_t load_uniform(const std::int32_t* p, Where where = {}) {
    agree(*current_lane, {"address of a uniform load", reinterpret_cast<std::intptr_t>(p), where});
    return Memory<Id>::load(p, where);
  }
  static void keep_uniform(std::int32_t&) {}
  static void keep_uniform(const char*&) {}
  /// A value beyond the largest, of which CDNA makes NaN, fails the launch.
  static std::uint32_t pack_fp8_within(float a, float b, float c, float d, Where where = {}) {
    std::uint32_t word = 0;
    const float values[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) {
      if (std::abs(values[i]) > fp8_max(facts_of(Id).fp8)) {
        fail(*current_lane, "pack_fp8_within has a value beyond the largest at %s:%d", where.base_name(), where.line);
      }
      word |= std::uint32_t{f32_to_fp8(facts_of(Id).fp8, values[i])} << 8 * i;
    }
    return word;
  }
  template <int level>
  static void priority() {}
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
