// SPDX-License-Identifier: MIT
// LDS and memory instructions that the compiler seldom chooses: transposed reads, copies to LDS, packed atomics, scalar
// stores, relative register indices.
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

using u32 = unsigned;
template <class T, int n>
using Vector = T __attribute__((ext_vector_type(n)));
using U2 = Vector<u32, 2>;
using U3 = Vector<u32, 3>;
using U4 = Vector<u32, 4>;

__device__ inline u32 lane() { return __builtin_amdgcn_workitem_id_x(); }

// Every width of LDS access: words in, out through each, with an offset in the instruction.
__global__ void lds_widths(const u32* in, u32* out) {
  __shared__ u32 words[64 * 4 + 8];
  const u32 at = static_cast<u32>(reinterpret_cast<unsigned long>(&words[0])) + 16 * lane();
  const U4 x = {in[4 * lane()], in[4 * lane() + 1], in[4 * lane() + 2], in[4 * lane() + 3]};
  U4 all;
  U3 three;
  U2 two, apart;
  u32 one, byte, high;
  asm volatile(
      "ds_write_b96 %[at], %[three] offset:16\n ds_write_b32 %[at], %[one] offset:28\n s_waitcnt lgkmcnt(0)\n"
      "ds_read_b128 %[all], %[at] offset:16\n ds_read_b96 %[low], %[at] offset:16\n ds_read_b64 %[two], %[at] offset:16\n"
      "ds_read_b32 %[word], %[at] offset:20\n ds_read_u8 %[byte], %[at] offset:17\n ds_read_i16 %[half], %[at] offset:18\n"
      "ds_read2_b32 %[apart], %[at] offset0:4 offset1:7\n s_waitcnt lgkmcnt(0)"
      : [all] "=&v"(all), [low] "=&v"(three), [two] "=&v"(two), [word] "=&v"(one), [byte] "=&v"(byte),
        [half] "=&v"(high), [apart] "=&v"(apart)
      : [at] "v"(at), [three] "v"(U3{x[0], x[1], x[2]}), [one] "v"(x[3])
      : "memory");
  u32* o = out + 16 * lane();
  for (int i = 0; i < 4; ++i) o[i] = all[i];
  for (int i = 0; i < 3; ++i) o[4 + i] = three[i];
  for (int i = 0; i < 2; ++i) o[7 + i] = two[i], o[12 + i] = apart[i];
  o[9] = one;
  o[10] = byte;
  o[11] = high;
}

// Direct copies: lanes with an odd number switched off for the second; M0 and both offsets move the target.
__global__ void copy_dword(const u32* in, u32* out) {
  __shared__ u32 words[256];
  for (u32 i = 0; i < 4; ++i) words[64 * i + lane()] = 7;
  const u32 m0 = __builtin_amdgcn_readfirstlane(static_cast<u32>(reinterpret_cast<unsigned long>(&words[0]))) + 64;
  asm volatile(
      "s_waitcnt lgkmcnt(0)\n s_mov_b32 m0, %1\n s_nop 0\n global_load_lds_dword %0, off offset:16\n s_waitcnt vmcnt(0)"
      :
      : "v"(in + lane()), "s"(m0)
      : "memory");
  if (lane() % 2 == 0)
    asm volatile("s_mov_b32 m0, %1\n s_nop 0\n global_load_lds_ubyte %0, off\n s_waitcnt vmcnt(0)"
                 :
                 : "v"(reinterpret_cast<const char*>(in) + lane()), "s"(m0 + 512)
                 : "memory");
  for (u32 i = 0; i < 4; ++i) out[64 * i + lane()] = words[64 * i + lane()];
}

// Through a buffer resource: lanes beyond its records copy zeros.
__global__ void copy_buffer(const u32* in, u32* out) {
  __shared__ u32 words[64];
  words[lane()] = 7;
  const auto base = reinterpret_cast<unsigned long>(in);
  const U4 resource = {static_cast<u32>(base), static_cast<u32>(base >> 32), 4 * 50, 0x00020000};
  const u32 m0 = __builtin_amdgcn_readfirstlane(static_cast<u32>(reinterpret_cast<unsigned long>(&words[0])));
  asm volatile(
      "s_waitcnt lgkmcnt(0)\n s_mov_b32 m0, %2\n s_nop 0\n buffer_load_dword %0, %1, 0 offen lds\n s_waitcnt vmcnt(0)"
      :
      : "v"(4 * lane()), "s"(resource), "s"(m0)
      : "memory");
  out[lane()] = words[lane()];
}

// Records of two words, stored through a swizzled resource: eight neighbours lie side by side, word by word. Then rows as they
// lie, through one that has the bit and a stride but is given no index.
__global__ void swizzled_buffers(const u32* in, u32* out) {
  const auto to = reinterpret_cast<unsigned long>(out), from = reinterpret_cast<unsigned long>(in);
  const U4 records = {static_cast<u32>(to), static_cast<u32>(to >> 32) | 0x8008u << 16, 64, 0x00020000};
  asm volatile(
      "buffer_store_dword %0, %2, %3, 0 idxen\n buffer_store_dword %1, %2, %3, 0 idxen offset:4" ::"v"(in[lane()]),
      "v"(in[64 + lane()]), "v"(lane()), "s"(records)
      : "memory");
  const U4 rows = {static_cast<u32>(from), static_cast<u32>(from >> 32) | 0xc040u << 16, 4 * 100, 0x00110000};
  u32 x;
  asm volatile("buffer_load_dword %0, %1, %2, 0 offen offset:128\n s_waitcnt vmcnt(0)"
               : "=&v"(x)
               : "v"(4 * lane()), "s"(rows)
               : "memory");
  out[128 + lane()] = x;
}

// What inactive lanes would give does not matter where all are active.
__global__ void swapped_rows(const u32* in, u32* out) {
#if defined(__gfx950__)
  const auto half = __builtin_amdgcn_permlane16_swap(in[lane()], in[64 + lane()], false, true);
  const auto wide = __builtin_amdgcn_permlane32_swap(in[lane()], in[64 + lane()], true, true);
  for (u32 i = 0; i < 2; ++i) out[64 * i + lane()] = half[i], out[64 * (2 + i) + lane()] = wide[i];
#endif
}

// A table of pointers, as grouped operations take it.
__global__ void through_pointers(const int* const* table, int* out) {
  out[lane()] = table[0][lane()] + table[1][lane()];
}

__global__ void packed_atomics(u32* bf16, u32* f16, u32* counters, u32* old) {
  const auto base = reinterpret_cast<unsigned long>(bf16);
  const U4 resource = {static_cast<u32>(base), static_cast<u32>(base >> 32), 16, 0x00020000};
  asm volatile("global_atomic_pk_add_bf16 %0, %1, off\n s_waitcnt vmcnt(0)"
               :
               : "v"(bf16 + lane() % 4), "v"(0x3f803f80u)
               : "memory");
  asm volatile("global_atomic_pk_add_f16 %0, %1, off\n s_waitcnt vmcnt(0)"
               :
               : "v"(f16 + lane() % 4), "v"(0x3c00bc00u)
               : "memory");
  u32 before = 0x40003f80u;
  asm volatile("buffer_atomic_pk_add_f16 %0, %1, %2, 0 offen sc0\n s_waitcnt vmcnt(0)"
               : "+v"(before)
               : "v"(64u), "s"(resource)
               : "memory");  // out of range: nothing happens, 0 comes back
  old[lane()] = before;
  u32 scalar = 5;
  asm volatile("s_atomic_inc %0, %1, 0x4 glc\n s_store_dword %2, %1, 0x8\n s_waitcnt lgkmcnt(0)\n s_dcache_wb"
               : "+s"(scalar)
               : "s"(counters), "s"(0x1234u)
               : "memory");
  if (lane() == 0) counters[0] = scalar;
}

// Registers by index, vector instructions skipped, MODE read and written.
__global__ void modes(const u32* in, u32* out) {
  u32 picked, kept = 1, mode, written;
  asm volatile(
      "s_mov_b32 s20, 2\n v_mov_b32 v40, %3\n v_mov_b32 v41, %4\n v_mov_b32 v42, %5\n"
      "s_set_gpr_idx_on s20, gpr_idx(SRC0)\n v_mov_b32 %0, v40\n s_set_gpr_idx_off\n"
      "s_setvskip 1, 0\n v_mov_b32 %1, 5\n s_setvskip 0, 0\n"
      "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n s_getreg_b32 %2, hwreg(HW_REG_MODE, 23, 1)\n"
      "s_setprio 3\n s_sleep 1\n s_setprio 0"
      : "=&v"(picked), "+&v"(kept), "=&s"(mode)
      : "v"(in[0] + lane()), "v"(in[1] + lane()), "v"(in[2] + lane())
      : "s20", "v40", "v41", "v42");
  asm volatile("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 0\n s_getreg_b32 %0, hwreg(HW_REG_MODE, 23, 1)"
               : "=s"(written));
  out[4 * lane()] = picked;
  out[4 * lane() + 1] = kept;
  out[4 * lane() + 2] = mode;
  out[4 * lane() + 3] = written;
}

#if defined(__gfx950__)
// 1 KiB of LDS as it comes, read by each transposing instruction; lanes 16 bytes apart for the widest.
#define TRANSPOSED(name, type, words_of, step)                                                                      \
  __global__ void name(const u32* in, u32* out) {                                                                   \
    __shared__ u32 words[64 * 4];                                                                                   \
    for (u32 i = 0; i < 4; ++i) words[64 * i + lane()] = in[64 * i + lane()];                                       \
    const u32 at = static_cast<u32>(reinterpret_cast<unsigned long>(&words[0])) + step * (lane() ^ 5);              \
    type x;                                                                                                         \
    asm volatile("s_waitcnt lgkmcnt(0)\n " #name " %0, %1\n s_waitcnt lgkmcnt(0)" : "=&v"(x) : "v"(at) : "memory"); \
    for (u32 i = 0; i < words_of; ++i) out[words_of * lane() + i] = x[i];                                           \
  }
TRANSPOSED(ds_read_b64_tr_b16, U2, 2, 8)
TRANSPOSED(ds_read_b64_tr_b8, U2, 2, 8)
TRANSPOSED(ds_read_b64_tr_b4, U2, 2, 8)
TRANSPOSED(ds_read_b96_tr_b6, U3, 3, 16)

// Wide copies: 16 bytes apart in LDS, also the three dwords; the target lies beyond the first 64 KiB.
#define COPY_WIDE(name)                                                                                           \
  __global__ void name(const u32* in, u32* out) {                                                                 \
    __shared__ u32 words[64 * 4 + 17000];                                                                         \
    for (u32 i = 0; i < 4; ++i) words[17000 + 64 * i + lane()] = 7;                                               \
    const u32 m0 =                                                                                                \
        __builtin_amdgcn_readfirstlane(static_cast<u32>(reinterpret_cast<unsigned long>(&words[0]))) + 4 * 17000; \
    asm volatile("s_waitcnt lgkmcnt(0)\n s_mov_b32 m0, %1\n s_nop 0\n " #name " %0, off\n s_waitcnt vmcnt(0)"     \
                 :                                                                                                \
                 : "v"(in + 4 * (lane() ^ 3)), "s"(m0)                                                            \
                 : "memory");                                                                                     \
    for (u32 i = 0; i < 4; ++i) out[64 * i + lane()] = words[17000 + 64 * i + lane()];                            \
  }
COPY_WIDE(global_load_lds_dwordx3)
COPY_WIDE(global_load_lds_dwordx4)
#endif
