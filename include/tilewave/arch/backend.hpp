// SPDX-License-Identifier: MIT
// The door to the hardware: this concept lists what a room must offer. A primitive that a room lacks is a compile error
// here.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave {

/// Operand and accumulator registers of an atom; every room's mma inherits them with its own facts. The parameters are
/// plain integers, because g++ 12 crashes on a class-type template argument that depends on B.
template <int k_per_lane, int rows_per_lane, int kv_per_lane>
struct AtomRegisters {
  using KvOperand = Vec<std::uint32_t, k_per_lane / 2>;  // pairs of bf16 or f16
  using RowsOperand = Vec<std::uint32_t, rows_per_lane * k_per_lane / 2>;
  using Accumulator = Vec<float, rows_per_lane * kv_per_lane>;
};

/// The type that products are summed in. Sums of i8 are exact as long as none leaves 32 bits.
template <DType type>
using ProductSum = std::conditional_t<type == DType::i8, std::int32_t, float>;

/// The number of lanes of a wave with the same key as this one: those before it, and all.
struct Peers {
  int before, count;
};

/// Counts what the blocks of a cluster have posted to one of them. It lies in the shared memory of that block.
struct Mailbox {
  std::uint64_t state;
};

/// A matrix in shared memory as group_mma reads it, in units of 16 bytes along k. Unit u of row r lies at at + offset +
/// r / 8 * eight_rows + r % 8 * 16 + u * next_unit. `at` is aligned to 16 bytes. offset and strides are in bytes:
/// multiples of 16 in [0, 2^18). The address that products have in common belongs into `at`.
struct GroupOperand {
  const void* at;
  int eight_rows, next_unit;
  int offset = 0;

  friend constexpr bool operator==(const GroupOperand&, const GroupOperand&) = default;
};

/// A room: every primitive that all rooms have. All are static, and all lanes of a wave call them in the same order
/// (wave-uniform control flow). docs/reference/primitives.md says what each promises; the remarks below are reminders.
template <class B>
concept Backend = requires(const float* in, float* out, const Chunk* chunk_in, Chunk* shared, Chunk chunk, float x,
                           std::uint32_t word, std::uint32_t* counter, std::uint64_t key, Mailbox* box,
                           typename B::KvOperand kv, typename B::RowsOperand rows, typename B::Accumulator acc) {
  { B::facts.wave_lanes } -> std::convertible_to<int>;
  { B::atom.k } -> std::convertible_to<int>;
  { B::is_this_pass } -> std::convertible_to<bool>;  // true where the compiler's pass is for this chip
  // ids
  { B::lane_id() } -> std::same_as<int>;
  { B::wave_id() } -> std::same_as<int>;
  { B::block_lane_id() } -> std::same_as<int>;  // without the cost of a uniform wave_id()
  { B::block_id() } -> std::same_as<int>;
  // device memory; beyond its bytes a window reads 0 and writes nothing
  { B::load(in) } -> std::same_as<float>;
  { B::store(out, x) } -> std::same_as<void>;
  { B::load_stream(chunk_in) } -> std::same_as<Chunk>;  // for data that is not read again soon
  { B::store_stream(shared, chunk) } -> std::same_as<void>;
  { typename B::template Window<true>{in, word}.template load<float>(word) } -> std::same_as<float>;
  { typename B::template Window<false>{in, word}.template load_stream<Chunk>(word) } -> std::same_as<Chunk>;
  { typename B::template Window<false>{in, word}.template load_stream_inside<Chunk>(word) } -> std::same_as<Chunk>;
  { typename B::template Window<true>{out, word}.store(word, x) } -> std::same_as<void>;
  { typename B::template Window<false>{out, word}.store_stream(word, chunk) } -> std::same_as<void>;
  // lanes of a wave
  { B::shuffle(x, 0) } -> std::same_as<float>;
  { B::shuffle_xor(x, 1) } -> std::same_as<float>;
  { B::template group_broadcast<0>(x) } -> std::same_as<float>;  // within the lane's group of the atom
  { B::template reduce<B::facts.wave_lanes>(x, Sum{}) } -> std::same_as<float>;
  { B::template reduce<1>(x, Max{}) } -> std::same_as<float>;
  { B::order(key, key) } -> std::same_as<void>;  // the first becomes the larger one
  { B::larger(key, key) } -> std::same_as<std::uint64_t>;
  { B::template other_half<1>(word) } -> std::same_as<std::uint32_t>;
  { B::template peers<8>(word) } -> std::same_as<Peers>;
  { B::sum_up_to(0) } -> std::same_as<int>;
  { B::total(word) } -> std::same_as<std::uint32_t>;
  { B::highest(word) } -> std::same_as<std::uint32_t>;
  { B::uniform(0) } -> std::same_as<int>;      // the kernel promises that all lanes have this value
  { B::opaque(out) } -> std::same_as<float*>;  // the value itself, computed here and only once
  { B::opaque(word) } -> std::same_as<std::uint32_t>;
  { B::opaque(0) } -> std::same_as<int>;
  { B::any(true) } -> std::same_as<bool>;
  // numbers
  { B::subtract(x, x) } -> std::same_as<float>;  // the product was rounded before
  { B::fused(Vec<float, 2>{}, Vec<float, 2>{}, Vec<float, 2>{}) } -> std::same_as<Vec<float, 2>>;
  { B::canonical(Vec<float, 2>{}) } -> std::same_as<Vec<float, 2>>;  // spares Max the search for signalling NaNs
  { B::exp2(x) } -> std::same_as<float>;
  { B::log2(x) } -> std::same_as<float>;
  { B::rsqrt(x) } -> std::same_as<float>;
  { B::reciprocal(x) } -> std::same_as<float>;
  { B::pack_bf16(x, x) } -> std::same_as<std::uint32_t>;   // ties may round away from zero; no NaN
  { B::round_bf16(x, x) } -> std::same_as<std::uint32_t>;  // ties to even; NaN stays NaN
  { B::pack_f16(x, x) } -> std::same_as<std::uint32_t>;
  { B::widen_f16(word) } -> std::same_as<Vec<float, 2>>;
  { B::pack_fp8(x, x, x, x) } -> std::same_as<std::uint32_t>;
  { B::widen_fp8(word) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::widen_fp8_to_f16(word) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::i4_unit } -> std::convertible_to<float>;
  { B::template i4_zeros<DType::bf16>(0) } -> std::same_as<std::uint32_t>;
  { B::widen_i4(word, word) } -> std::same_as<Chunk>;  // exactly i4_unit times the values
  { B::widen_i4_to_f16(word, word) } -> std::same_as<Chunk>;
  { B::widen_fp4(word) } -> std::same_as<Chunk>;
  { B::widen_fp4_scaled(word, word) } -> std::same_as<Chunk>;
  { B::widen_fp4_to_f16(word) } -> std::same_as<Chunk>;
  { B::template pick_bytes<0, 1, 4, 5>(word, word) } -> std::same_as<std::uint32_t>;
  { B::pack_i8(x, x, x, x) } -> std::same_as<std::uint32_t>;
  // the chained atom of atom.hpp
  { B::mma(kv, rows, acc) } -> std::same_as<typename B::Accumulator>;
  { B::mma_f16(kv, rows, acc) } -> std::same_as<typename B::Accumulator>;
  // launches, barriers, clusters
  { B::launch_next() } -> std::same_as<void>;
  { B::wait_for_previous() } -> std::same_as<void>;
  { B::promised_reads(true) } -> std::same_as<void>;
  { B::add_shared(counter, word) } -> std::same_as<void>;  // any number of lanes at a time
  { B::barrier() } -> std::same_as<void>;
  { B::wave_barrier() } -> std::same_as<void>;
  { B::cluster_arrive() } -> std::same_as<void>;
  { B::cluster_arrive_relaxed() } -> std::same_as<void>;  // releases nothing that the lane wrote
  { B::cluster_wait() } -> std::same_as<void>;
  { B::cluster_rank() } -> std::same_as<int>;
  { B::remote(out, 0) } -> std::same_as<float*>;
  { B::template open<1>(box) } -> std::same_as<void>;
  { B::post(*box, out, 0, x) } -> std::same_as<void>;  // into another block, whose box counts it
  { B::collect(*box, 1, 0) } -> std::same_as<void>;
  { B::sched_fence() } -> std::same_as<void>;  // for the compiler alone
};

/// A room whose chained atom also takes fp8 of its own flavour, with twice the k (gfx942_fp8_atom).
template <class B>
concept Fp8AtomBackend = Backend<B> &&
    requires(typename B::KvOperand kv, typename B::RowsOperand rows, typename B::Accumulator acc) {
  { B::mma_fp8(kv, rows, acc) } -> std::same_as<typename B::Accumulator>;
};

/// A room of a chip that converts to OCP MX's formats.
template <class B>
concept MxBackend = Backend<B> && requires(const Vec<float, 8>& eight, const Vec<float, 32>& all, std::uint32_t word) {
  { B::pack_fp4(eight) } -> std::same_as<std::uint32_t>;
  { B::pack_e2m3(all) } -> std::same_as<Vec<std::uint32_t, 6>>;
  { B::pack_e3m2(all) } -> std::same_as<Vec<std::uint32_t, 6>>;
};

/// A room with asynchronous copies, which some waves issue for others into a ring of stages in shared memory, and with
/// barriers that count them.
template <class B>
concept StagedBackend = Backend<B> &&
    requires(typename B::Mbarrier* mbarrier, void* shared, const void* global, const Chunk* row, Chunk* chunk,
             std::uint32_t bytes, Mailbox* box, Vec<float, 4>* four) {
  { B::mbarrier_init(mbarrier, 1) } -> std::same_as<void>;
  { B::mbarrier_ready() } -> std::same_as<void>;  // after the last mbarrier_init, before barrier()
  { B::mbarrier_arrive(mbarrier) } -> std::same_as<void>;
  { B::mbarrier_expect(mbarrier, bytes) } -> std::same_as<void>;            // one arrival, and bytes to wait for
  { B::mbarrier_wait(mbarrier, 0) } -> std::same_as<void>;                  // until the phase of this parity has ended
  { B::pass_turn(mbarrier, 0) } -> std::same_as<void>;                      // turn 0, from one group to another
  { B::await_turn(mbarrier, 0, 0) } -> std::same_as<void>;                  // the first time, then for parity 1
  { B::mbarrier_test(mbarrier, 0) } -> std::same_as<bool>;                  // whether it has; it orders nothing
  { B::copy_bulk(shared, global, bytes, mbarrier) } -> std::same_as<void>;  // one lane calls it
  { B::load_stream_line(row) } -> std::same_as<Chunk>;  // load_stream of a part of a line whose rest is read next
  { B::copy_lane(chunk, row) } -> std::same_as<void>;
  { B::lane_copies_end() } -> std::same_as<void>;
  { B::lane_copies_arrive(mbarrier) } -> std::same_as<void>;  // copies_arrivals arrivals of a wave
  { B::template lane_copies_wait<1>() } -> std::same_as<void>;
  { B::load_matrices(row) } -> std::same_as<Chunk>;  // four matrices of 8 x 8 elements of 2 bytes
  { B::load_matrices_transposed(row) } -> std::same_as<Chunk>;
  { B::post(*box, four, 0, *four) } -> std::same_as<void>;
  { B::prefetch(global) } -> std::same_as<void>;
  { B::prefetch(global, bytes) } -> std::same_as<void>;
  { B::nanoseconds() } -> std::same_as<std::uint64_t>;
  { B::pause_until(std::uint64_t{}) } -> std::same_as<void>;
};

/// A staged room whose waves also multiply in groups of four, starting at a multiple of four in their block. All lanes
/// of a group call the group_ primitives in the same order (group-uniform control flow).
template <class B>
concept GroupBackend = StagedBackend<B> &&
    requires(GroupOperand operand, const Chunk& a, Chunk* row, Vec<float, 4>& acc, Vec<float, 8>& wide_acc,
             Vec<std::uint32_t, 1> word, Vec<std::uint32_t, 2> two_words, Vec<std::uint32_t, 4> four_words) {
  // acc[64][columns] += a b^T
  { B::template group_mma<DType::bf16, 8>(operand, operand, acc) } -> std::same_as<void>;
  { B::template group_mma<B::facts.fp8, 16>(operand, operand, wide_acc) } -> std::same_as<void>;
  { B::template group_mma<DType::bf16, 8>(a, operand, acc) } -> std::same_as<void>;
  { B::template group_mma<DType::f16, 16>(a, operand, wide_acc) } -> std::same_as<void>;
  { B::template group_mma<B::facts.fp8, 16>(a, operand, wide_acc) } -> std::same_as<void>;
  { B::group_mma_fence(acc) } -> std::same_as<void>;  // before the first product, for values that were just written
  { B::group_mma_begin() } -> std::same_as<void>;
  { B::group_mma_end() } -> std::same_as<void>;
  { B::template group_mma_wait<1>() } -> std::same_as<void>;
  { B::divergent(0) } -> std::same_as<int>;       // the compiler must assume that lanes differ in it
  { B::shared_written() } -> std::same_as<void>;  // makes writes visible to copies and products
  { B::group_barrier() } -> std::same_as<void>;
  { B::group_any(true) } -> std::same_as<bool>;
  { B::template store_matrices<1>(row, word) } -> std::same_as<void>;
  { B::template store_matrices<2>(row, two_words) } -> std::same_as<void>;
  { B::template store_matrices<4>(row, four_words) } -> std::same_as<void>;
};

/// Rows on the device as a tensor map sees them: `rows` rows of `columns` contiguous elements, in `layers`. Strides are
/// in bytes and multiples of 16; the start is aligned to 16 bytes. A copy moves a box of 128 bytes by `box_rows` by
/// `box_layers`, one after the other; both are at most 256. A `straight` box, for elements of one byte, has 256 bytes
/// whose rows lie one after the other, unswizzled. A copy of boxes `side_by_side` moves so many, of 128 bytes each, and
/// eight rows of one follow eight rows of the one before; rows are whole boxes then, and begin and end at multiples of
/// eight.
struct TensorShape {
  const void* data;
  DType type;
  std::int64_t columns, rows, layers;
  std::int64_t row_stride, layer_stride;
  int box_rows, box_layers = 1;
  bool straight = false;
  int side_by_side = 0;  // 0: one box
  bool once = false;     // is read about once: nothing beside a box is fetched ahead of time

  constexpr int box_bytes() const { return straight ? 256 : 128; }  // bytes of one row
};

/// A matrix in shared memory whose rows have 128 bytes of k, as copy_tensor writes them. The 16-byte unit u of row r
/// lies at at + 128 r + 16 (u ^ r % 8), and `at` is aligned to 1024 bytes. A product begins at `row`, a multiple of 8,
/// and at `k_slice`, in units of 32 bytes. Eight rows may lie `eight_rows` bytes behind the eight before.
struct SwizzledOperand {
  const void* at;
  int row = 0, k_slice = 0, eight_rows = 1024;

  friend constexpr bool operator==(const SwizzledOperand&, const SwizzledOperand&) = default;
};

/// A swizzled matrix of 16-bit elements whose rows lie side by side: boxes of 64 rows (128 bytes) by `box_k` of k, one
/// after the other. Rows 8 u to 8 u + 7 of box i at k lie at at + 128 (i box_k + k) + 16 (u ^ k % 8). `row` is a
/// multiple of 64; `k_slice` is in units of 16 k. Eight k may lie `eight_k` bytes behind the eight before: box_k is
/// 8.
struct TransposedOperand {
  const void* at;
  int box_k;
  int row = 0, k_slice = 0, eight_k = 1024;

  friend constexpr bool operator==(const TransposedOperand&, const TransposedOperand&) = default;
};

/// A group room with an engine that copies boxes of tensors, and with clusters whose blocks copy for each other.
template <class B>
concept TensorBackend = GroupBackend<B> &&
    requires(const TensorShape& shape, typename B::TensorMap& map, typename B::Mbarrier* mbarrier, void* shared,
             Chunk* row, SwizzledOperand operand, Vec<float, 4>& acc, Vec<float, 128>& wide_acc,
             Vec<std::int32_t, 128>& wide_ints, TransposedOperand transposed, GroupOperand plain,
             Vec<std::uint32_t, 4> words, const Chunk& a, Vec<float, 64>& sums,
             const Vec<std::uint32_t, 2>& two_words) {
  { B::make_tensor_map(shape, map) } -> std::same_as<Status>;
  { B::elected() } -> std::same_as<bool>;  // true in one lane of the wave, all of whose lanes call it together
  { B::prefetch_map(map) } -> std::same_as<void>;
  { B::copy_tensor(shared, map, 0, 0, 0, mbarrier) } -> std::same_as<void>;
  { B::copy_tensor(shared, map, 0, 0, 0, mbarrier, 3u) } -> std::same_as<void>;   // into blocks 0 and 1 of the cluster
  { B::copy_tensor_once(shared, map, 0, 0, 0, mbarrier) } -> std::same_as<void>;  // L2 gives its lines up first
  { B::copy_side_by_side(shared, map, 0, 0, mbarrier) } -> std::same_as<void>;    // whole rows, of boxes side by side
  { B::store_tensor(map, 0, 0, 0, shared) } -> std::same_as<void>;
  { B::stores_end() } -> std::same_as<void>;
  // one lane's: the word on the device, which is then one more, or 0 behind the last
  { B::take_number(&words[0], 7u) } -> std::same_as<std::uint32_t>;
  { B::template stores_read<1>() } -> std::same_as<void>;
  { B::mbarrier_arrive(mbarrier, 1) } -> std::same_as<void>;
  { B::template group_multiply<DType::bf16, 8>(operand, operand, acc, true) } -> std::same_as<void>;
  { B::template group_multiply<B::facts.fp8, 256>(operand, operand, wide_acc, false) } -> std::same_as<void>;
  { B::template group_multiply<DType::f16, 256>(operand, transposed, wide_acc, true) } -> std::same_as<void>;
  { B::template group_multiply<DType::bf16, 256>(transposed, transposed, wide_acc, true) } -> std::same_as<void>;
  { B::template group_multiply<B::facts.fp8, 256>(plain, operand, wide_acc, true) } -> std::same_as<void>;
  { B::template group_multiply<DType::i8, 256>(operand, operand, wide_ints, false) } -> std::same_as<void>;
  { B::template group_multiply<DType::bf16, 128>(a, operand, sums) } -> std::same_as<void>;
  { B::template group_multiply<DType::f16, 128>(a, transposed, sums) } -> std::same_as<void>;
  { B::template widen_i4_pairs<DType::f16>(two_words, 3, words[0]) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::template i4_offsets<DType::f16>(words[0], words[1]) } -> std::same_as<std::uint32_t>;
  {
    B::template widen_i4_pairs_times<DType::f16>(two_words, 3, words[0], words[1])
    } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::template widen_i4_biased<DType::bf16>(words[0]) } -> std::same_as<Chunk>;
  { B::widen_i4_counts(words[0]) } -> std::same_as<Chunk>;
  { B::widen_i4_quad(words[0], 1) } -> std::same_as<std::uint32_t>;
  { B::template widen_fp4_pairs<DType::bf16>(two_words, 3) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::widen_fp4_quad(words[0], 1) } -> std::same_as<std::uint32_t>;
  { B::multiply_f16(words[0], words[0]) } -> std::same_as<std::uint32_t>;
  { B::multiply_bf16(words[0], words[0]) } -> std::same_as<std::uint32_t>;
  { B::template store_matrices_straight<4>(row, words) } -> std::same_as<void>;
  // byte i of the result is the one of {high, low} that nibble i of the selector, 0 to 7, names
  { B::permute_bytes(words[0], words[1], words[2]) } -> std::same_as<std::uint32_t>;
  { B::template take_registers<232>() } -> std::same_as<void>;  // all lanes of a group call it, for each of them
  { B::template give_registers<40>() } -> std::same_as<void>;
};

/// The geometry of a launch. The grid is one-dimensional everywhere, so no room has y/z limits, and remaps are plain
/// arithmetic.
struct LaunchShape {
  std::int64_t grid;  // blocks
  int block;          // lanes
  int cluster = 1;    // neighbouring blocks that run at the same time and reach each other's shared memory
  // sm90: no SM takes more blocks than its share of the grid, also where others are still busy with the kernel before.
  bool spread = false;
};

/// On sm90 a kernel of a stream begins while the kernel before it ends (programmatic dependent launch), and waits
/// before it touches device memory. Reads and writes keep the order of the stream. False: kernels that this thread
/// launches begin when the kernel before has ended, for comparisons. Other chips have no such launches.
inline thread_local constinit bool overlap_launches = true;

/// A kernel whose run() waits for the stream's previous kernel itself. Every lane that touches device memory calls
/// wait_for_previous() before, and at least one lane of each block does. Behind the wait a lane of the block may call
/// launch_next(). The room does both at the beginning of all other kernels. Since launch_next() comes behind the wait,
/// a kernel that begins early may rely on all kernels but the one right before it.
template <class K>
concept WaitsItself = requires {
  requires K::waits_itself;
};
/// A kernel that calls launch_next() itself, or leaves it to the end of its blocks, so that blocks of the next kernel
/// take no room while much is still to be read.
template <class K>
concept LaunchesNext = WaitsItself<K> || requires {
  requires K::launches_next;
};
/// A kernel that is only launched behind one of its own op, which leaves the op's inputs alone. It may read these
/// before it waits.
template <class K>
concept ReadsInputsEarly = WaitsItself<K> && requires {
  requires K::reads_inputs_early;
};

/// Checks what every room can launch: 0 to 2^31 - 1 blocks, fewer than 2^32 lanes in all (HSA's dispatch packet counts
/// lanes in 32 bits), and whole clusters of a size that the chip has. Errors: bad_extent.
inline Status check_launch(LaunchShape shape, const ArchFacts& facts) {
  if (shape.grid < 0 || shape.grid > 0x7fffffff) return {StatusCode::bad_extent, "grid outside [0, 2^31) blocks"};
  if (shape.grid * shape.block > 0xffffffff) return {StatusCode::bad_extent, "grid of 2^32 lanes or more"};
  if (shape.cluster < 1 || shape.cluster > facts.max_cluster_blocks || shape.grid % shape.cluster != 0) {
    return {StatusCode::bad_extent, "the grid is no whole number of clusters of a size this chip has"};
  }
  return {};
}

}  // namespace tilewave
