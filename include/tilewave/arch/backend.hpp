// SPDX-License-Identifier: MIT
// The door to the hardware: what a room must offer. A primitive that a room lacks is a compile error here.
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

/// Operand and accumulator registers of an atom: every room's mma inherits them with its own facts. (Plain integers:
/// g++ 12 crashes on a class-type template argument that depends on B.)
template <int k_per_lane, int rows_per_lane, int kv_per_lane>
struct AtomRegisters {
  using KvOperand = Vec<std::uint32_t, k_per_lane / 2>;  // pairs of bf16 or f16
  using RowsOperand = Vec<std::uint32_t, rows_per_lane * k_per_lane / 2>;
  using Accumulator = Vec<float, rows_per_lane * kv_per_lane>;
};

/// What products of a type are summed in: of i8 exactly, as long as no sum leaves 32 bits.
template <DType type>
using ProductSum = std::conditional_t<type == DType::i8, std::int32_t, float>;

/// Lanes of a wave that have one key: those before this one, and all.
struct Peers {
  int before, count;
};

/// Counts what the blocks of a cluster have posted to one of them; in its shared memory.
struct Mailbox {
  std::uint64_t state;
};

/// A matrix in shared memory as group_mma reads it, in pieces of 16 bytes along k: piece p of row r lies at
/// at + offset + r / 8 * eight_rows + r % 8 * 16 + p * next_piece. `at` is aligned to 16 bytes; offset and strides, in
/// bytes, are multiples of 16 in [0, 2^18). What products have in common belongs to `at`.
struct GroupOperand {
  const void* at;
  int eight_rows, next_piece;
  int offset = 0;

  friend constexpr bool operator==(const GroupOperand&, const GroupOperand&) = default;
};

/// A room. All functions are static, called by every lane of a wave in the same order (wave-uniform control flow):
///   ids         lane_id() in [0, wave_lanes), wave_id() in the block (wave-uniform), block_lane_id() = lane_id() +
///               wave_lanes wave_id() without the cost of a uniform wave_id(), block_id() in the 1-D grid
///   memory      load<T>(p), store(p, v): one access of 1, 2, 4, 8 or 16 bytes of device memory, aligned to its size;
///               load_stream(p), store_stream(p, v): 16 bytes that will not be read again, or not soon
///               Window<uniform>{base, bytes}: device memory of which offsets below `bytes`, less than 2^31, may be
///               touched: load<T>(offset) and load_stream<T>(offset) give 0 beyond, store(offset, v) and
///               store_stream(offset, v) write nothing; offsets and bytes are multiples of sizeof(T).
///               load_stream_inside<T>(offset): of an offset that is surely below `bytes`, so nothing is compared.
///               Uniform: base and bytes are the same in every lane of the wave
///   lanes       shuffle(v, lane), shuffle_xor(v, mask), any(predicate) over the wave,
///               group_broadcast<I>(v): the value of the lane at position I of my atom group;
///               reduce<lanes>(v, op): op (Sum, Max or another commutative functor) over my aligned group of `lanes`
///               lanes, a power of two up to the wave. The tree is v = op(v, v of lane ^ m) for m = 1, 2, 4, ..., so
///               Sum and Max give the same bits in every lane of the group and in every room;
///               order(a, b): of two integers, of 32 bits or below 2^62, a becomes the larger, b the other;
///               larger(a, b): that one; total(word), highest(word): the sum and the largest of all lanes' words;
///               other_half<m>(v), m a power of two below the wave: v is the same in each aligned group of m lanes,
///               and the upper group of every aligned pair gets the lower one's. The lower gets the upper one's where
///               m < 16, else anything;
///               peers<bits>(key): how many lanes of the wave have the key that this one has, of so many bits, and how
///               many of them come before it; sum_up_to(i): the sum of an int over this lane and those before it;
///               uniform(i): tells the compiler that an int is the same in every lane of the wave; divergent(i), of rooms
///               with wave groups: that it may not be, so that what is read by it stays with the lanes;
///               opaque(v): a pointer, word or int itself, worked out here and once; what follows from it
///               afterwards is worked out again, not kept from before, of an int in each turn of a loop
///   counters    add_shared(p, n): *p += n of a word in shared memory, whichever lanes of the block do it at a time
///   numbers     subtract(a, b): a - b, each as it is: a product is rounded before, never one operation with it;
///               of two floats at a time subtract; fused(a, b, c): a b + c, rounded once; canonical(a): themselves, NaNs
///               such that Max need not look for signals; exp2, log2; rsqrt, reciprocal: within 2 ulp where argument
///               and result are normal; pack_bf16(lo, hi) -> one word, ties may round away from zero, no NaN;
///               round_bf16(lo, hi) -> the same, ties to even, NaN stays NaN; pack_f16(lo, hi) likewise, or infinite;
///               widen_f16(word) -> 2 floats, exact, subnormals kept;
///               pack_fp8(a, b, c, d) -> one word, a in the low byte, of the room's own flavour: f32_to_fp8 to the bit;
///               widen_fp8(word) -> 4 bf16 in 2 words, exact, of the room's own flavour;
///               widen_fp8_to_f16(word) -> 4 f16 likewise;
///               widen_i4(word) -> 8 bf16 in 4 words, exactly i4_unit times the values: value i < 4 is in the low half
///               of byte i, value 4 + i in the high one; widen_i4_to_f16(word) -> 8 f16, the values themselves;
///               pick_bytes<a, b, c, d>(low, high): those of the 8 bytes low, high, low's first, as a word;
///               pack_i8(a, b, c, d) -> one word, clamped to [-127, 127], toward zero, NaN becomes 0
///   mma         mma(kv, rows, acc) -> acc: the room's chained atom on bf16, see atom.hpp; mma_f16: the same on f16
///   cluster     cluster_rank() of the block in its cluster; remote(p, rank): where the shared object *p of this block
///               is in block `rank` of the cluster. cluster_arrive() and cluster_wait(), in turn, are the halves of a
///               barrier for all its lanes; one must lie before the first remote access, since a block may begin late,
///               and one behind the last. A cluster of one block is the block. cluster_arrive_relaxed() releases
///               nothing that the lane wrote: for who is done reading
///               open<count>(boxes), then cluster_wait() before the first post: mailboxes of this block.
///               post(box, p, rank, v): *p, in the shared memory of block `rank`, becomes v, which its `box` counts;
///               collect(box, posts, turn), called by every lane: returns when those `posts` are there which are the
///               turn-th (from 0) that the box takes. Nobody waits for anything else, such as stores under way. A
///               place and its box may be posted to again once all waves of its block have collected *and* told so, as
///               by the next posts; a block that has collected all that it is sent may end
///   launches    of a kernel launched with LaunchShape::early: wait_for_previous() returns when the stream's previous
///               kernel is over; launch_next(): once all blocks have called it, the next kernel of the stream may begin
///   sync        barrier() for the block; wave_barrier(): what the wave's lanes wrote to shared memory is there for all
///               of them; sched_fence(): instructions do not move across it (no run-time effect)
template <class B>
concept Backend = requires(const float* in, float* out, const Chunk* chunk_in, Chunk* shared, Chunk chunk, float x,
                           std::uint32_t word, std::uint32_t* counter, std::uint64_t key, Mailbox* box,
                           typename B::KvOperand kv, typename B::RowsOperand rows, typename B::Accumulator acc) {
  { B::facts.wave_lanes } -> std::convertible_to<int>;
  { B::atom.k } -> std::convertible_to<int>;
  { B::is_this_pass } -> std::convertible_to<bool>;
  { B::lane_id() } -> std::same_as<int>;
  { B::wave_id() } -> std::same_as<int>;
  { B::block_lane_id() } -> std::same_as<int>;
  { B::block_id() } -> std::same_as<int>;
  { B::load(in) } -> std::same_as<float>;
  { B::store(out, x) } -> std::same_as<void>;
  { B::load_stream(chunk_in) } -> std::same_as<Chunk>;
  { B::store_stream(shared, chunk) } -> std::same_as<void>;
  { typename B::template Window<true>{in, word}.template load<float>(word) } -> std::same_as<float>;
  { typename B::template Window<false>{in, word}.template load_stream<Chunk>(word) } -> std::same_as<Chunk>;
  { typename B::template Window<false>{in, word}.template load_stream_inside<Chunk>(word) } -> std::same_as<Chunk>;
  { typename B::template Window<true>{out, word}.store(word, x) } -> std::same_as<void>;
  { typename B::template Window<false>{out, word}.store_stream(word, chunk) } -> std::same_as<void>;
  { B::shuffle(x, 0) } -> std::same_as<float>;
  { B::shuffle_xor(x, 1) } -> std::same_as<float>;
  { B::template group_broadcast<0>(x) } -> std::same_as<float>;
  { B::template reduce<B::facts.wave_lanes>(x, Sum{}) } -> std::same_as<float>;
  { B::template reduce<1>(x, Max{}) } -> std::same_as<float>;
  { B::order(key, key) } -> std::same_as<void>;
  { B::larger(key, key) } -> std::same_as<std::uint64_t>;
  { B::template other_half<1>(word) } -> std::same_as<std::uint32_t>;
  { B::template peers<8>(word) } -> std::same_as<Peers>;
  { B::sum_up_to(0) } -> std::same_as<int>;
  { B::total(word) } -> std::same_as<std::uint32_t>;
  { B::highest(word) } -> std::same_as<std::uint32_t>;
  { B::uniform(0) } -> std::same_as<int>;
  { B::opaque(out) } -> std::same_as<float*>;
  { B::opaque(word) } -> std::same_as<std::uint32_t>;
  { B::opaque(0) } -> std::same_as<int>;
  { B::any(true) } -> std::same_as<bool>;
  { B::subtract(x, x) } -> std::same_as<float>;
  { B::fused(Vec<float, 2>{}, Vec<float, 2>{}, Vec<float, 2>{}) } -> std::same_as<Vec<float, 2>>;
  { B::canonical(Vec<float, 2>{}) } -> std::same_as<Vec<float, 2>>;
  { B::exp2(x) } -> std::same_as<float>;
  { B::log2(x) } -> std::same_as<float>;
  { B::rsqrt(x) } -> std::same_as<float>;
  { B::reciprocal(x) } -> std::same_as<float>;
  { B::pack_bf16(x, x) } -> std::same_as<std::uint32_t>;
  { B::round_bf16(x, x) } -> std::same_as<std::uint32_t>;
  { B::pack_f16(x, x) } -> std::same_as<std::uint32_t>;
  { B::widen_f16(word) } -> std::same_as<Vec<float, 2>>;
  { B::pack_fp8(x, x, x, x) } -> std::same_as<std::uint32_t>;
  { B::widen_fp8(word) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::widen_fp8_to_f16(word) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::i4_unit } -> std::convertible_to<float>;
  { B::widen_i4(word) } -> std::same_as<Chunk>;
  { B::widen_i4_to_f16(word) } -> std::same_as<Chunk>;
  { B::template pick_bytes<0, 1, 4, 5>(word, word) } -> std::same_as<std::uint32_t>;
  { B::pack_i8(x, x, x, x) } -> std::same_as<std::uint32_t>;
  { B::mma(kv, rows, acc) } -> std::same_as<typename B::Accumulator>;
  { B::mma_f16(kv, rows, acc) } -> std::same_as<typename B::Accumulator>;
  { B::launch_next() } -> std::same_as<void>;
  { B::wait_for_previous() } -> std::same_as<void>;
  { B::add_shared(counter, word) } -> std::same_as<void>;
  { B::barrier() } -> std::same_as<void>;
  { B::wave_barrier() } -> std::same_as<void>;
  { B::cluster_arrive() } -> std::same_as<void>;
  { B::cluster_arrive_relaxed() } -> std::same_as<void>;
  { B::cluster_wait() } -> std::same_as<void>;
  { B::cluster_rank() } -> std::same_as<int>;
  { B::remote(out, 0) } -> std::same_as<float*>;
  { B::template open<1>(box) } -> std::same_as<void>;
  { B::post(*box, out, 0, x) } -> std::same_as<void>;
  { B::collect(*box, 1, 0) } -> std::same_as<void>;
  { B::sched_fence() } -> std::same_as<void>;
};

/// A room whose chained atom also takes fp8 of its own flavour: mma_fp8(kv, rows, acc), operands of as many bytes as
/// mma's with twice the k (gfx942_fp8_atom), f32 sums.
template <class B>
concept Fp8AtomBackend = Backend<B> &&
    requires(typename B::KvOperand kv, typename B::RowsOperand rows, typename B::Accumulator acc) {
  { B::mma_fp8(kv, rows, acc) } -> std::same_as<typename B::Accumulator>;
};

/// A room of a chip that takes OCP MX's formats:
///   numbers     pack_fp4(v) -> one word of eight codes, the first in its low bits: f32_to_fp4 to the bit;
///               pack_e2m3(v), pack_e3m2(v) -> six words of 32 codes of fp6, the first in the low bits: f32_to_fp6 to
///               the bit
template <class B>
concept MxBackend = Backend<B> && requires(const Vec<float, 8>& eight, const Vec<float, 32>& all) {
  { B::pack_fp4(eight) } -> std::same_as<std::uint32_t>;
  { B::pack_e2m3(all) } -> std::same_as<Vec<std::uint32_t, 6>>;
  { B::pack_e3m2(all) } -> std::same_as<Vec<std::uint32_t, 6>>;
};

/// A room with copies that some waves fetch for others, into a ring of stages in shared memory:
///   mbarrier    an Mbarrier in shared memory counts, phase after phase, arrivals of waves and bytes of copies.
///               mbarrier_init(b, waves) by one lane, once; mbarrier_ready() by it after the last one; then barrier().
///               By all lanes of a wave, which agree: mbarrier_arrive(b), one arrival, releases what the wave did;
///               mbarrier_expect(b, bytes), one arrival that also makes the phase wait for `bytes`, less than 2^20, of
///               copies (it releases what lane 0 did); mbarrier_wait(b, parity) returns when the parity of the current
///               phase is not `parity`, and acquires what arrivals released and copies wrote in the phase before. The
///               first phase has parity 0, so a wait for 1 on a fresh barrier returns at once. A phase ends when its
///               arrivals and bytes are complete; no copy that counts on it may then be left
///   copies      copy_bulk(shared, global, bytes, b) by one lane, or by several, each its own: asynchronous, a positive
///               multiple of 16 bytes, both ends aligned to 16, the target and b in this block's shared memory. It
///               counts on b when it has landed; somebody must wait for that before the block ends
///               copy_lane(shared, global): 4 or 16 bytes, aligned to as many, by each lane its own, asynchronous.
///               lane_copies_end() makes the lane's since the last one a batch; lane_copies_wait<pending>() returns
///               when at most `pending` of its batches are under way. What they brought the lane then sees, others
///               behind a barrier. A lane waits for all of its copies before it ends
///   fragments   load_matrices(row) by all lanes of a wave: four 8 x 8 matrices of 2-byte elements in shared memory.
///               Lane l points at row l % 8 (16 bytes, aligned) of matrix l / 8; word m of its result is the 4 bytes at
///               offset 4 (l % 4) of row l / 4 of matrix m
///   cluster     post(box, p, rank, v) also of four floats, aligned to 16 bytes, as four posts
///   hints       prefetch(p): device memory at p will be read soon; nanoseconds(): a clock that all blocks share;
///               pause_until(t) returns when it has reached t, as far as the room has time
template <class B>
concept StagedBackend = Backend<B> &&
    requires(typename B::Mbarrier* mbarrier, void* shared, const void* global, const Chunk* row, Chunk* chunk,
             std::uint32_t bytes, Mailbox* box, Vec<float, 4>* four) {
  { B::mbarrier_init(mbarrier, 1) } -> std::same_as<void>;
  { B::mbarrier_ready() } -> std::same_as<void>;
  { B::mbarrier_arrive(mbarrier) } -> std::same_as<void>;
  { B::mbarrier_expect(mbarrier, bytes) } -> std::same_as<void>;
  { B::mbarrier_wait(mbarrier, 0) } -> std::same_as<void>;
  { B::copy_bulk(shared, global, bytes, mbarrier) } -> std::same_as<void>;
  { B::copy_lane(chunk, row) } -> std::same_as<void>;
  { B::lane_copies_end() } -> std::same_as<void>;
  { B::template lane_copies_wait<1>() } -> std::same_as<void>;
  { B::load_matrices(row) } -> std::same_as<Chunk>;
  { B::post(*box, four, 0, *four) } -> std::same_as<void>;
  { B::prefetch(global) } -> std::same_as<void>;
  { B::nanoseconds() } -> std::same_as<std::uint64_t>;
  { B::pause_until(std::uint64_t{}) } -> std::same_as<void>;
};

/// A staged room whose waves also multiply in groups: four waves each, from a multiple of four on in their block. What
/// is called group_ is called by all lanes of a group in the same order (group-uniform control flow):
///   products    group_mma<type, columns>(a, b, acc): acc[64][columns] += a[64][k] b[columns][k]^T, columns 8, 16, 32
///               or 64, both operands in shared memory; type bf16 or f16 with k = 16, or the room's fp8 with k = 32:
///               two pieces. Element 4 j + 2 h + e of the acc of lane l of wave w of the group is row
///               16 w + l / 4 + 8 h, column 8 j + 2 (l % 4) + e. Operand a may come from registers instead, as a Chunk:
///               word i holds four bytes, from byte 16 (i / 2) + 4 (l % 4) of k on, of row 16 w + l / 4 + 8 (i % 2)
///   batches     group_mma_fence(acc) for each accumulator that was just written, then group_mma_begin() before the
///               first product, and again after registers that one takes were written; group_mma_end() makes the
///               products since then one batch; group_mma_wait<pending>() returns when at most `pending` batches are
///               under way. Only then do accumulators hold their sums, and only then may the registers of a (a variable
///               that must still exist) and shared memory change, where no other wave's products read it: a wave waits
///               for its own. Products of several batches may add to the same acc
///   visibility  shared_written(): what this lane has stored to shared memory will be seen by copy_bulk and group_mma,
///               behind a barrier that follows
///   sync        group_barrier() for the group's lanes; group_any(predicate): the same, and whether the predicate is
///               true in any of them
///   fragments   store_matrices<count>(row, words) by all lanes of a wave, count 1, 2 or 4: 8 x 8 matrices of 2-byte
///               elements, transposed on the way. Lane l points at row l % 8 (16 bytes, aligned) of matrix l / 8, lanes
///               from 8 count on at anything; element e = 0 (low half), 1 of words[m] of lane l becomes element l / 4
///               of row 2 (l % 4) + e of matrix m
template <class B>
concept GroupBackend = StagedBackend<B> &&
    requires(GroupOperand operand, const Chunk& a, Chunk* row, Vec<float, 4>& acc, Vec<float, 8>& wide_acc,
             Vec<std::uint32_t, 1> word, Vec<std::uint32_t, 2> two_words, Vec<std::uint32_t, 4> four_words) {
  { B::template group_mma<DType::bf16, 8>(operand, operand, acc) } -> std::same_as<void>;
  { B::template group_mma<B::facts.fp8, 16>(operand, operand, wide_acc) } -> std::same_as<void>;
  { B::template group_mma<DType::bf16, 8>(a, operand, acc) } -> std::same_as<void>;
  { B::template group_mma<DType::f16, 16>(a, operand, wide_acc) } -> std::same_as<void>;
  { B::template group_mma<B::facts.fp8, 16>(a, operand, wide_acc) } -> std::same_as<void>;
  { B::group_mma_fence(acc) } -> std::same_as<void>;
  { B::group_mma_begin() } -> std::same_as<void>;
  { B::group_mma_end() } -> std::same_as<void>;
  { B::template group_mma_wait<1>() } -> std::same_as<void>;
  { B::shared_written() } -> std::same_as<void>;
  { B::group_barrier() } -> std::same_as<void>;
  { B::group_any(true) } -> std::same_as<bool>;
  { B::template store_matrices<1>(row, word) } -> std::same_as<void>;
  { B::template store_matrices<2>(row, two_words) } -> std::same_as<void>;
  { B::template store_matrices<4>(row, four_words) } -> std::same_as<void>;
};

/// Rows of elements on the device as a tensor map sees them: `columns` contiguous elements, `rows` of them, in
/// `layers`. Strides in bytes, multiples of 16; the start is aligned to 16 bytes. A copy moves a box of 128 bytes by
/// `box_rows`, at most 256, of `box_layers`, one after the other, and so at most. `straight`, of elements of a byte: a
/// box of 256 bytes, whose rows lie one after the other as they are.
struct TensorShape {
  const void* data;
  DType type;
  std::int64_t columns, rows, layers;
  std::int64_t row_stride, layer_stride;
  int box_rows, box_layers = 1;
  bool straight = false;

  constexpr int box_bytes() const { return straight ? 256 : 128; }  // of a row
};

/// A matrix of rows of 128 bytes of k in shared memory, as copy_tensor writes them: the 16-byte unit u of row r lies at
/// at + 128 r + 16 (u ^ r % 8). `at` is aligned to 1024 bytes. `row`, a multiple of 8, and `piece`, in units of 32
/// bytes, say where a product begins.
struct SwizzledOperand {
  const void* at;
  int row = 0, piece = 0;

  friend constexpr bool operator==(const SwizzledOperand&, const SwizzledOperand&) = default;
};

/// As SwizzledOperand, of 16-bit elements with the matrix's rows side by side: boxes of 64 rows (128 bytes) by `box_k`
/// of k, one after the other. Rows 8 u to 8 u + 7 of box i at k lie at at + 128 (i box_k + k) + 16 (u ^ k % 8). `row`
/// is a multiple of 64; `piece` is in units of 16 k.
struct TransposedOperand {
  const void* at;
  int box_k;
  int row = 0, piece = 0;

  friend constexpr bool operator==(const TransposedOperand&, const TransposedOperand&) = default;
};

/// A group room with an engine that copies boxes of tensors, and with blocks of a cluster that copy for each other:
///   maps        make_tensor_map(shape, map) on the host: a TensorMap, which the kernel's Args carry; errors
///               bad_stride, misaligned, bad_extent, launch_failed. prefetch_map(map): it will be used soon
///   copies      copy_tensor(shared, map, column, row, layer, b) by one lane: the box from there on lands in shared
///               memory as SwizzledOperand says, aligned to 1024 bytes (straight: one row after the other, aligned to
///               128), and counts on b, all of its bytes. What lies outside the tensor is 0; column, row and layer are
///               not negative, column a multiple of 16 bytes. With a mask, the box lands in all blocks of the cluster
///               whose bit is set, at the same place, and counts on the barrier at b's place in each
///   stores      store_tensor(map, column, row, layer, shared) by one lane: a box of that form goes out behind
///               shared_written() and a barrier. Nothing is written outside the tensor, but the engine writes 16 bytes
///               at a time: a box that reaches the end of rows needs rows of whole 16 bytes. stores_end() makes the
///               lane's stores since the last one a batch; stores_read<pending>() returns when at most `pending`
///               batches still read shared memory
///   mbarrier    mbarrier_arrive(b, rank): as mbarrier_arrive(b), at the barrier at b's place in block `rank` of the
///               cluster
///   products    group_multiply<type, columns>(a, b, acc, add): acc[64][columns] = a[64][32 bytes of k] times the
///               transpose of b[columns][the same k], plus acc where `add`; between group_mma_begin and _end as
///               group_mma. Columns: 8, 16, 32, 64, 128, 176, 192, 240, 256; of i8, whose acc is of ints, 16, 64, 128
///               and 256. Either operand may be a GroupOperand or a TransposedOperand, b then of a multiple of 64 columns.
///               group_multiply<type, columns>(a, b, acc): acc += a b^T with a from registers as group_mma takes it,
///               columns up to 128
///   numbers     widen_i4_pairs<type>(words, pair): of each of two words, values 2 pair and the next of the eight of
///               widen_i4, exactly, as bf16 or f16; `pair` may differ between lanes. widen_i4_biased<type>(word): the
///               pairs of values 0 and 2, 1 and 3, 4 and 6, 5 and 7, each too large by what i4_negative_biases<type> is
///               two of the negative of. widen_i4_quad(word, quad): the
///               four from 4 quad on, as the room's fp8, exactly i4_fp8_unit times the values
///   fragments   store_matrices_straight<count>(row, words): as store_matrices, not transposed: words[m] of lane l
///               becomes elements 2 (l % 4) and the next of row l / 4 of matrix m
///   registers   take_registers<n>(), give_registers<n>(): by all lanes of a group, which from then on may use n each;
///               of a kernel whose blocks fill a unit alone
template <class B>
concept TensorBackend = GroupBackend<B> &&
    requires(const TensorShape& shape, typename B::TensorMap& map, typename B::Mbarrier* mbarrier, void* shared,
             Chunk* row, SwizzledOperand operand, Vec<float, 4>& acc, Vec<float, 128>& wide_acc,
             Vec<std::int32_t, 128>& wide_ints, TransposedOperand transposed, GroupOperand plain,
             Vec<std::uint32_t, 4> words, const Chunk& a, Vec<float, 64>& sums,
             const Vec<std::uint32_t, 2>& two_words) {
  { B::make_tensor_map(shape, map) } -> std::same_as<Status>;
  { B::prefetch_map(map) } -> std::same_as<void>;
  { B::copy_tensor(shared, map, 0, 0, 0, mbarrier) } -> std::same_as<void>;
  { B::copy_tensor(shared, map, 0, 0, 0, mbarrier, 3u) } -> std::same_as<void>;
  { B::store_tensor(map, 0, 0, 0, shared) } -> std::same_as<void>;
  { B::stores_end() } -> std::same_as<void>;
  { B::template stores_read<1>() } -> std::same_as<void>;
  { B::mbarrier_arrive(mbarrier, 1) } -> std::same_as<void>;
  { B::template group_multiply<DType::bf16, 8>(operand, operand, acc, true) } -> std::same_as<void>;
  { B::template group_multiply<B::facts.fp8, 256>(operand, operand, wide_acc, false) } -> std::same_as<void>;
  { B::template group_multiply<DType::f16, 256>(operand, transposed, wide_acc, true) } -> std::same_as<void>;
  { B::template group_multiply<DType::bf16, 256>(transposed, transposed, wide_acc, true) } -> std::same_as<void>;
  { B::template group_multiply<B::facts.fp8, 256>(plain, operand, wide_acc, true) } -> std::same_as<void>;
  { B::template group_multiply<DType::i8, 256>(operand, operand, wide_ints, false) } -> std::same_as<void>;
  { B::template group_multiply<DType::bf16, 128>(a, operand, sums) } -> std::same_as<void>;
  { B::template widen_i4_pairs<DType::f16>(two_words, 3) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::template widen_i4_biased<DType::bf16>(words[0]) } -> std::same_as<Chunk>;
  { B::widen_i4_quad(words[0], 1) } -> std::same_as<std::uint32_t>;
  { B::template store_matrices_straight<4>(row, words) } -> std::same_as<void>;
  { B::template take_registers<232>() } -> std::same_as<void>;
  { B::template give_registers<40>() } -> std::same_as<void>;
};

/// Launch geometry. The grid is one-dimensional everywhere: no room's y/z limits, and remaps are plain arithmetic.
struct LaunchShape {
  std::int64_t grid;   // blocks
  int block;           // lanes
  int cluster = 1;     // neighbouring blocks that run at the same time and reach each other's shared memory
  bool early = false;  // may begin before the stream's previous kernel ends, and waits for it by itself
};

/// What every room launches: 0 to 2^31 - 1 blocks, fewer than 2^32 lanes in all (HSA's dispatch packet counts lanes in
/// 32 bits), whole clusters of what the chip has of them. Errors: bad_extent.
inline Status check_launch(LaunchShape shape, const ArchFacts& facts) {
  if (shape.grid < 0 || shape.grid > 0x7fffffff) return {StatusCode::bad_extent, "grid outside [0, 2^31) blocks"};
  if (shape.grid * shape.block > 0xffffffff) return {StatusCode::bad_extent, "grid of 2^32 lanes or more"};
  if (shape.cluster < 1 || shape.cluster > facts.max_cluster_blocks || shape.grid % shape.cluster != 0) {
    return {StatusCode::bad_extent, "the grid is no whole number of clusters of a size this chip has"};
  }
  return {};
}

}  // namespace tilewave
