// SPDX-License-Identifier: MIT
// The matrix products of a wave group (GroupBackend), from their calls until somebody waits for them: calls that the
// lanes must make alike, the accumulators kept aside meanwhile, and the arithmetic.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/host/dense.hpp"
#include "tilewave/arch/host/operand.hpp"

namespace tilewave::host {

inline constexpr int group_waves = 4, group_lanes = 128, group_rows = 64, max_group_columns = 256;

/// A call that the lanes of a group make alike: the n-th call of one lane is compared with the n-th of the others.
struct GroupCall {
  enum class Kind : std::uint8_t { begin, mma, end };
  Kind kind;
  bool registers = false;  // registers hold operand a
  bool add = true;         // the product is added to what the accumulator holds
  DType type{};
  int columns = 0;
  int accumulator = 0;  // its index in Group
  SharedOperand a{}, b{};
  Where where{};
  friend constexpr bool operator==(const GroupCall&, const GroupCall&) = default;

  int k() const { return 32 / size_of(type); }
  /// Columns of the dense operand b that lie side by side.
  int panel() const { return std::min(columns, 16); }
  const char* name() const { return a.swizzled || b.swizzled ? "group_multiply" : "group_mma"; }
};

/// It lies in mapped memory, of which only the pages in use exist.
struct Group {
  // limits of what nobody has waited for yet
  static constexpr int max_calls = 256, max_batches = 64, max_accumulators = 64;
  static constexpr std::uint64_t poison = ~std::uint64_t{0};  // NaN or -1, in two registers of an accumulator under way

  struct Call {
    GroupCall call;
    int lanes;  // lanes that made it
  };
  struct Batch {
    std::int64_t end;           // number of the call behind its last
    char ordered[group_waves];  // names of the happens-before edges of each wave's part of its products
  };
  struct Accumulator {
    int products;  // products that are still to be added; 0: free
    int columns;
    std::byte* registers[group_lanes];                       // null until the lane has made its first call
    alignas(64) float tile[group_rows * max_group_columns];  // floats, or ints for i8
  };
  struct Operand {
    const Chunk* registers[group_lanes];
    Chunk held[group_lanes];  // contents at the call
  };

  // A call that all lanes make together.
  int came;    // lanes that wait in `meeting`
  int number;  // number of the next one
  Collective meeting;
  std::int64_t calls_before;  // calls that each lane has made alone
  bool votes[2];
  char ordered[2];  // as in Wave
  // Calls that lanes make alone: running numbers, of which the arrays hold the last.
  std::int64_t calls, calls_done;
  std::int64_t batches, batches_done, batches_awaited;
  Batch batch[max_batches];
  int accumulators;                         // accumulators that have products under way
  alignas(64) float left[group_rows * 32];  // the operands of a product, dense: [64, k], [columns / panel, k, panel]
  alignas(64) float right[32 * max_group_columns];
  Call call[max_calls];
  Accumulator accumulator[max_accumulators];
  Operand operand[max_calls];

  TILEWAVE_HOST_UNTRACKED Call& call_at(std::int64_t n) { return call[n % max_calls]; }
  TILEWAVE_HOST_UNTRACKED Batch& batch_at(std::int64_t n) { return batch[n % max_batches]; }

  /// Runs before a block.
  TILEWAVE_HOST_UNTRACKED void restart() {
    came = number = 0;
    calls = calls_done = batches = batches_done = batches_awaited = 0;
    while (accumulators > 0) accumulator[--accumulators].products = 0;
  }
};

namespace detail {

TILEWAVE_HOST_UNTRACKED inline int index_in_group(const Lane& lane) {
  return lane.wave->index % group_waves * (group_lanes / group_waves) + lane.index;
}

/// Row and first column of accumulator elements i, i + 1 (i even) of a lane of the group.
struct GroupElement {
  int row, column;
};
TILEWAVE_HOST_UNTRACKED constexpr GroupElement group_element(int lane, int i) {
  return {16 * (lane / 32) + lane % 32 / 4 + 4 * (i & 2), 8 * (i / 4) + 2 * (lane % 4)};
}

/// Moves the lane's accumulator saved.
TILEWAVE_HOST_UNTRACKED inline void take_accumulator(Group::Accumulator& saved, int lane, std::byte* registers) {
  saved.registers[lane] = registers;
  for (int i = 0; i < saved.columns / 2; i += 2) {
    const GroupElement e = group_element(lane, i);
    std::memcpy(saved.tile + e.row * saved.columns + e.column, registers + i * sizeof(float), sizeof(Group::poison));
    std::memcpy(registers + i * sizeof(float), &Group::poison, sizeof(Group::poison));
  }
}

TILEWAVE_HOST_UNTRACKED inline void give_accumulator(Lane& self, const Group::Accumulator& saved,
                                                     const GroupCall& call) {
  for (int lane = 0; lane < group_lanes; ++lane) {
    std::byte* const registers = saved.registers[lane];
    for (int i = 0; i < saved.columns / 2; i += 2) {
      if (std::memcmp(registers + i * sizeof(float), &Group::poison, sizeof(Group::poison)) != 0) {
        fail(self, "lane %d of the group wrote to the accumulator of the %s at %s:%d before waiting for it", lane,
             call.name(), call.where.base_name(), call.where.line);
      }
      const GroupElement e = group_element(lane, i);
      std::memcpy(registers + i * sizeof(float), saved.tile + e.row * saved.columns + e.column, sizeof(Group::poison));
    }
  }
}

/// Spreads operand a from registers to dense rows.
TILEWAVE_HOST_UNTRACKED inline void spread_registers(Lane& self, Group& group, const GroupCall& call,
                                                     const Group::Operand& operand) {
  for (int lane = 0; lane < group_lanes; ++lane) {
    if (std::memcmp(operand.registers[lane], &operand.held[lane], sizeof(Chunk)) != 0) {
      fail(self,
           "lane %d of the group changed the registers of operand a of the group_mma at %s:%d before waiting for it",
           lane, call.where.base_name(), call.where.line);
    }
    float wide[16];
    const int in_word = widen(call.type, &operand.held[lane], wide) / 4;
    for (int word = 0; word < 4; ++word) {
      const int row = 16 * (lane / 32) + lane % 32 / 4 + 8 * (word % 2);
      float* const to = group.left + row * call.k() + in_word * (4 * (word / 2) + lane % 4);
      for (int e = 0; e < in_word; e += 2) {  // in pairs: single elements become a memcpy, which ThreadSanitizer tracks
        to[e] = wide[in_word * word + e];
        to[e + 1] = wide[in_word * word + e + 1];
      }
    }
  }
}

template <int panel, class T>
TILEWAVE_HOST_UNTRACKED inline void multiply_panels(const GroupCall& call, const T* left, const T* right, T* tile) {
  const int k = call.k();
  for (int c = 0; c < call.columns; c += panel) {
    if constexpr (std::is_same_v<T, float>) {
      if (is_fp8(call.type)) {
        multiply_truncated<group_rows, panel>(left, right + c * k, tile + c, call.columns, !call.add);
        continue;
      }
    }
    const Join join = call.add ? Join::apart : Join::fresh;
    k == 16 ? multiply_dense<group_rows, panel, 16>(left, right + c * k, tile + c, call.columns, join)
            : multiply_dense<group_rows, panel, 32>(left, right + c * k, tile + c, call.columns, join);
  }
}

/// Spreads the elements of an operand in shared memory: that of a row and a k goes to element_at(row, k).
template <class T, class ElementAt>
TILEWAVE_HOST_UNTRACKED inline void spread_operand(DType type, const SharedOperand& operand, int rows,
                                                   const ElementAt& element_at) {
  for (int i = 0; i < 2 * rows; ++i) {
    T wide[16];
    const int count = widen(type, operand.unit_at(i), wide);
    for (int e = 0; e < count; ++e) {
      *(operand.transposed() ? element_at(8 * (i / 16) + e, i % 16) : element_at(i / 2, i % 2 * count + e)) = wide[e];
    }
  }
}

/// Multiplies with operands in shared memory as dense tiles of T.
template <class T>
TILEWAVE_HOST_UNTRACKED inline void multiply_as(Group& group, const GroupCall& call, float* tile) {
  T *const left = reinterpret_cast<T*>(group.left), *const right = reinterpret_cast<T*>(group.right);
  const int k = call.k(), panel = call.panel();
  if (!call.registers) {
    spread_operand<T>(call.type, call.a, group_rows, [=](int row, int i) { return left + row * k + i; });
  }
  spread_operand<T>(call.type, call.b, call.columns,
                    [=](int row, int i) { return right + row / panel * panel * k + i * panel + row % panel; });
  panel == 8 ? multiply_panels<8>(call, left, right, reinterpret_cast<T*>(tile))
             : multiply_panels<16>(call, left, right, reinterpret_cast<T*>(tile));
}

TILEWAVE_HOST_UNTRACKED inline void multiply(Lane& self, Group& group, std::int64_t number) {
  const GroupCall& call = group.call_at(number).call;
  Group::Accumulator& acc = group.accumulator[call.accumulator];
  if (call.registers) spread_registers(self, group, call, group.operand[number % Group::max_calls]);
  call.type == DType::i8 ? multiply_as<std::int32_t>(group, call, acc.tile) : multiply_as<float>(group, call, acc.tile);
  LaunchCounters& counters = self.cluster->counters;
  ++counters.group_mma;
  counters.lds_loads_bytes += 32 * (call.columns + (call.registers ? 0 : group_rows));
  if (--acc.products != 0) return;
  give_accumulator(self, acc, call);
  while (group.accumulators > 0 && group.accumulator[group.accumulators - 1].products == 0) --group.accumulators;
}

/// Performs the products of all batches before number `batches`.
TILEWAVE_HOST_UNTRACKED inline void perform(Lane& self, Group& group, std::int64_t batches) {
  for (; group.batches_done < batches; ++group.batches_done) {
    for (; group.calls_done < group.batch_at(group.batches_done).end; ++group.calls_done) {
      if (group.call_at(group.calls_done).call.kind == GroupCall::Kind::mma) multiply(self, group, group.calls_done);
    }
  }
}

/// Nobody can ever run: reports it if a wave waits for others of its group.
TILEWAVE_HOST_UNTRACKED inline void report_groups(Lane& self) {
  for (int w = 0; w < self.cluster->waves(); ++w) {
    const Wave& wave = *self.cluster->wave[w];
    if (wave.in_group == nullptr) continue;
    const Group& group = wave.block->group[wave.index / group_waves];
    fail(self,
         "nobody can go on: block %lld wave %d waits in %s at %s:%d, to which %d of the %d lanes of its group came",
         static_cast<long long>(wave.block->id), wave.index, name_of(group.meeting.kind),
         group.meeting.where.base_name(), group.meeting.where.line, group.came, group_lanes);
  }
}

/// The lane returns, and with it the registers to which products under way would write.
TILEWAVE_HOST_UNTRACKED inline void check_batches(Lane& self) {
  if (self.group.awaited == self.group.batches && !self.group.open) return;
  Group& group = self.wave->block->group[self.wave->index / group_waves];
  const Where where = group.call_at(self.group.calls - 1).call.where;
  fail(self, "this lane returned with %lld batches of group_mma that it has not waited for%s, the last call at %s:%d",
       static_cast<long long>(self.group.batches - self.group.awaited),
       self.group.open ? " and one without an end" : "", where.base_name(), where.line);
}

}  // namespace detail

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
