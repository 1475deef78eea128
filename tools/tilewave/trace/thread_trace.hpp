// SPDX-License-Identifier: MIT
// A thread trace as rocprofv3 --att decodes it: the folder ui_output_agent_<AGENT>_dispatch_<N> with code.json, se*_wv*.json
// and the rest.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

/// One row of code.json, or of a page of ncu.
struct Instruction {
  std::string text, source;   // "v_mfma_...", "kernel.hpp:81" or empty
  std::string kind, at;       // of ncu: what it waits for, and where it is; else empty
  std::uint64_t address = 0;  // in its code object; of an instruction outside of all (code object 0) in memory
  std::int64_t line = 0, code_object = 0, hits = 0, latency = 0, stall = 0, idle = 0;  // cycles of all hits
};

// The numbers are those of the profiler's own enum (rocprofiler_thread_trace_decoder_wstate_type_t); others have
// shifted names.
inline constexpr std::array<const char*, 5> wave_states{"EMPTY", "IDLE", "EXEC", "WAIT", "STALL"};

struct Wave {
  std::int64_t duration = 0, instructions = 0;
  std::array<std::int64_t, 5> states{};  // cycles
};

struct ThreadTrace {
  std::string kernel, version;
  std::string unit = "cycles";  // of latency and stall
  std::vector<Instruction> code;
  std::vector<Wave> waves;
  std::vector<std::string> files;  // that were read
  std::array<std::int64_t, 5> states{};
  std::int64_t latency = 0, stall = 0;
  std::size_t mapped = 0;  // instructions with a source line
};

/// Returns what a stalled instruction waits for, by its mnemonic: VMEM-wait, LDS/SMEM-wait, EXP-wait, waitcnt, barrier,
/// VMEM-load, VMEM-store, LDS, SMEM, MFMA/FMA or other.
const char* stall_class(std::string_view instruction);

/// Returns what it waits for when it stalls: the profiler's word, or else its class.
std::string kind_of(const Instruction& i);

/// Refuse what is no such file: rows that are not of ten fields, negative counts, states that the enum does not have.
ThreadTrace parse_code(std::string_view json, const std::string& source);
Wave parse_wave(std::string_view json, const std::string& source);

/// The whole folder. Refuses one without waves: an empty shell.
ThreadTrace read_thread_trace(const std::string& folder);

struct HotSpot {
  std::string what, kind;  // an instruction or a source line; its (dominant) stall class
  std::int64_t line = 0, hits = 0, latency = 0, stall = 0;
  // The address of an instruction and its neighbours, since many look alike.
  std::string address{}, source{};
  std::vector<std::string> before{}, after{};
};

/// Instructions [begin, end) that are a kernel's prologue, its loop or what follows it.
struct Part {
  const char* name;
  std::size_t begin, end;
};
/// The loop is from the first to the last instruction that ran twice as often as the kernel's first, or more; a kernel
/// without such is one part.
std::vector<Part> parts_of(const ThreadTrace& trace);

/// Most stall cycles first.
std::vector<HotSpot> by_instruction(const ThreadTrace& trace, std::size_t most, std::size_t begin = 0,
                                    std::size_t end = SIZE_MAX);
std::vector<HotSpot> by_source(const ThreadTrace& trace, std::size_t most);
std::map<std::string, std::int64_t> stalls_by_class(const ThreadTrace& trace);

}  // namespace tilewave::tool
