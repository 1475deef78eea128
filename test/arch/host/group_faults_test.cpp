// SPDX-License-Identifier: MIT
// Every misuse of a wave group's products, barriers and stores ends the launch, under every schedule, and says where.
#include "test/arch/host/faults.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::group_faults {
namespace {

constexpr int group_lanes = host::group_lanes;

enum class Fault {
  mma_before_begin,
  end_without_begin,
  wave_skips_wait,
  wave_skips_barrier,
  wave_votes_instead,
  wave_waits_for_other_count,
  lane_skips_barrier,
  lane_returns,
  store_misaligned,
  store_global,
  store_on_two_lines,
  half_a_group,  // up to here without group_mma_begin
  mma_after_end,
  nobody_waits,
  one_batch_left,
  never_ended,
  two_lines,
  two_types,
  two_columns,
  two_places_of_a,
  two_places_of_b,
  two_strides,
  registers_or_not,
  two_accumulators,
  begin_or_mma,
  wave_skips_product,
  accumulator_written,
  accumulator_of_other_shape,
  registers_changed,
  operand_not_seen,
  operand_misaligned,
  operand_in_global,
  operand_beyond_shared,
  second_unit_beyond_shared,
  stride_of_24,
  stride_negative,
  stride_of_2_18,
  too_many_calls,
  too_many_batches,
  too_many_accumulators,
};

struct FaultyShared {
  Chunk a[2][128], b[2][16];
};

template <Fault fault>
struct FaultyKernel {
  static constexpr int block_threads = group_lanes + 64;  // and half a group
  struct Args {
    Chunk* in;  // [128]
  };
  using Shared = FaultyShared;
  using B = Sm90;
  using Narrow = Vec<float, 4>;

  static void end_and_wait() {
    B::group_mma_end();
    B::group_mma_wait<0>();
  }

  static void run(const Args& args, Shared& s) {
    const int wave = B::wave_id();
    if (wave >= 4) {
      if (fault == Fault::half_a_group) B::group_barrier();
      return;
    }
    const bool odd = B::block_lane_id() == 37, odd_wave = wave == 2;
    const GroupOperand a{s.a[0], 256, 128}, b{s.b[0], 0, 128};
    Narrow x{}, y{};
    Chunk registers{};
    if (fault > Fault::half_a_group) B::group_mma_begin();
    switch (fault) {
      case Fault::mma_before_begin: B::group_mma<DType::bf16, 8>(a, b, x); break;
      case Fault::mma_after_end:
        B::group_mma_end();
        B::group_mma<DType::bf16, 8>(a, b, x);
        break;
      case Fault::end_without_begin: B::group_mma_end(); break;
      case Fault::nobody_waits:
        B::group_mma<DType::bf16, 8>(a, b, x);
        B::group_mma_end();
        break;
      case Fault::one_batch_left:
        B::group_mma<DType::bf16, 8>(a, b, x);
        B::group_mma_end();
        B::group_mma_begin();
        B::group_mma<DType::bf16, 8>(a, b, x);
        B::group_mma_end();
        B::group_mma_wait<1>();
        break;
      case Fault::never_ended:
        B::group_mma<DType::bf16, 8>(a, b, x);
        B::group_mma_wait<0>();
        break;
      case Fault::two_lines:
        if (odd) {
          B::group_mma<DType::bf16, 8>(a, b, x);
        } else {
          B::group_mma<DType::bf16, 8>(a, b, x);
        }
        end_and_wait();
        break;
      case Fault::two_types:
        odd ? B::group_mma<DType::bf16, 8>(a, b, x) : B::group_mma<DType::f16, 8>(a, b, x);
        end_and_wait();
        break;
      case Fault::two_columns: {
        Vec<float, 8> wide{};
        odd ? B::group_mma<DType::bf16, 8>(a, b, x) : B::group_mma<DType::bf16, 16>(a, b, wide);
        end_and_wait();
        break;
      }
      case Fault::two_places_of_a:
        B::group_mma<DType::bf16, 8>({s.a[odd], 256, 128}, b, x);
        end_and_wait();
        break;
      case Fault::two_places_of_b:
        B::group_mma<DType::bf16, 8>(registers, {s.b[odd_wave], 0, 128}, x);
        end_and_wait();
        break;
      case Fault::two_strides:
        B::group_mma<DType::bf16, 8>({s.a, 256, odd ? 144 : 128}, b, x);
        end_and_wait();
        break;
      case Fault::registers_or_not:
        odd ? B::group_mma<DType::bf16, 8>(a, b, x) : B::group_mma<DType::bf16, 8>(registers, b, x);
        end_and_wait();
        break;
      case Fault::two_accumulators:
        B::group_mma<DType::bf16, 8>(a, b, x);
        B::group_mma<DType::bf16, 8>(a, b, y);
        B::group_mma<DType::bf16, 8>(a, b, odd ? x : y);
        end_and_wait();
        break;
      case Fault::begin_or_mma:
        if (odd_wave) B::group_mma_begin();
        B::group_mma<DType::bf16, 8>(a, b, x);
        end_and_wait();
        break;
      case Fault::wave_skips_product:
        B::group_mma<DType::bf16, 8>(a, b, x);
        B::group_mma_end();
        if (!odd_wave) B::group_mma_begin();
        B::group_mma_wait<0>();
        break;
      case Fault::wave_skips_wait:
        if (!odd_wave) B::group_mma_wait<0>();
        break;
      case Fault::wave_skips_barrier:
        if (!odd_wave) B::group_barrier();
        break;
      case Fault::wave_votes_instead:
        if (odd_wave) {
          (void)B::group_any(true);
        } else {
          B::group_barrier();
        }
        break;
      case Fault::wave_waits_for_other_count: odd_wave ? B::group_mma_wait<1>() : B::group_mma_wait<0>(); break;
      case Fault::lane_skips_barrier:
        if (!odd) B::group_barrier();
        (void)B::any(true);
        break;
      case Fault::lane_returns:
        if (!odd) B::group_barrier();
        break;
      case Fault::accumulator_written:
        B::group_mma<DType::bf16, 8>(a, b, x);
        if (odd) x[2] = 1;
        end_and_wait();
        break;
      case Fault::accumulator_of_other_shape: {
        union {
          Vec<float, 8> wide;
          Narrow narrow;
        } acc{};
        B::group_mma<DType::bf16, 16>(a, {s.a[1], 128, 256}, acc.wide);
        B::group_mma<DType::bf16, 8>(a, b, acc.narrow);
        end_and_wait();
        break;
      }
      case Fault::registers_changed:
        B::group_mma<DType::f16, 8>(registers, b, x);
        if (odd) registers[3] = 1;
        end_and_wait();
        break;
      case Fault::operand_not_seen:
        B::store_matrices<2>(&s.b[0][B::lane_id() % 16], {});
        if (!odd) B::shared_written();  // lane 5 of wave 1
        B::group_barrier();
        B::group_mma<DType::bf16, 8>(a, b, x);
        end_and_wait();
        break;
      case Fault::operand_misaligned: B::group_mma<DType::bf16, 8>({&s.a[0][1][2], 256, 128}, b, x); break;
      case Fault::operand_in_global: B::group_mma<DType::bf16, 8>({args.in, 256, 128}, b, x); break;
      case Fault::operand_beyond_shared: B::group_mma<DType::bf16, 8>(a, {&s.b[1][1], 0, 128}, x); break;
      case Fault::second_unit_beyond_shared: B::group_mma<DType::bf16, 8>(a, {s.b[1], 0, 144}, x); break;
      case Fault::stride_of_24: B::group_mma<DType::bf16, 8>({s.a, 24, 128}, b, x); break;
      case Fault::stride_negative: B::group_mma<DType::bf16, 8>(a, {s.b[1], 0, -128}, x); break;
      case Fault::stride_of_2_18: B::group_mma<DType::bf16, 8>(a, {s.b[0], 1 << 18, 128}, x); break;
      case Fault::too_many_calls:
        for (int i = 0; i < host::Group::max_calls; ++i) B::group_mma<DType::bf16, 8>(a, b, x);
        end_and_wait();
        break;
      case Fault::too_many_batches:
        for (int i = 0; i <= host::Group::max_batches; ++i) {
          B::group_mma_begin();
          B::group_mma_end();
        }
        B::group_mma_wait<0>();
        break;
      case Fault::too_many_accumulators: {
        Narrow many[host::Group::max_accumulators + 1] = {};
        for (Narrow& acc : many) B::group_mma<DType::bf16, 8>(a, b, acc);
        end_and_wait();
        break;
      }
      case Fault::half_a_group: break;
      case Fault::store_misaligned: B::store_matrices<2>(reinterpret_cast<Chunk*>(&s.a[0][0][odd ? 1 : 0]), {}); break;
      case Fault::store_global: B::store_matrices<4>(odd ? args.in : s.a[0], {}); break;
      case Fault::store_on_two_lines:
        if (odd) {
          B::store_matrices<4>(s.a[0], {});
        } else {
          B::store_matrices<4>(s.a[0], {});
        }
        break;
    }
  }
};

template <Fault fault>
void check(std::initializer_list<const char*> parts) {
  check_fault<FaultyKernel<fault>>("group_faults_test.cpp", parts);
}

}  // namespace

TEST_CASE("group products outside of batches are reported") {
  check<Fault::mma_before_begin>({"group_mma at", "is not between group_mma_begin and group_mma_end"});
  check<Fault::mma_after_end>({"group_mma at", "is not between group_mma_begin and group_mma_end"});
  check<Fault::end_without_begin>({"group_mma_end at", "without a group_mma_begin"});
  check<Fault::nobody_waits>({"returned with 1 batches of group_mma that it has not waited for, the"});
  check<Fault::one_batch_left>({"returned with 1 batches of group_mma that it has not waited for, the"});
  check<Fault::never_ended>({"returned with 0 batches", "and one without an end"});
}

TEST_CASE("lanes of a group that multiply different things are reported") {
  check<Fault::two_lines>({"group divergence: this lane's call 1 is group_mma<bf16, 8> at"});
  check<Fault::two_types>({"group divergence: this lane's call 1", "group_mma<bf16, 8>", "group_mma<f16, 8>"});
  check<Fault::two_columns>({"group divergence: this lane's call 1", "<bf16, 8>", "<bf16, 16>"});
  check<Fault::two_places_of_a>({"group divergence", "of a at byte 0 + (256, 128)", "of a at byte 2048 +"});
  check<Fault::two_places_of_b>({"group divergence", "a in registers and b at byte 4096 +", "b at byte 4352 +"});
  check<Fault::two_strides>({"group divergence", "+ (256, 128)", "+ (256, 144)"});
  check<Fault::registers_or_not>({"group divergence", "of a in registers", "of a at byte"});
  check<Fault::two_accumulators>({"group divergence: this lane's call 3", "to other accumulators"});
  check<Fault::begin_or_mma>({"group divergence: this lane's call 1", "group_mma_begin at", "group_mma<bf16"});
}

TEST_CASE("groups that do not meet are reported") {
  check<Fault::wave_skips_product>({"group divergence: group_mma_wait at", " group_mma calls of this lane and "});
  check<Fault::wave_skips_wait>(
      {"nobody can go on: block ", " waits in group_mma_wait at", "to which 96 of the 128 lanes of its group came"});
  check<Fault::wave_skips_barrier>({" waits in group_barrier at", "to which 96 of the 128 lanes"});
  check<Fault::wave_votes_instead>({"group divergence: this lane calls group_", "group_any", "group_barrier"});
  check<Fault::wave_waits_for_other_count>({"group divergence: this lane calls group_mma_wait"});
  check<Fault::lane_skips_barrier>({"wave divergence: this lane calls", "group_barrier"});
  check<Fault::lane_returns>({"wave divergence: this lane", "group_barrier"});
  check<Fault::half_a_group>({"group_barrier at", "four waves of this one's group the block of 6 has 2"});
}

TEST_CASE("registers of a group product under way that change are reported") {
  check<Fault::accumulator_written>({"lane 37 of the group wrote to the accumulator of the group_mma at"});
  check<Fault::accumulator_of_other_shape>({"group_mma at", "of 8 columns adds to an accumulator under way of 16"});
  check<Fault::registers_changed>({"lane 37 of the group changed the registers of operand a of the group_mma at"});
}

TEST_CASE("operands and stores of a group that hardware cannot address are reported") {
  check<Fault::operand_not_seen>(
      {"group_mma at",
       "wave 1 lane 5 has stored byte 4176 of shared memory, of operand b, but not called shared_written"});
  check<Fault::operand_misaligned>({"operand a at", "no multiples of 16"});
  check<Fault::operand_in_global>({"operand a is not in shared memory"});
  check<Fault::operand_beyond_shared>({"operand b is not in shared memory"});
  check<Fault::second_unit_beyond_shared>({"operand b is not in shared memory"});
  check<Fault::stride_of_24>({"operand a at", "strides of 24 and 128 bytes, no multiples of 16 in [0, 2^18)"});
  check<Fault::stride_negative>({"operand b at", "strides of 0 and -128 bytes"});
  check<Fault::stride_of_2_18>({"operand b at", "strides of 262144 and 128 bytes"});
  check<Fault::store_misaligned>({"lane 5: ", "misaligned access of 16 bytes"});
  check<Fault::store_global>({"lane 5: ", "a row of store_matrices is not in shared memory"});
  check<Fault::store_on_two_lines>({"wave divergence: this lane calls store_matrices"});
}

TEST_CASE("more group products than the room remembers are reported") {
  check<Fault::too_many_calls>({"more than 256 group_mma calls"});
  check<Fault::too_many_batches>({"more than 64 batches of group_mma"});
  check<Fault::too_many_accumulators>({"more than 64 accumulators"});
}

}  // namespace tilewave::test::group_faults
