// SPDX-License-Identifier: MIT
// An AMD GPU code object: its loadable image, kernel descriptors and disassembled program.
// Formats: LLVM, "User Guide for AMDGPU Backend", sections Code Object and Kernel Descriptor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/machine/instruction.hpp"

namespace tilewave::sim {

/// The fields of a kernel descriptor that set up a wave.
struct KernelDescriptor {
  std::uint32_t lds_bytes = 0, scratch_bytes = 0, kernarg_bytes = 0;
  std::uint64_t entry = 0;  // virtual address in the code object
  int vgprs = 0, agprs = 0;
  int denorm32 = 3, denorm16_64 = 3;  // bit 0: keep input denormals, bit 1: keep output denormals
  bool fp16_overflow = false;
  int user_sgprs = 0;
  bool dispatch_ptr = false, queue_ptr = false, kernarg_ptr = false, dispatch_id = false, private_size = false;
  bool workgroup_id[3] = {}, workgroup_info = false;
  int preload_words = 0, preload_offset = 0;  // kernel arguments copied to SGPRs, in dwords
};

constexpr std::size_t max_kernarg_bytes = 64 * 1024;

/// One entry of the kernel argument segment, as the metadata note lists it.
struct KernelArgument {
  std::string name{};  // empty if the note has none
  std::string kind{};  // by_value, global_buffer, hidden_block_count_x, ...
  std::size_t offset = 0, bytes = 0;
};

struct Program {
  std::vector<Op> ops;
  std::unordered_map<std::uint64_t, std::int32_t> index;  // virtual address -> op

  /// Op at an address; Error when no instruction starts there.
  std::size_t at(std::uint64_t address) const;
};

/// Two instructions that come too close: wait states that gfx942 and gfx950 do not keep by themselves.
struct Hazard {
  std::size_t from, to;  // ops
  int needed, found;     // wait states
  std::string_view why;
};

/// Eight bytes of the image at `at` that hold the address of `target` in it.
struct Relocation {
  std::uint64_t at, target;
};

struct CodeObject {
  Arch arch = Arch::gfx950;
  std::vector<std::uint8_t> image;                               // virtual addresses 0 .. size
  std::vector<Relocation> relocations;                           // to be done where the image is loaded
  std::map<std::string, KernelDescriptor> kernels;               // by descriptor symbol, `name.kd`
  std::map<std::string, std::vector<KernelArgument>> arguments;  // by descriptor symbol
  Program program;
  std::vector<Hazard> hazards;  // of all kernels, by `to`
};

/// Read and disassemble a code object; `objdump` is the llvm-objdump to run. Lines that cannot be decoded become ops
/// that raise their Error when they are executed, so code that never runs needs no support.
CodeObject load_code_object(const std::string& path, const std::string& objdump);

/// The code objects for gfx942 and gfx950 that a clang offload bundle holds.
struct DeviceImage {
  std::string arch;
  std::vector<std::uint8_t> bytes;
};
std::vector<DeviceImage> images_of_bundle(const std::uint8_t* bundle, std::size_t bytes = ~std::size_t{0});
CodeObject load_image(const DeviceImage& image, const std::string& objdump);

/// Loads from a code object, a fat binary or an executable the first code object for `arch`, or for "" the first of
/// all.
CodeObject load_any_object(const std::string& path, const std::string& arch, const std::string& objdump);

}  // namespace tilewave::sim
