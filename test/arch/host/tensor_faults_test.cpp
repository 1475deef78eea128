// SPDX-License-Identifier: MIT
// Every misuse of tensor copies and stores, remote arrivals and swizzled operands ends the launch, under every
// schedule,
// and says where.
#include <vector>

#include "test/arch/host/faults.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::tensor_faults {
namespace {

constexpr int box_rows = 64;

enum class Fault {
  map_not_made,
  map_of_a_lane,
  map_without_data,
  negative_column,
  negative_row,
  negative_layer,
  copy_misaligned,
  copy_into_global,
  copy_beyond_shared,
  copy_to_nobody,
  copy_beyond_cluster,
  copy_uninitialised,
  copy_uninitialised_in_other,
  copy_misplaced_barrier,
  copy_into_ended_block,
  copy_not_expected,
  copy_that_nobody_awaits,
  store_misaligned,
  store_from_global,
  store_not_seen,
  store_not_awaited,
  store_not_ended,
  one_store_not_awaited,
  too_many_stores,
  arrive_beyond_cluster,
  arrive_at_uninitialised,
  arrive_at_ended_block,
  arrive_once_more,
  arrive_at_two_ranks,
  nobody_arrives_remotely,
  operand_misaligned,
  operand_row_4,
  operand_row_negative,
  operand_k_slice_4,
  operand_beyond_shared,
  operand_not_seen,
  two_rows,
  two_k_slices,
  two_adds,
  accumulator_written,
  multiply_outside,
  store_straight_global,
  store_straight_or_not,
  registers_of_two_counts,
  wave_keeps_its_registers,
};

struct FaultyShared {
  alignas(1024) Chunk box[8 * box_rows];
  Sm90::Mbarrier full, fresh;  // full: of 2 arrivals
};

template <Fault fault>
struct FaultyKernel {
  static constexpr int block_threads = host::group_lanes;
  struct Args {
    host::TensorMap map, none, no_data;
    Chunk* in;  // [128]
  };
  using Shared = FaultyShared;
  using B = Sm90;

  /// One lane calls it.
  static void copy(const Args& args, Shared& s, int column, int row, int layer, void* to) {
    B::copy_tensor(to, args.map, column, row, layer, &s.full);
  }
  static void store(const Args& args, const void* from) { B::store_tensor(args.map, 0, 0, 0, from); }

  static void run(const Args& args, Shared& s) {
    const int rank = B::cluster_rank();
    const bool one = B::block_lane_id() == 37, first_wave = B::wave_id() == 0;
    if (B::block_lane_id() == 0) {
      B::mbarrier_init(&s.full, 2);
      if (fault == Fault::copy_uninitialised_in_other && rank == 0) B::mbarrier_init(&s.fresh, 1);
    }
    B::cluster_arrive();
    B::cluster_wait();
    if (rank == 1) {  // ends as soon as it may
      if (fault == Fault::nobody_arrives_remotely && first_wave) B::mbarrier_wait(&s.full, 0);
      return;
    }
    switch (fault) {
      case Fault::map_not_made:
        if (one) B::copy_tensor(s.box, args.none, 0, 0, 0, &s.full);
        break;
      case Fault::map_of_a_lane: {
        host::TensorMap map = args.map;
        if (one) B::copy_tensor(s.box, map, 0, 0, 0, &s.full);
        break;
      }
      case Fault::map_without_data:
        if (one) B::copy_tensor(s.box, args.no_data, 0, 0, 0, &s.full);
        break;
      case Fault::negative_column:
        if (one) copy(args, s, -1, 0, 0, s.box);
        break;
      case Fault::negative_row:
        if (one) copy(args, s, 0, -8, 0, s.box);
        break;
      case Fault::negative_layer:
        if (one) copy(args, s, 0, 0, -1, s.box);
        break;
      case Fault::copy_misaligned:
        if (one) copy(args, s, 0, 0, 0, s.box + 8);
        break;
      case Fault::copy_into_global:
        if (one) copy(args, s, 0, 0, 0, args.in);
        break;
      case Fault::copy_beyond_shared:
        if (one) copy(args, s, 0, 0, 0, s.box + 128);
        break;
      case Fault::copy_to_nobody:
        if (one) B::copy_tensor(s.box, args.map, 0, 0, 0, &s.full, 0u);
        break;
      case Fault::copy_beyond_cluster:
        if (one) B::copy_tensor(s.box, args.map, 0, 0, 0, &s.full, 5u);
        break;
      case Fault::copy_uninitialised:
        if (one) B::copy_tensor(s.box, args.map, 0, 0, 0, &s.fresh);
        break;
      case Fault::copy_uninitialised_in_other:
        if (one) B::copy_tensor(s.box, args.map, 0, 0, 0, &s.fresh, 2u);
        break;
      case Fault::copy_misplaced_barrier:
        if (one) B::copy_tensor(s.box, args.map, 0, 0, 0, reinterpret_cast<B::Mbarrier*>(args.in));
        break;
      case Fault::copy_into_ended_block:
        for (int i = 0; i < 1000; ++i) (void)B::any(true);  // the other block gets to run in every schedule but one
        if (one) B::copy_tensor(s.box, args.map, 0, 0, 0, &s.full, 2u);
        break;
      case Fault::copy_not_expected:
        if (first_wave) {
          if (B::lane_id() == 0) copy(args, s, 0, 0, 0, s.box);
          B::mbarrier_arrive(&s.full);
          B::mbarrier_arrive(&s.full, 0);
        }
        break;
      case Fault::copy_that_nobody_awaits:
        if (first_wave) {
          B::mbarrier_expect(&s.full, 128 * box_rows);
          if (B::lane_id() == 0) copy(args, s, 0, 0, 0, s.box);
        }
        break;
      case Fault::store_misaligned:
        if (one) store(args, s.box + 8);
        break;
      case Fault::store_from_global:
        if (one) store(args, args.in);
        break;
      case Fault::store_not_seen:
        B::store_matrices_straight<4>(s.box + B::block_lane_id(), {});
        if (!one) B::shared_written();  // lane 5 of wave 1
        B::barrier();
        if (B::block_lane_id() == 0) store(args, s.box);
        break;
      case Fault::store_not_awaited:
        if (one) {
          store(args, s.box);
          B::stores_end();
        }
        break;
      case Fault::store_not_ended:
        if (one) {
          store(args, s.box);
          B::stores_read<0>();
        }
        break;
      case Fault::one_store_not_awaited:
        if (one) {
          store(args, s.box);
          B::stores_end();
          store(args, s.box);
          B::stores_end();
          B::stores_read<1>();
        }
        break;
      case Fault::too_many_stores:
        for (int i = 0; i <= host::max_tensor_stores / B::facts.wave_lanes; ++i) {
          store(args, s.box);
          (void)B::any(true);
        }
        break;
      case Fault::arrive_beyond_cluster: B::mbarrier_arrive(&s.full, 2); break;
      case Fault::arrive_at_uninitialised: B::mbarrier_arrive(&s.fresh, 1); break;
      case Fault::arrive_at_ended_block:
        for (int i = 0; i < 1000; ++i) (void)B::any(true);
        B::mbarrier_arrive(&s.full, 1);
        break;
      case Fault::arrive_once_more:
        if (first_wave) {
          B::mbarrier_expect(&s.full, 16);
          for (int i = 0; i < 2; ++i) B::mbarrier_arrive(&s.full, 0);
        }
        break;
      case Fault::arrive_at_two_ranks: B::mbarrier_arrive(&s.full, one ? 1 : 0); break;
      case Fault::nobody_arrives_remotely:
        if (first_wave) B::mbarrier_arrive(&s.full, 1);
        break;
      case Fault::store_straight_global: B::store_matrices_straight<4>(one ? args.in : s.box, {}); break;
      case Fault::store_straight_or_not:
        one ? B::store_matrices_straight<4>(s.box, {}) : B::store_matrices<4>(s.box, {});
        break;
      case Fault::registers_of_two_counts:
        B::wave_id() == 2 ? B::take_registers<232>() : B::take_registers<240>();
        break;
      case Fault::wave_keeps_its_registers:
        if (B::wave_id() != 2) B::give_registers<40>();
        break;
      default: multiply(s, one);
    }
  }

  static void multiply(Shared& s, bool one) {
    Vec<float, 4> x{};
    const auto call = [&](SwizzledOperand a, SwizzledOperand b, bool add) {
      B::group_multiply<DType::bf16, 8>(a, b, x, add);
    };
    if (fault == Fault::operand_not_seen) {
      B::store_matrices_straight<4>(s.box + B::block_lane_id(), {});
      if (!one) B::shared_written();
      B::group_barrier();
    }
    if (fault != Fault::multiply_outside) B::group_mma_begin();
    switch (fault) {
      case Fault::operand_misaligned: call({s.box}, {s.box + 8}, true); break;
      case Fault::operand_row_4: call({s.box}, {s.box, 4}, true); break;
      case Fault::operand_row_negative: call({s.box}, {s.box, -8}, true); break;
      case Fault::operand_k_slice_4: call({s.box, 0, 4}, {s.box}, true); break;
      case Fault::operand_beyond_shared: call({s.box, 16}, {s.box}, true); break;
      case Fault::operand_not_seen: call({s.box}, {s.box, 32, 2}, true); break;
      case Fault::two_rows: call({s.box}, {s.box, one ? 8 : 0}, true); break;
      case Fault::two_k_slices: call({s.box}, {s.box, 0, one ? 1 : 0}, true); break;
      case Fault::two_adds: call({s.box}, {s.box}, one); break;
      case Fault::accumulator_written:
        call({s.box}, {s.box}, false);
        if (one) x[1] = 0;
        break;
      default: call({s.box}, {s.box}, true);
    }
    B::group_mma_end();
    B::group_mma_wait<0>();
  }
};

/// Works like check_fault, with maps and in clusters of two. With `may_end`, the other block may have ended before,
/// which is then the reason.
template <Fault fault>
void check(std::initializer_list<const char*> parts, bool may_end = false) {
  static std::vector<Chunk> in(512);
  using K = FaultyKernel<fault>;
  typename K::Args args{.map = {}, .none = {}, .no_data = {}, .in = in.data()};
  TensorShape shape{in.data(), DType::bf16, 64, 64, 1, 128, 8192, box_rows};
  REQUIRE(Sm90::make_tensor_map(shape, args.map).ok());
  shape.data = nullptr;
  REQUIRE(Sm90::make_tensor_map(shape, args.no_data).ok());
  for (const host::Options& options : all_options()) {
    if (fault == Fault::arrive_at_ended_block && options.schedule == host::Schedule::first_wave_ahead) continue;
    INFO(name_of(options));
    const WithOptions with(options);
    const Status status = Sm90::launch<K>({4, K::block_threads, 2}, args, nullptr);
    INFO(status.reason);
    CHECK(status.code == StatusCode::launch_failed);
    for (const char* part : {"block ", "tensor_faults_test.cpp", "(schedule "}) CHECK(contains(status.reason, part));
    if (may_end && contains(status.reason, "to block 1 of the cluster, which has ended")) continue;
    for (const char* part : parts) CHECK(contains(status.reason, part));
  }
}

}  // namespace

TEST_CASE("boxes that the engine cannot copy are reported") {
  check<Fault::map_not_made>({"lane 5: copy_tensor at", "make_tensor_map has not made this map"});
  check<Fault::map_of_a_lane>({"the tensor map is a lane's own, not among the kernel's arguments"});
  check<Fault::map_without_data>({"null access of 16 bytes"});
  check<Fault::negative_column>({"of a box at column -1, row 0, layer 0, not all of them at least 0"});
  check<Fault::negative_row>({"of a box at column 0, row -8, layer 0"});
  check<Fault::negative_layer>({"of a box at column 0, row 0, layer -1"});
  check<Fault::copy_misaligned>({"copy_tensor at", "no multiple of 1024 bytes"});
  check<Fault::copy_into_global>({"copy_tensor at"});  // misaligned, or not in shared memory
  check<Fault::copy_beyond_shared>({"copy_tensor at", "the box of 8192 bytes is not in shared memory"});
}

TEST_CASE("copies to blocks and barriers that are none are reported") {
  check<Fault::copy_to_nobody>({"to blocks of mask 0x0 in a cluster of 2"});
  check<Fault::copy_beyond_cluster>({"to blocks of mask 0x5 in a cluster of 2"});
  check<Fault::copy_uninitialised>({"copy_tensor at", "byte 8200 was never initialised"});
  check<Fault::copy_uninitialised_in_other>({"copy_tensor at", "byte 8200 was never initialised"}, true);
  check<Fault::copy_misplaced_barrier>({"copy_tensor at", "no mbarrier can be at"});
  check<Fault::copy_into_ended_block>({"the block ends with 1 bulk copies in flight"}, true);
  check<Fault::copy_not_expected>({"with 8192 bytes more than expected"});
  check<Fault::copy_that_nobody_awaits>({"the block ends with 1 bulk copies in flight", "of 8192 bytes"});
}

TEST_CASE("stores of boxes that hardware does not promise are reported") {
  check<Fault::store_misaligned>({"store_tensor at", "no multiple of 1024 bytes"});
  check<Fault::store_from_global>({"store_tensor at"});
  check<Fault::store_not_seen>({"store_tensor at", "wave 1 lane 5 has stored byte 592 of shared memory, of the box",
                                "but not called shared_written since"});
  check<Fault::store_not_awaited>(
      {"lane 5: this lane returned while the store_tensor at", "which it has not waited for, "});
  check<Fault::store_not_ended>({"lane 5: this lane returned while the store_tensor at", "not waited for nor ended"});
  check<Fault::one_store_not_awaited>({"lane 5: this lane returned while the store_tensor at"});
  check<Fault::too_many_stores>({"more than 1024 tensor stores that nobody has waited for"});
}

TEST_CASE("arrivals in other blocks that go wrong are reported") {
  check<Fault::arrive_beyond_cluster>({"mbarrier_arrive at", "to block 2 in a cluster of 2"});
  check<Fault::arrive_at_uninitialised>({"mbarrier_arrive at", "byte 8200 was never initialised"}, true);
  check<Fault::arrive_at_ended_block>({"mbarrier_arrive at", "to block 1 of the cluster, which has ended"});
  check<Fault::arrive_once_more>({"more than the 2 arrivals of a phase at the mbarrier at byte 8192"});
  check<Fault::arrive_at_two_ranks>({"wave divergence: this lane says mbarrier_arrive"}, true);
  check<Fault::nobody_arrives_remotely>({"nobody can go on: block ", "wave 0 waits at", "which lacks 1 of 2 arrivals"});
}

TEST_CASE("swizzled operands that hardware cannot read are reported") {
  check<Fault::operand_misaligned>({"group_multiply at", "operand b at", "no multiple of 1024 bytes"});
  check<Fault::operand_row_4>({"operand b at", "from row 4 and k_slice 0", "no multiple of 8"});
  check<Fault::operand_row_negative>({"operand b at", "from row -8 and k_slice 0"});
  check<Fault::operand_k_slice_4>({"operand a at", "from row 0 and k_slice 4", "none of 4 slices of k"});
  check<Fault::operand_beyond_shared>({"group_multiply at", "operand a is not in shared memory"});
  check<Fault::operand_not_seen>({"wave 1 lane 5 has stored byte 592 of shared memory, of operand a"});
}

TEST_CASE("lanes of a group that disagree about a swizzled product are reported") {
  check<Fault::two_rows>({"group divergence", "group_multiply<bf16, 8> at", "b at byte 1024, k_slice 0"});
  check<Fault::two_k_slices>({"group divergence", "b at byte 0, k_slice 1", "b at byte 0, k_slice 0"});
  check<Fault::two_adds>({"group divergence", "k_slice 0, not added"});
  check<Fault::accumulator_written>({"lane 37 of the group wrote to the accumulator of the group_multiply at"});
  check<Fault::multiply_outside>({"group_multiply at", "is not between group_mma_begin and group_mma_end"});
}

TEST_CASE("straight stores and register counts that go wrong are reported") {
  check<Fault::store_straight_global>({"lane 5: ", "a row of store_matrices_straight is not in shared memory"});
  check<Fault::store_straight_or_not>({"wave divergence: this lane calls store_matrices"});
  check<Fault::registers_of_two_counts>({"group divergence: this lane calls take_registers (2"});
  check<Fault::wave_keeps_its_registers>({" waits in give_registers at", "to which 96 of the 128 lanes"});
}

}  // namespace tilewave::test::tensor_faults
