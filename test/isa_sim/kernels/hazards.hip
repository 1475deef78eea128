// SPDX-License-Identifier: MIT
// Pairs of instructions exactly as far apart as they must be: the first s_nop of each kernel is between them, and is not
// one state too long. Nothing of it is run.
#define KERNEL(name, text)                                                                                            \
  extern "C" __attribute__((global)) void name() {                                                                    \
    asm volatile(text ::                                                                                              \
                     : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
                       "v15", "s8", "s9", "s10", "s11", "vcc");                                                       \
  }
#if defined(__gfx950__)
#define BY_CHIP(gfx942, gfx950) gfx950
#else
#define BY_CHIP(gfx942, gfx950) gfx942
#endif
#define NOP(gfx942, gfx950) "s_nop " BY_CHIP(gfx942, gfx950) "\n"

// Products of 4 passes, of 8, and of f32 and f64.
#define XDL4 "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]\n"
#define XDL8 "v_mfma_f32_32x32x8_bf16 a[0:15], v[4:5], v[6:7], a[0:15]\n"
#define F32 "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3]\n"
#define F64 "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]\n"

KERNEL(product_read, XDL4 NOP("6", "7") "v_add_f32 v8, v8, v3")
KERNEL(product_stored, XDL4 NOP("6", "7") "global_store_dword v[8:9], v3, off")
KERNEL(product_overwritten, XDL4 NOP("6", "7") "v_mov_b32 v3, 0")
KERNEL(product_of_f32_read, F32 NOP("9", "9") "v_add_f32 v8, v8, v3")
KERNEL(product_of_f64_read, F64 NOP("10", "15") BY_CHIP("", "s_nop 2\n") "v_add_f64 v[8:9], v[8:9], v[6:7]")
KERNEL(product_by_product, XDL4 NOP("6", "7") "v_mfma_f32_16x16x16_bf16 v[8:11], v[2:3], v[6:7], v[8:11]")
KERNEL(product_onto_part, XDL4 NOP("4", "5") "v_mfma_f32_16x16x16_bf16 v[2:5], v[8:9], v[6:7], v[2:5]")
KERNEL(addend_overwritten, "v_mfma_f32_16x16x16_bf16 v[8:11], v[4:5], v[6:7], v[0:3]\n" NOP("2", "2") "v_mov_b32 v0, 0")
KERNEL(value_into_product, "v_mov_b32 v4, 0\n" NOP("1", "1") XDL4)
KERNEL(exec_before_product, "v_cmpx_eq_u32 vcc, v0, v0\n" NOP("3", "3") XDL4)
KERNEL(transcendental, "v_exp_f32 v0, v1\n" NOP("0", "0") "v_add_f32 v2, v0, v0")
KERNEL(part_written,
       "v_add_u16_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD\n" NOP(
           "0", "0") "v_add_u32 v3, v0, v0")
KERNEL(mask, "v_cmp_eq_u32 vcc, v0, v1\n" NOP("1", "1") "v_cndmask_b32 v2, v0, v1, vcc")
KERNEL(lane_of_value, "v_mov_b32 v0, 1\n" NOP("0", "0") "v_readfirstlane_b32 s8, v0")
KERNEL(lane_by_value, "v_readfirstlane_b32 s8, v0\n" NOP("3", "3") "v_readlane_b32 s9, v1, s8")
KERNEL(row_of_value, "v_mov_b32 v0, 1\n" NOP("1", "1") "v_mov_b32_dpp v1, v0 row_shr:1 row_mask:0xf bank_mask:0xf")
KERNEL(address_by_value,
       "v_readfirstlane_b32 s8, v0\nv_readfirstlane_b32 s9, v1\n" NOP("4", "4") "global_load_dword v2, v3, s[8:9]")
KERNEL(stored_overwritten, "global_store_dwordx4 v[8:9], v[0:3], off\n" NOP("1", "1") "v_mov_b32 v1, 0")
KERNEL(copy_to_lds, "s_mov_b32 m0, 0\n" NOP("0", "0") "global_load_lds_dword v[0:1], off")
// None: of copies the guides name those of global memory and scratch alone.
KERNEL(copy_through_buffer, "s_mov_b32 m0, 0\n" NOP("0", "0") "buffer_load_dword v0, s[8:11], 0 offen lds")
KERNEL(dot, "v_dot2_f32_f16 v0, v1, v2, v3\n" NOP("2", "2") "v_add_f32 v4, v0, v0")
KERNEL(division, "v_div_scale_f32 v0, vcc, v1, v2, v1\n" NOP("3", "3") "v_div_fmas_f32 v3, v1, v2, v1")
// Of two ways the shorter one counts: the branch leaves three states out.
KERNEL(by_a_branch, XDL4 NOP("4", "5") "s_cbranch_scc1 1f\ns_nop 2\n1: s_mov_b32 s8, 0\nv_add_f32 v8, v8, v3")
// None: sums follow each other at once.
KERNEL(sums, XDL4 XDL4 XDL8 XDL8 "s_nop 15\ns_nop 7")
#if defined(__gfx950__)
KERNEL(swap, "v_mov_b32 v0, 1\ns_nop 1\nv_permlane32_swap_b32 v0, v1")
#endif
