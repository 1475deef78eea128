// SPDX-License-Identifier: MIT
// The facts of each chip. Every number names its source; kernels and policies read these facts, never literals.
#pragma once

#include <cstdint>
#include <string_view>

#include "tilewave/core/config.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave {

enum class ArchId : int { gfx942, gfx950, sm90 };
inline constexpr ArchId all_archs[] = {ArchId::gfx942, ArchId::gfx950, ArchId::sm90};

constexpr std::string_view name_of(ArchId id) {
  switch (id) {
    case ArchId::gfx942: return "gfx942";
    case ArchId::gfx950: return "gfx950";
    case ArchId::sm90: return "sm90";
  }
  return "unknown";
}

/// The matrix instruction of a wave: MFMA (CDNA ISA guides, "Matrix Arithmetic Instructions") or mma.sync (PTX ISA).
enum class Matrix : int { mfma, mma };

/// Chips whose lists of policies were chosen by the same measurements. Properties that follow from a chip's build have
/// facts of their own; the family stands for what was only measured to be faster.
enum class Family : int { cdna, hopper };

/// Static facts of one architecture. Rates are for the whole device at the boost clock, dense.
struct ArchFacts {
  ArchId id;
  int wave_lanes;           // lanes of one wave (warp on sm90)
  int lds_bytes;            // shared memory that one block may use
  int compute_units;        // CUs, or SMs
  int simds_per_cu;         // schedulers that a block's waves spread over
  int max_waves_per_simd;   // limit of the hardware
  int registers_per_lane;   // most vector registers (VGPR + AGPR, or R) that one lane can address
  int register_file_lanes;  // vector registers per lane slot of one SIMD: waves = this / registers
  int register_granule;     // allocation step of the register count
  int max_load_bytes;       // widest load of one lane
  int lds_banks;
  int lds_granule;                      // bytes; a block takes a multiple of this from LDS
  int max_cluster_blocks;               // blocks that may share a cluster
  std::int64_t last_level_cache_bytes;  // bytes that a cold-cache measurement has to displace
  double hbm_bytes_per_second;          // peak of the data sheet
  double bf16_flops;                    // dense matrix peak
  double fp8_flops;
  DType fp8;  // the flavour that the matrix and convert instructions take
  bool mx;    // they also take OCP MX's formats: fp4, and e8m0 scales of 32 values
  Matrix matrix;
  Family family;
  int xcds;             // dies with an L2 each; blocks of a grid go to them in turn
  bool direct_copies;   // copies from memory into LDS of 16 bytes a lane, past its registers
  bool lds_transposed;  // LDS reads that transpose elements of 1 or 2 bytes
  bool wave_groups;     // products of four waves together, with operands in shared memory
  bool tensor_copies;   // an engine that copies boxes of tensors and counts what has landed
  bool bf16_pairs;      // an operation that rounds two f32 to bf16; otherwise it takes three
  int exp_clk;          // clk of a SIMD's vector unit that an exponential of a wave takes
  bool f32_sums;        // the matrix unit keeps sums as f32 does; otherwise it cuts bits off
};

// MI300X: 304 CUs, 64 KiB LDS, 5.3 TB/s, 256 MB Infinity Cache, 1307 / 2615 TFLOP/s (AMD MI300X data sheet and
// rocm.docs.amd.com "gpu-arch-specs"); 512-entry unified register file, granule 8 (LLVM AMDGPU usage, gfx90a+). LDS in
// 512 bytes (LLVM, AMDGPU getLdsDwGranularity). 8 XCDs of 38 CUs (CDNA3 white paper); copies into LDS move 4 bytes a
// lane (CDNA3 ISA guide, buffer_load_dword with lds).
inline constexpr ArchFacts gfx942_facts{.id = ArchId::gfx942,
                                        .wave_lanes = 64,
                                        .lds_bytes = 64 * 1024,
                                        .compute_units = 304,
                                        .simds_per_cu = 4,
                                        .max_waves_per_simd = 8,
                                        .registers_per_lane = 512,
                                        .register_file_lanes = 512,
                                        .register_granule = 8,
                                        .max_load_bytes = 16,
                                        .lds_banks = 32,
                                        .lds_granule = 512,
                                        .max_cluster_blocks = 1,
                                        .last_level_cache_bytes = 256LL << 20,
                                        .hbm_bytes_per_second = 5.3e12,
                                        .bf16_flops = 1307e12,
                                        .fp8_flops = 2615e12,
                                        .fp8 = DType::fp8_e4m3fnuz,
                                        .mx = false,
                                        .matrix = Matrix::mfma,
                                        .family = Family::cdna,
                                        .xcds = 8,
                                        .direct_copies = false,
                                        .lds_transposed = false,
                                        .wave_groups = false,
                                        .tensor_copies = false,
                                        .bf16_pairs = false,
                                        .exp_clk = 16,
                                        .f32_sums = true};

// MI350X: 256 CUs at 2.2 GHz, 160 KiB LDS with 64 banks, 8 TB/s, 256 MB Infinity Cache, 2307 / 4614 TFLOP/s
// (rocm.docs.amd.com "gpu-arch-specs"; CDNA4 ISA guide; rocm.blogs "cdna4-gemm-kernels" table 1). LDS in 1280
// bytes (LLVM, getLdsDwGranularity). 8 XCDs of 32 CUs (CDNA4 white paper); buffer_load_dwordx4 into LDS,
// ds_read_b64_tr_b16 and ds_read_b64_tr_b8 (CDNA4 ISA guide).
inline constexpr ArchFacts gfx950_facts{.id = ArchId::gfx950,
                                        .wave_lanes = 64,
                                        .lds_bytes = 160 * 1024,
                                        .compute_units = 256,
                                        .simds_per_cu = 4,
                                        .max_waves_per_simd = 8,
                                        .registers_per_lane = 512,
                                        .register_file_lanes = 512,
                                        .register_granule = 8,
                                        .max_load_bytes = 16,
                                        .lds_banks = 64,
                                        .lds_granule = 1280,
                                        .max_cluster_blocks = 1,
                                        .last_level_cache_bytes = 256LL << 20,
                                        .hbm_bytes_per_second = 8.0e12,
                                        .bf16_flops = 2307e12,
                                        .fp8_flops = 4614e12,
                                        .fp8 = DType::fp8_e4m3fn,
                                        .mx = true,
                                        .matrix = Matrix::mfma,
                                        .family = Family::cdna,
                                        .xcds = 8,
                                        .direct_copies = true,
                                        .lds_transposed = true,
                                        .wave_groups = false,
                                        .tensor_copies = false,
                                        .bf16_pairs = true,
                                        .exp_clk = 8,
                                        .f32_sums = true};

// H200 SXM: 132 SMs, 227 KiB shared memory per block, 60 MB L2 (as the driver reports it), 4.8 TB/s, 989 / 1979 TFLOP/s
// (NVIDIA H200 data sheet; CUDA C programming guide, compute capability 9.0). Clusters of up to 8 blocks are portable,
// and 16 need an attribute (same guide). wgmma and bulk tensor copies: PTX ISA, sm_90a.
// test/arch/room_truncation_test.cpp shows, on silicon, which bits of a sum its matrix unit keeps.
inline constexpr ArchFacts sm90_facts{.id = ArchId::sm90,
                                      .wave_lanes = 32,
                                      .lds_bytes = 227 * 1024,
                                      .compute_units = 132,
                                      .simds_per_cu = 4,
                                      .max_waves_per_simd = 16,
                                      .registers_per_lane = 255,
                                      .register_file_lanes = 512,
                                      .register_granule = 8,
                                      .max_load_bytes = 16,
                                      .lds_banks = 32,
                                      .lds_granule = 128,
                                      .max_cluster_blocks = 16,
                                      .last_level_cache_bytes = 60LL << 20,
                                      .hbm_bytes_per_second = 4.8e12,
                                      .bf16_flops = 989e12,
                                      .fp8_flops = 1979e12,
                                      .fp8 = DType::fp8_e4m3fn,
                                      .mx = false,
                                      .matrix = Matrix::mma,
                                      .family = Family::hopper,
                                      .xcds = 1,
                                      .direct_copies = false,
                                      .lds_transposed = false,
                                      .wave_groups = true,
                                      .tensor_copies = true,
                                      .bf16_pairs = true,
                                      .exp_clk = 8,
                                      .f32_sums = false};

/// Is called for an architecture that a function has no answer for. It is not constexpr, so a constant evaluation (of
/// facts, atoms or policies) does not compile; at run time it traps.
[[noreturn]] TILEWAVE_HOST_DEVICE void unknown_architecture() {
#if defined(__CUDA_ARCH__)
  __trap();
#else
  __builtin_trap();
#endif
}

/// Returns the facts of an architecture. The switch has no `default`, so a new chip never gets another chip's facts.
constexpr const ArchFacts& facts_of(ArchId id) {
  switch (id) {
    case ArchId::gfx942: return gfx942_facts;
    case ArchId::gfx950: return gfx950_facts;
    case ArchId::sm90: return sm90_facts;
  }
  unknown_architecture();
}

/// Returns the facts of the architecture with that name, or nullptr if there is none.
constexpr const ArchFacts* facts_named(std::string_view name) {
  for (const ArchId id : all_archs)
    if (name_of(id) == name) return &facts_of(id);
  return nullptr;
}

/// Returns the value for an architecture from one value each, in the order of ArchId. A new architecture needs its
/// value at every call.
template <class T>
TILEWAVE_HOST_DEVICE constexpr T per_arch(ArchId id, T gfx942, T gfx950, T sm90) {
  switch (id) {
    case ArchId::gfx942: return gfx942;
    case ArchId::gfx950: return gfx950;
    case ArchId::sm90: return sm90;
  }
  unknown_architecture();
}

/// Returns the value for a kind of matrix instruction from one value each.
template <class T>
TILEWAVE_HOST_DEVICE constexpr T per_matrix(Matrix matrix, T mfma, T mma) {
  switch (matrix) {
    case Matrix::mfma: return mfma;
    case Matrix::mma: return mma;
  }
  unknown_architecture();
}

}  // namespace tilewave
