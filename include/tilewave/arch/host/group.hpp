// SPDX-License-Identifier: MIT
// Operations that a group of four waves does together (GroupBackend): matrix products, barriers and votes.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <algorithm>
#include <cstdint>

#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/lanes.hpp"
#include "tilewave/arch/host/memory.hpp"
#include "tilewave/arch/host/product.hpp"
#include "tilewave/arch/host/schedule.hpp"
#include "tilewave/arch/host/staged.hpp"

namespace tilewave::host {

namespace detail {

TILEWAVE_HOST_UNTRACKED inline Group& group_of(Lane& self, const char* what, Where where) {
  const Wave& wave = *self.wave;
  const int g = wave.index / group_waves;
  if ((g + 1) * group_waves > self.cluster->block_waves) {
    fail(self, "%s at %s:%d: of the four waves of this one's group the block of %d has %d", what, where.base_name(),
         where.line, self.cluster->block_waves, self.cluster->block_waves - g * group_waves);
  }
  return wave.block->group[g];
}

/// A call as text.
struct Described {
  char text[200];
};
TILEWAVE_HOST_UNTRACKED inline Described describe(const Lane& self, const GroupCall& call) {
  Described d;
  if (call.kind != GroupCall::Kind::mma) {
    std::snprintf(d.text, sizeof(d.text), "group_mma_%s at %s:%d",
                  call.kind == GroupCall::Kind::begin ? "begin" : "end", call.where.base_name(), call.where.line);
    return d;
  }
  const std::string_view type = name_of(call.type);
  std::snprintf(d.text, sizeof(d.text), "%s<%.*s, %d> at %s:%d of a %s and b %s%s", call.name(),
                static_cast<int>(type.size()), type.data(), call.columns, call.where.base_name(), call.where.line,
                call.registers ? "in registers" : describe(self, call.a).text, describe(self, call.b).text,
                call.add ? "" : ", not added");
  return d;
}

/// Records `call` as this lane's next call of the group.
TILEWAVE_HOST_UNTRACKED inline void say(Lane& self, Group& group, const GroupCall& call) {
  const std::int64_t number = self.group.calls++;
  Group::Call& said = group.call_at(number);
  if (number == group.calls) {
    if (group.calls - group.calls_done == Group::max_calls) {
      fail(self, "more than %d group_mma calls that nobody has waited for at %s:%d", Group::max_calls,
           call.where.base_name(), call.where.line);
    }
    said = {call, 0};
    ++group.calls;
  } else if (!(said.call == call)) {
    fail(self, "group divergence: this lane's call %lld is %s, another lane's %s%s", static_cast<long long>(number),
         describe(self, call).text, describe(self, said.call).text,
         said.call.accumulator != call.accumulator ? ", to other accumulators" : "");
  }
  ++said.lanes;
}

/// Returns the accumulator under way whose registers of this lane are `registers`, or -1 if there is none.
TILEWAVE_HOST_UNTRACKED inline int find_accumulator(const Group& group, int lane, const std::byte* registers) {
  for (int i = 0; i < group.accumulators; ++i) {
    if (group.accumulator[i].products != 0 && group.accumulator[i].registers[lane] == registers) return i;
  }
  return -1;
}

TILEWAVE_HOST_UNTRACKED inline int new_accumulator(Lane& self, Group& group, const GroupCall& call) {
  for (int i = 0; i < Group::max_accumulators; ++i) {
    Group::Accumulator& acc = group.accumulator[i];
    if (acc.products != 0) continue;
    group.accumulators = std::max(group.accumulators, i + 1);
    acc.columns = call.columns;
    for (std::byte*& registers : acc.registers) registers = nullptr;
    return i;
  }
  fail(self, "more than %d accumulators that nobody has waited for at %s:%d", Group::max_accumulators,
       call.where.base_name(), call.where.line);
}

TILEWAVE_HOST_UNTRACKED inline void call_mma(GroupCall call, const Chunk* a, void* accumulator) {
  auto* const registers = static_cast<std::byte*>(accumulator);
  Lane& self = *current_lane;
  Group& group = group_of(self, call.name(), call.where);
  if (!self.group.open) {
    fail(self, "%s at %s:%d is not between group_mma_begin and group_mma_end", call.name(), call.where.base_name(),
         call.where.line);
  }
  const int lane = index_in_group(self);
  const std::int64_t number = self.group.calls;
  const bool first = number == group.calls;
  const int found = find_accumulator(group, lane, registers);
  if (first) {
    if (!call.registers) check_operand(self, call.a, call.name(), "a", group_rows, call.where);
    check_operand(self, call.b, call.name(), "b", call.columns, call.where);
    if (!call.registers) {
      check_seen(self, call.name(), "operand a", call.where,
                 [&call](const std::byte* row) { return call.a.has_unit(group_rows, row); });
    }
    check_seen(self, call.name(), "operand b", call.where,
               [&call](const std::byte* row) { return call.b.has_unit(call.columns, row); });
    call.accumulator = found >= 0 ? found : new_accumulator(self, group, call);
  } else {
    const int theirs = group.call_at(number).call.accumulator;
    call.accumulator = found >= 0 || group.accumulator[theirs].registers[lane] != nullptr ? found : theirs;
  }
  say(self, group, call);
  Group::Accumulator& acc = group.accumulator[call.accumulator];
  if (acc.columns != call.columns) {
    fail(self, "%s at %s:%d of %d columns adds to an accumulator under way of %d", call.name(), call.where.base_name(),
         call.where.line, call.columns, acc.columns);
  }
  if (first) ++acc.products;
  if (found < 0) take_accumulator(acc, lane, registers);
  if (call.registers) {
    Group::Operand& operand = group.operand[number % Group::max_calls];
    operand.registers[lane] = a;
    operand.held[lane] = *a;
  }
}

TILEWAVE_HOST_UNTRACKED inline void call_begin(Where where) {
  Lane& self = *current_lane;
  say(self, group_of(self, "group_mma_begin", where), {.kind = GroupCall::Kind::begin, .where = where});
  self.group.open = true;
}

TILEWAVE_HOST_UNTRACKED inline void call_end(Where where) {
  Lane& self = *current_lane;
  Cluster& cluster = *self.cluster;
  Group& group = group_of(self, "group_mma_end", where);
  if (!self.group.open) {
    fail(self, "group_mma_end at %s:%d without a group_mma_begin", where.base_name(), where.line);
  }
  self.group.open = false;
  say(self, group, {.kind = GroupCall::Kind::end, .where = where});
  const std::int64_t number = self.group.batches++;
  Group::Batch& batch = group.batch_at(number);
  if (number == group.batches) {
    if (group.batches - group.batches_awaited == Group::max_batches) {
      fail(self, "more than %d batches of group_mma that nobody has waited for at %s:%d", Group::max_batches,
           where.base_name(), where.line);
    }
    batch.end = group.calls;
    ++group.batches;
  }
  order_release(&batch.ordered[self.wave->index % group_waves]);
  if (cluster.options.schedule != Schedule::random) return;
  const bool last = group.call_at(self.group.calls - 1).lanes == group_lanes;
  if (last && cluster.draw() % 2 == 0) perform(self, group, number + 1);
  if (cluster.draw() % 8 == 0) yield(self);
}

/// Works like `meet` for the lanes of the group. It returns true for the last of all, which then calls
/// `complete_group`.
TILEWAVE_HOST_UNTRACKED inline bool meet_group(Lane& self, Group& group, const Collective& call) {
  if (group.came == 0) {
    group.meeting = call;
    group.calls_before = self.group.calls;
  } else if (!(group.meeting == call)) {
    const Collective& other = group.meeting;
    fail(self, "group divergence: this lane calls %s (%d) at %s:%d while %d of %d lanes wait in %s (%d) at %s:%d",
         name_of(call.kind), call.immediate, call.where.base_name(), call.where.line, group.came, group_lanes,
         name_of(other.kind), other.immediate, other.where.base_name(), other.where.line);
  } else if (group.calls_before != self.group.calls) {
    fail(self, "group divergence: %s at %s:%d after %lld group_mma calls of this lane and %lld of others",
         name_of(call.kind), call.where.base_name(), call.where.line, static_cast<long long>(self.group.calls),
         static_cast<long long>(group.calls_before));
  }
  ++group.came;
  const int number = group.number;
  if (!meet(self, call)) return false;
  if (group.came == group_lanes) return true;
  self.wave->in_group = &self;
  while (group.number == number) stop(self);
  self.wave->in_group = nullptr;
  complete(self);
  return false;
}

TILEWAVE_HOST_UNTRACKED inline void complete_group(Lane& self, Group& group) {
  Cluster& cluster = *self.cluster;
  group.came = 0;
  ++group.number;
  const int first = self.wave->slot - self.wave->index % group_waves;
  for (int w = first; w < first + group_waves; ++w) {
    Wave& wave = *cluster.wave[w];
    if (wave.in_group == nullptr) continue;
    wave.ready |= wave.in_group->bit();
    cluster.runnable |= WaveSet{1} << w;
  }
  complete(self);
}

TILEWAVE_HOST_UNTRACKED inline void wait_for_batches(int pending, Where where) {
  Lane& self = *current_lane;
  Group& group = group_of(self, "group_mma_wait", where);
  const std::int64_t target = self.group.batches - pending;
  if (meet_group(self, group, {CollectiveKind::group_mma_wait, pending, where})) {
    if (target > group.batches_awaited) {
      perform(self, group, target);
      group.batches_awaited = target;
    }
    complete_group(self, group);
  }
  // A wave waits only for its own part of the products: other waves' parts may still read the operands that they share.
  for (; self.group.awaited < target; ++self.group.awaited)
    order_acquire(&group.batch_at(self.group.awaited).ordered[self.wave->index % group_waves]);
}

TILEWAVE_HOST_UNTRACKED inline bool vote_in_group(CollectiveKind kind, bool predicate, Where where) {
  Lane& self = *current_lane;
  Group& group = group_of(self, name_of(kind), where);
  const int parity = group.number % 2;
  if (group.came == 0) group.votes[parity] = false;
  if (predicate) group.votes[parity] = true;
  order_release(&group.ordered[parity]);
  if (meet_group(self, group, {kind, 0, where})) complete_group(self, group);
  order_acquire(&group.ordered[parity]);
  return group.votes[parity];
}

/// All lanes of the group change the number of registers that they may use. The room's supply is not limited.
TILEWAVE_HOST_UNTRACKED inline void change_registers(CollectiveKind kind, int count, Where where) {
  Lane& self = *current_lane;
  Group& group = group_of(self, name_of(kind), where);
  if (meet_group(self, group, {kind, count, where})) complete_group(self, group);
}

TILEWAVE_HOST_UNTRACKED inline bool post_matrices(CollectiveKind kind, const Chunk* row, const std::uint32_t* words,
                                                  int count, Where where) {
  Lane& self = *current_lane;
  Wave& wave = *self.wave;
  if (self.index < 8 * count) {
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) bad_access(self, row, 16, where);
    if (!in_shared(self, row, 16)) {
      fail(self, "a row of %s is not in shared memory at %s:%d", name_of(kind), where.base_name(), where.line);
    }
    wave.posted[wave.parity][self.index] =
        static_cast<std::uint32_t>(reinterpret_cast<const std::byte*>(row) - wave.block->shared);
    if (self.unseen.count < remembered_rows) {
      self.unseen.row[self.unseen.count++] = reinterpret_cast<const std::byte*>(row);
      ++wave.block->unseen;
    }
  }
  for (int m = 0; m < count; ++m) wave.dealt[self.index][m] = words[m];
  if (!meet(self, {kind, count, where})) return false;
  order_acquire(&wave.ordered[wave.parity]);
  self.cluster->counters.lds_stores_bytes += 8 * 16 * count;
  return true;
}
TILEWAVE_HOST_UNTRACKED inline void forget_unseen() {
  Lane& self = *current_lane;
  self.wave->block->unseen -= self.unseen.count;
  self.unseen.count = 0;
}

}  // namespace detail

/// Chips that have these primitives; GroupBackend says what they do.
template <ArchId Id>
struct Groups {};

template <ArchId Id>
requires(facts_of(Id).wave_groups) struct Groups<Id> {
  /// Products are performed when they are waited for. In the random schedule that also happens as soon as the last lane
  /// has ended their batch. They are made in f32 with ascending k (the chip's fp8 products keep fewer bits). Until then
  /// the accumulator's registers hold NaN, and a kernel that writes to them or to the registers of operand a fails.
  template <DType type, int columns>
  static void group_mma(const GroupOperand& a, const GroupOperand& b, Vec<float, columns / 2>& acc, Where where = {}) {
    static_assert(detail::group_type<Id, type>, "wave groups multiply bf16, f16 and the chip's fp8 here");
    static_assert(detail::narrow_columns<columns>, "group_mma has 8, 16, 32 or 64 columns");
    detail::call_mma({.kind = GroupCall::Kind::mma, .type = type, .columns = columns, .a = a, .b = b, .where = where},
                     nullptr, acc.data);
    detail::touch(a, group_rows);
    detail::touch(b, columns);
  }
  template <DType type, int columns>
  static void group_mma(const Chunk& a, const GroupOperand& b, Vec<float, columns / 2>& acc, Where where = {}) {
    static_assert(detail::group_type<Id, type>, "wave groups multiply bf16, f16 and the chip's fp8 here");
    static_assert(detail::narrow_columns<columns>, "group_mma has 8, 16, 32 or 64 columns");
    detail::call_mma(
        {.kind = GroupCall::Kind::mma, .registers = true, .type = type, .columns = columns, .b = b, .where = where}, &a,
        acc.data);
    detail::touch(b, columns);
  }
  template <DType type, int columns, class A = SwizzledOperand, class B = SwizzledOperand>
  static void group_multiply(A a, B b, Vec<ProductSum<type>, columns / 2>& acc, bool add, Where where = {}) {
    constexpr bool a_transposed = std::is_same_v<A, TransposedOperand>,
                   b_transposed = std::is_same_v<B, TransposedOperand>;
    static_assert((!a_transposed && !b_transposed) || (is_16_bits(type) && (!b_transposed || columns % 64 == 0)),
                  "transposed operands have 16-bit elements, and those of b whole boxes of 64 columns");
    static_assert(is_16_bits(type) || type == facts_of(Id).fp8 || type == DType::i8,
                  "wave groups multiply bf16, f16, i8 and the chip's fp8");
    static_assert(columns == 8 || (columns % 16 == 0 && columns <= 256),
                  "the sm90 room has group_multiply for 8 columns and multiples of 16 up to 256");
    detail::call_mma(
        {.kind = GroupCall::Kind::mma, .add = add, .type = type, .columns = columns, .a = a, .b = b, .where = where},
        nullptr, acc.data);
    detail::touch(a, group_rows);
    detail::touch(b, columns);
  }
  template <DType type, int columns, bool add = true, class B>
  static void group_multiply(const Chunk& a, const B& b, auto& acc, Where where = {}) {
    static_assert(detail::group_type<Id, type>, "wave groups multiply bf16, f16 and the chip's fp8 here");
    static_assert(std::is_same_v<B, SwizzledOperand> || (is_16_bits(type) && columns % 64 == 0),
                  "transposed operands have 16-bit elements, and those of b whole boxes of 64 columns");
    static_assert(detail::narrow_columns<columns> || columns == 48 || columns == 80 || columns == 128 ||
                      columns == 160 || columns == 192 || columns == 256,
                  "the sm90 room multiplies an operand in registers by these widths alone");
    static_assert(std::remove_reference_t<decltype(acc)>::size >= columns / 2,
                  "an accumulator has as many sums as a product, or more, which stay");
    detail::call_mma({.kind = GroupCall::Kind::mma,
                      .registers = true,
                      .add = add,
                      .type = type,
                      .columns = columns,
                      .b = b,
                      .where = where},
                     &a, acc.data);
    detail::touch(b, columns);
  }
  /// The registers of a are read until the wait.
  template <DType type, int columns, bool add = true, class B>
  static void group_multiply(Chunk&& a, const B& b, auto& acc) = delete;
  template <DType type, int columns>
  static void group_mma(Chunk&& a, const GroupOperand& b, Vec<float, columns / 2>& acc) = delete;

  template <class T, int count>
  static void group_mma_fence(Vec<T, count>&) {}  // nothing can move here
  static void group_mma_begin(Where where = {}) { detail::call_begin(where); }
  static void group_mma_end(Where where = {}) { detail::call_end(where); }
  template <int pending>
  static void group_mma_wait(Where where = {}) {
    static_assert(pending >= 0, "a number of batches is not negative");
    detail::wait_for_batches(pending, where);
  }
  /// Without it, group_mma only misses what store_matrices has stored: the room does not know about plain stores.
  static void shared_written() { detail::forget_unseen(); }

  static void group_barrier(Where where = {}) {
    static_cast<void>(detail::vote_in_group(CollectiveKind::group_barrier, false, where));
  }
  static bool group_any(bool predicate, Where where = {}) {
    return detail::vote_in_group(CollectiveKind::group_any, predicate, where);
  }

  template <int count>
  static void store_matrices(Chunk* row, const Vec<std::uint32_t, count>& words, Where where = {}) {
    static_assert(count == 1 || count == 2 || count == 4, "stmatrix stores 1, 2 or 4 matrices");
    store_dealt(CollectiveKind::store_matrices, row, words.data, count, where);
  }
  template <int count>
  static void store_matrices_straight(Chunk* row, const Vec<std::uint32_t, count>& words, Where where = {}) {
    static_assert(count == 4, "the sm90 room stores four matrices straight");
    store_dealt(CollectiveKind::store_matrices_straight, row, words.data, count, where);
  }

  template <int n>
  static void take_registers(Where where = {}) {
    change_registers<n>(CollectiveKind::take_registers, where);
  }
  template <int n>
  static void give_registers(Where where = {}) {
    change_registers<n>(CollectiveKind::give_registers, where);
  }

 private:
  template <int n>
  static void change_registers(CollectiveKind kind, Where where) {
    static_assert(n % 8 == 0 && n >= 24 && n <= 240, "setmaxnreg takes multiples of 8, and kernels 24 to 240");
    detail::change_registers(kind, n, where);
  }
  static void store_dealt(CollectiveKind kind, Chunk* row, const std::uint32_t* words, int count, Where where) {
    if (!detail::post_matrices(kind, row, words, count, where)) return;
    const bool straight = kind == CollectiveKind::store_matrices_straight;
    for (int lane = 0; lane < 8 * count; ++lane) {
      const auto stored = detail::dealt_row(straight, lane / 8, lane % 8);
      std::memcpy(detail::posted_row(lane), &stored, sizeof(stored));
    }
    detail::finish_matrices();
  }
  static constexpr bool is_16_bits(DType type) { return type == DType::bf16 || type == DType::f16; }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
