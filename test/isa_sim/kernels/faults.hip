// SPDX-License-Identifier: MIT
// Kernels with one fault each, and twins without it. The fault is inside an asm statement wherever the
// compiler would repair it.
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

__device__ inline int lane() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }

// Reads the destination of a vector load at once, or after the wait.
__global__ void vector_load_unwaited(const int* in, int* out) {
  int x;
  asm volatile("global_load_dword %0, %1, off\n v_add_u32 %0, %0, 1" : "=&v"(x) : "v"(in + lane()));
  out[lane()] = x;
}
__global__ void vector_load_waited(const int* in, int* out) {
  int x;
  asm volatile("global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)\n v_add_u32 %0, %0, 1"
               : "=&v"(x)
               : "v"(in + lane()));
  out[lane()] = x;
}
// Two loads in flight: one wait too few, or just enough.
__global__ void second_load_unwaited(const int* in, int* out) {
  int x, y;
  asm volatile(
      "global_load_dword %0, %2, off\n global_load_dword %1, %2, off offset:4\n"
      "s_waitcnt vmcnt(1)\n v_add_u32 %0, %0, %1"
      : "=&v"(x), "=&v"(y)
      : "v"(in + lane()));
  out[lane()] = x;
}
__global__ void first_load_waited(const int* in, int* out) {
  int x, y;
  asm volatile(
      "global_load_dword %0, %2, off\n global_load_dword %1, %2, off offset:4\n"
      "s_waitcnt vmcnt(1)\n v_add_u32 %0, %0, 1\n s_waitcnt vmcnt(0)"
      : "=&v"(x), "=&v"(y)
      : "v"(in + lane()));
  out[lane()] = x;
}
// The counter holds 63: the 64th load is issued when the first is there, the 63rd is not held up.
template <int others>
__device__ inline void many_loads(const int* in, int* out) {
  int x, y;
  asm volatile(
      "global_load_dword %0, %2, off\n .rept %3\n global_load_dword %1, %2, off offset:4\n .endr\n"
      "v_add_u32 %0, %0, 1\n s_waitcnt vmcnt(0)"
      : "=&v"(x), "=&v"(y)
      : "v"(in + lane()), "n"(others));
  out[lane()] = x;
}
__global__ void loads_fill_the_counter(const int* in, int* out) { many_loads<62>(in, out); }
__global__ void loads_overflow_the_counter(const int* in, int* out) { many_loads<63>(in, out); }
__global__ void scalar_load_unwaited(const int* in, int* out) {
  int x;
  asm volatile("s_load_dword %0, %1, 0x0\n s_add_u32 %0, %0, 1" : "=&s"(x) : "s"(in));
  out[lane()] = x;
}
__global__ void scalar_load_waited(const int* in, int* out) {
  int x;
  asm volatile("s_load_dword %0, %1, 0x0\n s_waitcnt lgkmcnt(0)\n s_add_u32 %0, %0, 1" : "=&s"(x) : "s"(in));
  out[lane()] = x;
}
// Scalar loads return out of order: waiting for one of two is no wait for either.
__global__ void scalar_load_counted(const int* in, int* out) {
  int x, y;
  asm volatile(
      "s_load_dword %0, %2, 0x0\n s_load_dword %1, %2, 0x4\n"
      "s_waitcnt lgkmcnt(1)\n s_add_u32 %0, %0, 1\n s_waitcnt lgkmcnt(0)"
      : "=&s"(x), "=&s"(y)
      : "s"(in));
  out[lane()] = x;
}
__global__ void lds_read_unwaited(const int* in, int* out) {
  __shared__ int room[64];
  room[lane()] = in[lane()];
  using Shared = __attribute__((address_space(3))) int;
  int x;
  asm volatile("ds_read_b32 %0, %1\n v_add_u32 %0, %0, 1" : "=&v"(x) : "v"((Shared*)room + lane()) : "memory");
  out[lane()] = x;
}

// Four waves share LDS: without a barrier, with one before which the writes were not waited for, done right, and done
// right until a wave overwrites what another has just read.
enum class Way { no_barrier, no_wait, right, overwritten };
template <Way way>
__device__ inline void exchange(const int* in, int* out) {
  __shared__ int storage[256];
  auto* room = (volatile __attribute__((address_space(3))) int*)storage;
  room[lane()] = in[lane()];
  if constexpr (way == Way::no_wait) asm volatile("s_barrier" ::: "memory");
  if constexpr (way >= Way::right) asm volatile("s_waitcnt lgkmcnt(0)\n s_barrier" ::: "memory");
  out[lane()] = room[lane() ^ 64];
  if constexpr (way == Way::overwritten)
    if (lane() / 64 == 1) room[lane()] = 0;
}
__global__ void exchange_without_barrier(const int* in, int* out) { exchange<Way::no_barrier>(in, out); }
__global__ void exchange_unwaited(const int* in, int* out) { exchange<Way::no_wait>(in, out); }
__global__ void exchange_right(const int* in, int* out) { exchange<Way::right>(in, out); }
__global__ void exchange_overwritten(const int* in, int* out) { exchange<Way::overwritten>(in, out); }

// Wave 0 writes for all. A barrier that only comes after the reads orders nothing.
template <bool before, bool after>
__device__ inline void broadcast(const int* in, int* out) {
  __shared__ int storage[64];
  auto* room = (volatile __attribute__((address_space(3))) int*)storage;
  if (lane() < 64) room[lane()] = in[lane()];
  if constexpr (before) asm volatile("s_waitcnt lgkmcnt(0)\n s_barrier" ::: "memory");
  out[lane()] = room[lane() % 64];
  if constexpr (after) asm volatile("s_waitcnt lgkmcnt(0)\n s_barrier" ::: "memory");
}
__global__ void broadcast_right(const int* in, int* out) { broadcast<true, true>(in, out); }
__global__ void broadcast_late_barrier(const int* in, int* out) { broadcast<false, true>(in, out); }

// A copy straight to LDS, read before or after its wait.
template <bool waits>
__device__ inline void direct_copy(const int* in, int* out) {
  __shared__ int room[64];
  using Global = __attribute__((address_space(1))) int;
  using Shared = __attribute__((address_space(3))) int;
  __builtin_amdgcn_global_load_lds((Global*)const_cast<int*>(in + lane()), (Shared*)room, 4, 0, 0);
  int x;
  if constexpr (waits)
    asm volatile("s_waitcnt vmcnt(0)\n ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"
                 : "=&v"(x)
                 : "v"(lane() * 4)
                 : "memory");
  else
    asm volatile("ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)" : "=&v"(x) : "v"(lane() * 4) : "memory");
  out[lane()] = x;
}
__global__ void direct_copy_waited(const int* in, int* out) { direct_copy<true>(in, out); }
__global__ void direct_copy_unwaited(const int* in, int* out) { direct_copy<false>(in, out); }

// A room is read, and written again behind a barrier (or by the wave that read it): in order only where the read was waited
// for before that. `own`: one wave; else two, of which the second writes.
template <bool waits, bool copies, bool own>
__device__ inline void write_over_read(const int* in, int* out) {
  __shared__ int room[64];
  using Shared = __attribute__((address_space(3))) int;
  const int l = lane() % 64;
  if (lane() < 64) room[l] = in[l];
  const int* from = in + lane();
  int x;
  asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)\n s_barrier\n ds_read_b32 %0, %2"
               : "=&v"(x), "+v"(from)
               : "v"((Shared*)room + l)
               : "memory");
  if constexpr (waits) asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  if constexpr (!own) asm volatile("s_barrier" ::: "memory");
  if (own || __builtin_amdgcn_readfirstlane(lane()) >= 64) {
    if constexpr (copies)
      asm volatile("s_mov_b32 m0, %1\n s_nop 0\n global_load_lds_dword %0, off" ::"v"(from), "s"((Shared*)room)
                   : "memory");
    else
      asm volatile("ds_write_b32 %0, %0" ::"v"((Shared*)room + l) : "memory");
  }
  asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)" : "+v"(x)::"memory");
  out[lane()] = x;
}
__global__ void copy_over_read(const int* in, int* out) { write_over_read<false, true, false>(in, out); }
__global__ void copy_over_waited_read(const int* in, int* out) { write_over_read<true, true, false>(in, out); }
__global__ void copy_over_own_read(const int* in, int* out) { write_over_read<false, true, true>(in, out); }
__global__ void copy_over_own_waited_read(const int* in, int* out) { write_over_read<true, true, true>(in, out); }
__global__ void write_over_read(const int* in, int* out) { write_over_read<false, false, false>(in, out); }
__global__ void write_over_waited_read(const int* in, int* out) { write_over_read<true, false, false>(in, out); }

// The address of a copy is still on its way.
__global__ void copy_address_unwaited(const int* in, int* out) {
  __shared__ int room[64];
  using Words = unsigned __attribute__((ext_vector_type(4)));
  using Shared = __attribute__((address_space(3))) int;
  const auto base = reinterpret_cast<unsigned long>(in);
  const Words resource = {static_cast<unsigned>(base), static_cast<unsigned>(base >> 32), 256, 0x20000};
  int x;
  asm volatile(
      "global_load_dword %0, %1, off\n s_mov_b32 m0, %3\n buffer_load_dword %0, %2, 0 offen lds\n s_waitcnt vmcnt(0)"
      : "=&v"(x)
      : "v"(in + lane()), "s"(resource), "s"((Shared*)room)
      : "memory");
  out[lane()] = x;
}

// One element past the end in lane 63.
__global__ void load_past_end(const int* in, int* out) { out[lane()] = in[lane() + 1]; }
__global__ void load_across_end(const int* in, int* out) {
  using Int2 = int __attribute__((ext_vector_type(2), aligned(4)));
  const Int2 x = *reinterpret_cast<const Int2*>(in + lane());
  out[lane()] = x[0] ^ x[1];
}
__global__ void store_to_input(const int* in, int* out) { const_cast<int*>(in)[lane()] = out[lane()]; }
__global__ void lds_past_end(const int*, int* out) {
  int x;
  asm volatile("ds_read_b32 %0, %1 offset:4096\n s_waitcnt lgkmcnt(0)" : "=&v"(x) : "v"(lane() * 4) : "memory");
  out[lane()] = x;
}
__global__ void unknown_instruction(const int* in, int* out) {
  int x;
  asm volatile("v_sad_hi_u8 %0, %1, %1, %1" : "=v"(x) : "v"(in[lane()]));
  out[lane()] = x;
}
// Known mnemonic, modifier that nobody simulates.
__global__ void unknown_modifier(const int* in, int* out) {
  int x;
  asm volatile("v_add_u32 %0, %1, %1 clamp" : "=v"(x) : "v"(in[lane()]));
  out[lane()] = x;
}
__global__ void endless(const int*, int* out) {
  asm volatile("endless_loop%=: s_branch endless_loop%=" ::);
  out[lane()] = 0;
}
__global__ void trap(const int*, int*) { __builtin_trap(); }
__global__ void register_beyond(const int*, int* out) {
  asm volatile(".long 0x7e0202ff, 1\n .long 0x7ffe0301\n");  // v_mov_b32 v1, 1; v_mov_b32 v255, v1: not declared
  out[lane()] = 0;
}
// A lane is read right after the VALU has written the register, or one wait state later.
__global__ void lane_read_at_once(const int* in, int* out) {
  int x, y;
  asm volatile("v_mov_b32 %1, %2\n v_readfirstlane_b32 %0, %1" : "=s"(x), "=&v"(y) : "v"(in[lane()]));
  out[lane()] = x;
}
__global__ void lane_read_later(const int* in, int* out) {
  int x, y;
  asm volatile("v_mov_b32 %1, %2\n s_nop 0\n v_readfirstlane_b32 %0, %1\n s_nop 1"
               : "=s"(x), "=&v"(y)
               : "v"(in[lane()]));
  out[lane()] = x;
}
