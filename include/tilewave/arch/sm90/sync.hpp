// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Sync {
  TILEWAVE_DEVICE static void barrier() { __syncthreads(); }
  TILEWAVE_DEVICE static void wave_barrier() { __syncwarp(); }
  /// By default the arrival releases and the wait acquires.
  TILEWAVE_DEVICE static void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
  TILEWAVE_DEVICE static void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  TILEWAVE_DEVICE static void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

  /// An mbarrier counts, in 64 bits, what the PTX ISA calls pending arrivals and transactions (bytes).
  using Mbarrier = std::uint64_t;
  TILEWAVE_DEVICE static void mbarrier_init(Mbarrier* barrier, int waves) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(waves) : "memory");
  }
  /// It makes the initialisation visible to the copy unit, too.
  TILEWAVE_DEVICE static void mbarrier_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  TILEWAVE_DEVICE static void mbarrier_arrive(Mbarrier* barrier) {
    __syncwarp();  // orders what the wave read and wrote before the one lane's release
    if (threadIdx.x % 32 == 0)
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
  }
  static constexpr int copies_arrivals = 32;  // of a wave's lane_copies_arrive
  TILEWAVE_DEVICE static void lane_copies_arrive(Mbarrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
  }
  TILEWAVE_DEVICE static void mbarrier_arrive(Mbarrier* barrier, int rank) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      asm volatile(
          "{ .reg .b32 there;\n"
          "  mapa.shared::cluster.u32 there, %0, %1;\n"
          "  mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(shared_address(barrier)),
          "r"(rank)
          : "memory");
    }
  }
  TILEWAVE_DEVICE static void mbarrier_expect(Mbarrier* barrier, std::uint32_t bytes) {
    if (threadIdx.x % 32 == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                   : "memory");
    }
    __syncwarp();
  }
  TILEWAVE_DEVICE static void mbarrier_wait(Mbarrier* barrier, int parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "wait%=: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "  @!done bra wait%=; }" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
    __syncwarp();
  }
  TILEWAVE_DEVICE static bool mbarrier_test(Mbarrier* barrier, int parity) {
    std::uint32_t done;
    asm volatile(
        "{ .reg .pred done;\n"
        "  mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, done; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
  }

  /// A barrier with a number takes one operation, and a waiting wave takes none. Barriers 0 to 7 are those of the block
  /// and its groups.
  TILEWAVE_DEVICE static void pass_turn(Mbarrier*, int number) {
    asm volatile("bar.arrive %0, 256;" ::"r"(8 + number) : "memory");
  }
  TILEWAVE_DEVICE static void await_turn(Mbarrier*, int number, int) {
    asm volatile("bar.sync %0, 256;" ::"r"(8 + number) : "memory");
  }

  /// The timer advances in steps of 32 ns on an H200.
  TILEWAVE_DEVICE static std::uint64_t nanoseconds() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  TILEWAVE_DEVICE static void pause_until(std::uint64_t time) {
    // sleeping leaves the scheduler to waves that compute
    while (nanoseconds() < time) asm volatile("nanosleep.u32 64;");
    __syncwarp();
  }

  /// Programmatic dependent launch: the stream's next kernel may begin, and wait_for_previous waits for the kernel
  /// before.
  TILEWAVE_DEVICE static void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
  TILEWAVE_DEVICE static void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
  TILEWAVE_DEVICE static void promised_reads(bool) {}

  /// Each mailbox is an mbarrier, which completes when the block's first lane has arrived and all announced bytes are
  /// there. Its phases alternate. st.async reports the arrival of a value. The release of a cluster barrier would be a
  /// MEMBAR.GPU, which also waits for the lane's stores to device memory.
  template <int count>
  TILEWAVE_DEVICE static void open(Mailbox* boxes) {
    if (threadIdx.x == 0) {
      TILEWAVE_UNROLL
      for (int i = 0; i < count; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(boxes + i)) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    cluster_arrive_relaxed();
  }
  TILEWAVE_DEVICE static void post(Mailbox& box, float* shared, int rank, float value) {
    asm volatile(
        "{ .reg .b32 there, box;\n"
        "  mapa.shared::cluster.u32 there, %0, %2;\n"
        "  mapa.shared::cluster.u32 box, %1, %2;\n"
        "  st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %3, [box]; }" ::"r"(
            shared_address(shared)),
        "r"(shared_address(&box)), "r"(rank), "f"(value)
        : "memory");
  }
  TILEWAVE_DEVICE static void post(Mailbox& box, Vec<float, 4>* shared, int rank, const Vec<float, 4>& value) {
    asm volatile(
        "{ .reg .b32 there, box;\n"
        "  mapa.shared::cluster.u32 there, %0, %2;\n"
        "  mapa.shared::cluster.u32 box, %1, %2;\n"
        "  st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [box]; }" ::"r"(
            shared_address(shared)),
        "r"(shared_address(&box)), "r"(rank), "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3])
        : "memory");
  }
  TILEWAVE_DEVICE static void collect(Mailbox& box, int posts, int phase) {
    const std::uint32_t address = shared_address(&box);
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(posts * 4) : "memory");
    }
    std::uint32_t done;
    do {
      asm volatile(
          "{ .reg .pred p;\n"
          "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "  selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(address), "r"(phase & 1)
          : "memory");
    } while (done == 0);
    __syncwarp();
  }
  /// The volatile loads and mmas already keep their order in the compiler.
  TILEWAVE_DEVICE static void sched_fence() {}

 private:
  TILEWAVE_DEVICE static std::uint32_t shared_address(const void* p) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
  }
};

}  // namespace tilewave::sm90

#endif
