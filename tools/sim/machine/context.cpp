// SPDX-License-Identifier: MIT
#include "sim/machine/context.hpp"

#include <algorithm>

#include "sim/machine/hazards.hpp"

namespace tilewave::sim {
namespace {

constexpr std::uint32_t register_poison = 0x7fbadbadu;  // a NaN as f32, as f16 and in its high half as bf16
constexpr std::uint8_t memory_poison = 0xff;            // NaN in every float type

/// User SGPRs in the ABI's order, then the block id (AMDGPU backend guide, "Initial Kernel Execution State").
void set_up_scalars(const Context& c, const Block& block, Wave& w) {
  const KernelDescriptor& k = c.kernel;
  w.s.fill(register_poison);
  int next = 0;
  const auto pointer = [&](std::uint64_t value) {
    w.set_pair(next, value);
    next += 2;
  };
  if (k.dispatch_ptr) pointer(c.dispatch_packet);
  if (k.queue_ptr) pointer(0);
  if (k.kernarg_ptr) pointer(c.kernarg);
  if (k.dispatch_id) pointer(0);
  if (k.private_size) w.s[next++] = k.scratch_bytes;
  for (int i = 0; i < k.preload_words; ++i)
    w.s[next++] = load_bytes<std::uint32_t>(c.launch.kernarg.data() + 4 * (k.preload_offset + i));
  if (next > k.user_sgprs) throw Error("kernel descriptor: more user SGPRs enabled than counted");
  next = k.user_sgprs;
  for (int i = 0; i < 3; ++i)
    if (k.workgroup_id[i]) w.s[next++] = block.id[i];
  if (k.workgroup_info) throw Error("kernel descriptor: workgroup info is not simulated");
}

void set_up_wave(const Context& c, Block& block, Wave& w, int id) {
  std::unique_ptr<Wave::Row[]> rows = std::move(w.v);
  w = Wave{};
  w.v = std::move(rows);
  w.block = &block;
  w.memory = &c.memory;
  w.id = id;
  w.pc = c.entry;
  set_up_scalars(c, block, w);
  for (int r = 0; r < c.kernel.vgprs; ++r) w.v[r].fill(register_poison);
  for (int r = 0; r < c.kernel.agprs; ++r) w.v[first_agpr + r].fill(register_poison);
  const auto& size = c.launch.block;
  std::uint64_t exec = 0;
  for (std::uint32_t l = 0; l < wave_lanes; ++l) {
    const std::uint32_t thread = static_cast<std::uint32_t>(id) * wave_lanes + l;
    if (thread >= c.threads()) break;
    exec |= std::uint64_t{1} << l;
    w.v[0][l] = thread % size[0] | thread / size[0] % size[1] << 10 | thread / (size[0] * size[1]) << 20;
  }
  w.set_pair(exec_lo, exec);
  w.mode.flush_in32 = !(c.kernel.denorm32 & 1);
  w.mode.flush_out32 = !(c.kernel.denorm32 & 2);
  w.mode.flush_in16_64 = !(c.kernel.denorm16_64 & 1);
  w.mode.flush_out16_64 = !(c.kernel.denorm16_64 & 2);
  w.mode.fp16_overflow = c.kernel.fp16_overflow;
  w.counts.waves = 1;
}

/// Returns where the next kernel of the code object begins.
std::uint64_t end_of_kernel(const Context& c) {
  std::uint64_t end = ~std::uint64_t{0};
  for (const auto& [name, kernel] : c.object.kernels)
    if (kernel.entry > c.kernel.entry) end = std::min(end, kernel.entry);
  return end;
}

void check_hazards(const Context& c) {
  const std::uint64_t end = end_of_kernel(c);
  for (const Hazard& hazard : c.object.hazards)
    if (hazard.to >= c.entry && c.object.program.ops[hazard.to].address < end) throw Error(text_of(hazard, c.object));
}

/// Registers beyond the kernel's allocation would belong to another wave.
void check_registers(const Context& c) {
  const std::uint64_t end = end_of_kernel(c);
  for (std::size_t i = c.entry; i < c.object.program.ops.size() && c.object.program.ops[i].address < end; ++i) {
    const Op& op = c.object.program.ops[i];
    for (int a = 0; a < op.operands; ++a) {
      if (!op.arg[a].is_vector()) continue;
      const int last = op.arg[a].reg + op.arg[a].words;
      if (op.arg[a].reg >= first_agpr ? last > first_agpr + c.kernel.agprs : last > c.kernel.vgprs)
        throw Error(hex(op.address) + ": " + op.text + ": register beyond the " + std::to_string(c.kernel.vgprs) +
                    " VGPRs and " + std::to_string(c.kernel.agprs) + " AGPRs of the descriptor");
    }
  }
}

/// hsa_kernel_dispatch_packet_t, as far as kernels read it: block size in work-items, grid size in work-items.
std::vector<std::uint8_t> dispatch_packet_of(const Launch& launch) {
  std::vector<std::uint8_t> packet(64);
  for (int i = 0; i < 3; ++i) {
    const auto size = static_cast<std::uint16_t>(launch.block[i]);
    const std::uint32_t grid = launch.block[i] * launch.grid_blocks[i];
    std::memcpy(&packet[4 + 2 * i], &size, 2);
    std::memcpy(&packet[12 + 4 * i], &grid, 4);
  }
  return packet;
}

}  // namespace

Context::Context(const CodeObject& code, const Launch& what, Memory& where, const MachineOptions& how)
    : object(code),
      kernel([&]() -> const KernelDescriptor& {
        const auto found = code.kernels.find(what.symbol);
        if (found == code.kernels.end()) throw Error("no kernel descriptor " + what.symbol);
        return found->second;
      }()),
      launch(what),
      memory(where),
      options(how),
      mapped_(where),
      regions_(where.count()) {
  std::uint64_t work_items = 1, all_blocks = 1;
  for (int i = 0; i < 3; ++i) {
    work_items = std::min<std::uint64_t>(work_items * launch.block[i], 2048);
    if (std::uint64_t{launch.block[i]} * launch.grid_blocks[i] >> 32)
      throw Error("the grid has more than 2^32 work-items");
    all_blocks = std::min(all_blocks * launch.grid_blocks[i], std::uint64_t{1} << 32);
  }
  if (work_items == 0 || work_items > 1024) throw Error("a block has 1 to 1024 work-items");
  if (all_blocks == 0 || all_blocks >> 32) throw Error("a grid has 1 to 2^32 - 1 blocks");
  if (launch.kernarg.size() < kernel.kernarg_bytes)
    throw Error("the kernel reads " + std::to_string(kernel.kernarg_bytes) + " bytes of arguments, the launch has " +
                std::to_string(launch.kernarg.size()));
  constexpr std::size_t lds_limit[] = {64 * 1024, 160 * 1024};
  if (lds_bytes() > lds_limit[object.arch == Arch::gfx950]) throw Error("more LDS than the chip has");

  // Preloaded kernel arguments: hardware that does it enters 256 bytes later, past the code that loads them by hand.
  entry = object.program.at(kernel.entry + (kernel.preload_words ? 256 : 0));
  if (options.checks) check_registers(*this), check_hazards(*this);
  image_ = object.image, kernarg_ = launch.kernarg, packet_ = dispatch_packet_of(launch);
  load_base = where.map("the code object", image_.data(), image_.size(), false);
  for (const Relocation& r : object.relocations) {
    const std::uint64_t address = load_base + r.target;
    std::memcpy(&image_[r.at], &address, sizeof address);
  }
  kernarg = where.map("the kernel arguments", kernarg_.data(), kernarg_.size(), false);
  dispatch_packet = where.map("the dispatch packet", packet_.data(), packet_.size(), false);
}

void Context::start(Block& block, std::uint64_t n) const {
  const std::uint64_t x = launch.grid_blocks[0], y = launch.grid_blocks[1];
  block.id = {static_cast<std::uint32_t>(n % x), static_cast<std::uint32_t>(n / x % y),
              static_cast<std::uint32_t>(n / (x * y))};
  block.lds.assign(lds_bytes(), memory_poison);
  block.shadow.assign((lds_bytes() + 3) / 4, LdsShadow{});
  block.arch = object.arch;
  block.checks = options.checks && options.races;
  block.program = &object.program;
  block.load_base = load_base;
  block.epoch = 1;
  block.scratch_bytes = kernel.scratch_bytes;
  block.scratch.assign(std::size_t{block.scratch_bytes} * waves() * wave_lanes, memory_poison);
  while (block.waves.size() < waves()) block.waves.push_back(std::make_unique<Wave>());
  for (std::uint32_t i = 0; i < waves(); ++i) set_up_wave(*this, block, *block.waves[i], static_cast<int>(i));
}

void Context::step(Wave& w) const {
  const std::vector<Op>& ops = object.program.ops;
  if (w.pc >= ops.size()) throw Error("execution ran past the end of the code");
  const Op& op = ops[w.pc++];
  try {
    const bool vector = op.cls <= Class::valu || op.cls == Class::vmem || op.cls == Class::lds;
    if (vector && w.skips_vector) return;
    if (options.checks) w.check_waits(op);
    ++w.counts.instructions[static_cast<int>(op.cls)];
    if (w.indexed && op.cls == Class::valu)
      op.run(w, indexed(w, op));
    else
      op.run(w, op);
    // vmcnt has 6 bits: what would overflow it is not issued before the oldest is done, and clang counts on that.
    if (w.vm.outstanding() > 63) w.wait(63, ~0u);
    if (++w.executed > options.max_wave_instructions) throw Error("the wave does not end");
  } catch (const Error& error) {
    throw Error(where(w, op) + (op.undecodable ? "" : std::string(": ") + error.what()));
  }
}

std::string Context::where(const Wave& w, const Op& op) {
  const auto& id = w.block->id;
  return "block (" + std::to_string(id[0]) + ", " + std::to_string(id[1]) + ", " + std::to_string(id[2]) + ") wave " +
         std::to_string(w.id) + " at " + hex(op.address) + ": " + op.text;
}

}  // namespace tilewave::sim
