// SPDX-License-Identifier: MIT
#include "machine.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace isa_sim {
namespace {

constexpr std::uint32_t register_poison = 0x7fbadbadu;  // a NaN as f32, as f16 and in its high half as bf16
constexpr std::uint8_t memory_poison = 0xff;            // NaN in every float type

/// Everything the waves of a launch have in common.
struct Context {
  const CodeObject& object;
  const KernelDescriptor& kernel;
  const Launch& launch;
  const Memory& memory;
  const MachineOptions& options;
  std::uint64_t load_base = 0, kernarg = 0, dispatch_packet = 0;
  std::size_t entry = 0;

  std::uint32_t threads() const { return launch.block[0] * launch.block[1] * launch.block[2]; }
  std::uint32_t waves() const { return (threads() + wave_lanes - 1) / wave_lanes; }
};

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

void run_until_barrier(const Context& c, Wave& w) {
  const std::vector<Op>& ops = c.object.program.ops;
  while (w.status == WaveStatus::running) {
    if (w.pc >= ops.size()) throw Error("execution ran past the end of the code");
    const Op& op = ops[w.pc++];
    try {
      const bool vector = op.cls <= Class::valu || op.cls == Class::vmem || op.cls == Class::lds;
      if (vector && w.skips_vector) continue;
      w.check_waits(op);
      ++w.counts.instructions[static_cast<int>(op.cls)];
      if (w.indexed && op.cls == Class::valu)
        op.run(w, indexed(w, op));
      else
        op.run(w, op);
      // vmcnt has 6 bits: what would overflow it is not issued before the oldest is done, and clang counts on that.
      if (w.vm.outstanding() > 63) w.wait(63, ~0u);
      if (++w.executed > c.options.max_wave_instructions) throw Error("the wave does not end");
    } catch (const Error& error) {
      const auto& id = w.block->id;
      throw Error("block (" + std::to_string(id[0]) + ", " + std::to_string(id[1]) + ", " + std::to_string(id[2]) +
                  ") wave " + std::to_string(w.id) + " at " + hex(op.address) + ": " + op.text + ": " + error.what());
    }
  }
}

void run_block(const Context& c, Block& block, Counts& counts) {
  const std::size_t lds_bytes = c.kernel.lds_bytes + c.launch.dynamic_lds_bytes;
  block.lds.assign(lds_bytes, memory_poison);
  block.shadow.assign((lds_bytes + 3) / 4, LdsShadow{});
  block.arch = c.object.arch;
  block.program = &c.object.program;
  block.load_base = c.load_base;
  block.epoch = 1;
  block.scratch_bytes = c.kernel.scratch_bytes;
  block.scratch.assign(std::size_t{block.scratch_bytes} * c.waves() * wave_lanes, memory_poison);
  while (block.waves.size() < c.waves()) block.waves.push_back(std::make_unique<Wave>());
  for (std::uint32_t i = 0; i < c.waves(); ++i) set_up_wave(c, block, *block.waves[i], static_cast<int>(i));
  for (std::size_t ended = 0; ended < block.waves.size(); ++block.epoch) {
    ended = 0;
    for (const auto& w : block.waves) w->published = w->arrived;
    for (std::size_t i = 0; i < block.waves.size(); ++i) {
      Wave& w = *block.waves[c.options.reverse ? block.waves.size() - 1 - i : i];
      if (w.status == WaveStatus::at_barrier) w.status = WaveStatus::running;
      run_until_barrier(c, w);
      ended += w.status == WaveStatus::ended;
    }
  }
  for (const auto& w : block.waves) counts.add(w->counts);
}

/// Registers beyond the kernel's allocation would belong to another wave.
void check_registers(const Context& c) {
  std::uint64_t end = ~std::uint64_t{0};
  for (const auto& [name, kernel] : c.object.kernels)
    if (kernel.entry > c.kernel.entry) end = std::min(end, kernel.entry);
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
std::vector<std::uint8_t> dispatch_packet(const Launch& launch) {
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

Counts run_launch(const CodeObject& object, const Launch& launch, Memory& memory, const MachineOptions& options) {
  const auto kernel = object.kernels.find(launch.symbol);
  if (kernel == object.kernels.end()) throw Error("no kernel descriptor " + launch.symbol);
  Context c{object, kernel->second, launch, memory, options};
  if (c.threads() == 0 || c.threads() > 1024) throw Error("a block has 1 to 1024 work-items");
  if (launch.kernarg.size() < c.kernel.kernarg_bytes)
    throw Error("the kernel reads " + std::to_string(c.kernel.kernarg_bytes) + " bytes of arguments, the launch has " +
                std::to_string(launch.kernarg.size()));
  constexpr std::size_t lds_limit[] = {64 * 1024, 160 * 1024};
  if (c.kernel.lds_bytes + launch.dynamic_lds_bytes > lds_limit[object.arch == Arch::gfx950])
    throw Error("more LDS than the chip has");

  // Preloaded kernel arguments: hardware that does it enters 256 bytes later, past the code that loads them by hand.
  c.entry = object.program.at(c.kernel.entry + (c.kernel.preload_words ? 256 : 0));
  check_registers(c);
  std::vector<std::uint8_t> image = object.image, kernarg = launch.kernarg, packet = dispatch_packet(launch);
  const std::size_t regions = memory.count();
  c.load_base = memory.map("the code object", image.data(), image.size(), false);
  c.kernarg = memory.map("the kernel arguments", kernarg.data(), kernarg.size(), false);
  c.dispatch_packet = memory.map("the dispatch packet", packet.data(), packet.size(), false);

  const std::uint64_t blocks = std::uint64_t{launch.grid_blocks[0]} * launch.grid_blocks[1] * launch.grid_blocks[2];
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  Counts total;
  const auto work = [&] {
    Block block;
    Counts counts;
    try {
      for (std::uint64_t i = next++; i < blocks; i = next++) {
        const std::uint64_t n = options.reverse ? blocks - 1 - i : i, x = launch.grid_blocks[0],
                            y = launch.grid_blocks[1];
        block.id = {static_cast<std::uint32_t>(n % x), static_cast<std::uint32_t>(n / x % y),
                    static_cast<std::uint32_t>(n / (x * y))};
        run_block(c, block, counts);
      }
    } catch (...) {
      next = blocks;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    total.add(counts);
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < options.threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  memory.truncate(regions);
  if (failure) std::rethrow_exception(failure);
  return total;
}

}  // namespace isa_sim
