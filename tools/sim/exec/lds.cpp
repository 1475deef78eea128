// SPDX-License-Identifier: MIT
// LDS accesses, and the lane exchanges that go through the LDS crossbar.
#include <bit>

#include "sim/exec/vector_memory.hpp"

namespace tilewave::sim {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;

u32 lane_base(const Wave& w, const Operand& a, int lane) { return w.v[a.reg][lane]; }

void count(Wave& w, u32 bytes) { w.counts.lds_bytes += u64{bytes} * std::popcount(w.exec()); }

void run_read(Wave& w, const Op& op) {  // vdst, vaddr
  const Access access = Access::unpack(op.parameter);
  ++w.lgkm.issued;
  for_active(w, [&](int l) {
    const u32 address = lane_base(w, op.arg[1], l) + static_cast<u32>(op.offset);
    load_lane(w, op.arg[0].reg, l, access, w.block->lds_read(w, address, access.bytes));
  });
  mark_pending(w, op.arg[0], false, true);
  count(w, access.bytes);
}

void run_write(Wave& w, const Op& op) {  // vaddr, vdata
  const Access access = Access::unpack(op.parameter);
  ++w.lgkm.issued;
  for_active(w, [&](int l) {
    const u32 address = lane_base(w, op.arg[0], l) + static_cast<u32>(op.offset);
    store_lane(w, op.arg[1].reg, l, access, w.block->lds_write(w, address, access.bytes));
  });
  count(w, access.bytes);
}

/// Two elements at offset0 and offset1, counted in elements (or in 64 of them, the st64 forms).
template <u32 bytes, u32 unit>
void run_read2(Wave& w, const Op& op) {
  ++w.lgkm.issued;
  for_active(w, [&](int l) {
    const u32 base = lane_base(w, op.arg[1], l);  // read before the destination, which may be the same register
    const int reg = op.arg[0].reg;
    const auto at = [&](i32 offset) { return w.block->lds_read(w, base + static_cast<u32>(offset) * unit, bytes); };
    load_lane(w, reg, l, {bytes}, at(op.offset0));
    load_lane(w, reg + bytes / 4, l, {bytes}, at(op.offset1));
  });
  mark_pending(w, op.arg[0], false, true);
  count(w, 2 * bytes);
}
template <u32 bytes, u32 unit>
void run_write2(Wave& w, const Op& op) {  // vaddr, vdata0, vdata1
  ++w.lgkm.issued;
  for_active(w, [&](int l) {
    const u32 base = lane_base(w, op.arg[0], l);
    const auto at = [&](i32 offset) { return w.block->lds_write(w, base + static_cast<u32>(offset) * unit, bytes); };
    store_lane(w, op.arg[1].reg, l, {bytes}, at(op.offset0));
    store_lane(w, op.arg[2].reg, l, {bytes}, at(op.offset1));
  });
  count(w, 2 * bytes);
}

/// ds_read_b64_tr_b16, _b8, _b4 and ds_read_b96_tr_b6: every 16 lanes read the rows of a matrix with 16 columns of
/// `bits`-wide elements, row after row, each lane its share; lane l of them receives column l (CDNA4 ISA guide, "MFMA
/// transpose load from LDS", which wants EXEC full and addresses aligned to the size, of 96 bits to 16 bytes).
template <u32 bits>
void run_read_transposed(Wave& w, const Op& op) {  // vdst, vaddr
  constexpr u32 words = bits == 6 ? 3 : 2, rows = 32 * words / bits, columns = 16;
  if (w.exec() != ~u64{0}) throw Error("a transposed read with inactive lanes is undefined");
  ++w.lgkm.issued;
  std::array<u16, wave_lanes * rows> elements;  // of 16 lanes: row by row
  for_active(w, [&](int l) {
    const u32 address = lane_base(w, op.arg[1], l) + static_cast<u32>(op.offset);
    if (address % (bits == 6 ? 16 : 8))
      throw Error("misaligned transposed read of LDS address " + std::to_string(address));
    const std::uint8_t* from = w.block->lds_read(w, address, 4 * words);
    for (u32 e = 0; e < rows; ++e) {
      const u32 byte = bits * e / 8, shift = bits * e % 8;
      const u32 pair = from[byte] | (shift + bits > 8 ? u32{from[byte + 1]} << 8 : 0u);
      elements[rows * static_cast<u32>(l) + e] = static_cast<u16>(pair >> shift & ((1u << bits) - 1));
    }
  });
  for (u32 l = 0; l < wave_lanes; ++l) {
    std::array<u64, 2> made{};
    for (u32 row = 0; row < rows; ++row) {
      const u64 element = elements[l / columns * columns * rows + row * columns + l % columns];
      const u32 at = bits * row;
      made[at / 64] |= element << at % 64;
      if (at % 64 + bits > 64) made[1] |= element >> (64 - at % 64);
    }
    for (u32 word = 0; word < words; ++word)
      w.v[op.arg[0].reg + word][l] = static_cast<u32>(made[word / 2] >> 32 * (word % 2));
  }
  mark_pending(w, op.arg[0], false, true);
  count(w, 4 * words);
}

/// ds_bpermute: lane l reads lane (address / 4) % 64, 0 from an inactive one.
void run_bpermute(Wave& w, const Op& op) {  // vdst, vaddr, vdata
  const Wave::Row address = w.v[op.arg[1].reg], data = w.v[op.arg[2].reg];
  ++w.lgkm.issued;
  for_active(w, [&](int l) {
    const u32 from = (address[l] + static_cast<u32>(op.offset)) / 4 % wave_lanes;
    w.v[op.arg[0].reg][l] = w.exec() >> from & 1 ? data[from] : 0;
  });
  mark_pending(w, op.arg[0], false, true);
}
/// ds_permute: lane l writes to lane (address / 4) % 64; the highest lane wins, lanes nobody wrote get 0.
void run_permute(Wave& w, const Op& op) {
  const Wave::Row address = w.v[op.arg[1].reg], data = w.v[op.arg[2].reg];
  Wave::Row made{};
  ++w.lgkm.issued;
  for_active(w, [&](int l) { made[(address[l] + static_cast<u32>(op.offset)) / 4 % wave_lanes] = data[l]; });
  for_active(w, [&](int l) { w.v[op.arg[0].reg][l] = made[l]; });
  mark_pending(w, op.arg[0], false, true);
}
/// ds_swizzle: quad permutation (bit 15), or and / or / xor masks of five bits on the lane number inside 32 lanes.
void run_swizzle(Wave& w, const Op& op) {  // vdst, vdata
  const Wave::Row data = w.v[op.arg[1].reg];
  const u32 control = op.simm16();
  if (control >= 0xc000u) throw Error("FFT and rotate swizzles are not simulated");
  ++w.lgkm.issued;
  for_active(w, [&](int l) {
    const u32 lane = static_cast<u32>(l);
    u32 from;
    if (control >> 15)
      from = (lane & ~3u) | (control >> 2 * (lane & 3u) & 3u);
    else
      from = (lane & 32u) | ((((lane & 31u) & control) | (control >> 5)) ^ (control >> 10)) % 32;
    w.v[op.arg[0].reg][l] = w.exec() >> from & 1 ? data[from] : 0;
  });
  mark_pending(w, op.arg[0], false, true);
}

}  // namespace

void add_lds_instructions(InstructionTable& t, Arch arch) {
  const auto add = [&t](const std::string& name, Handler run, bool fills, Access access = {}) {
    t[name] = {.run = run, .cls = Class::lds, .fills_first = fills, .parameter = access.pack()};
  };
  for (const auto& [name, bytes] : {std::pair{"b32", 4u}, {"b64", 8u}, {"b96", 12u}, {"b128", 16u}}) {
    add(std::string("ds_read_") + name, run_read, true, {bytes});
    add(std::string("ds_write_") + name, run_write, false, {bytes});
  }
  if (arch == Arch::gfx950) {
    add("ds_read_b64_tr_b16", run_read_transposed<16>, true);
    add("ds_read_b64_tr_b8", run_read_transposed<8>, true);
    add("ds_read_b64_tr_b4", run_read_transposed<4>, true);
    add("ds_read_b96_tr_b6", run_read_transposed<6>, true);
  }
  add("ds_read_u8", run_read, true, {1});
  add("ds_read_i8", run_read, true, {1, true});
  add("ds_read_u16", run_read, true, {2});
  add("ds_read_i16", run_read, true, {2, true});
  add("ds_read_u8_d16", run_read, true, {1, false, true});
  add("ds_read_u8_d16_hi", run_read, true, {1, false, true, true});
  add("ds_read_u16_d16", run_read, true, {2, false, true});
  add("ds_read_u16_d16_hi", run_read, true, {2, false, true, true});
  add("ds_write_b8", run_write, false, {1});
  add("ds_write_b16", run_write, false, {2});
  add("ds_write_b8_d16_hi", run_write, false, {1, false, true, true});
  add("ds_write_b16_d16_hi", run_write, false, {2, false, true, true});
  add("ds_read2_b32", run_read2<4, 4>, true);
  add("ds_read2_b64", run_read2<8, 8>, true);
  add("ds_read2st64_b32", run_read2<4, 256>, true);
  add("ds_read2st64_b64", run_read2<8, 512>, true);
  add("ds_write2_b32", run_write2<4, 4>, false);
  add("ds_write2_b64", run_write2<8, 8>, false);
  add("ds_write2st64_b32", run_write2<4, 256>, false);
  add("ds_write2st64_b64", run_write2<8, 512>, false);
  add("ds_bpermute_b32", run_bpermute, true);
  add("ds_permute_b32", run_permute, true);
  add("ds_swizzle_b32", run_swizzle, true);
  add_lds_atomics(t);
}

}  // namespace tilewave::sim
