// SPDX-License-Identifier: MIT
// Each fault is found and named, and the twin without it passes.
#include "test/catch_compat.hpp"
#include "toy.hpp"

namespace faults_tests {
namespace {

using namespace tilewave::sim;
using namespace tilewave::sim::test;

constexpr Arch both[] = {Arch::gfx942, Arch::gfx950};

struct Outcome {
  std::string error;  // empty when the launch went through
  std::vector<int> out;
};

Outcome launch(Arch arch, const std::string& kernel, std::uint32_t threads = 64, MachineOptions options = {}) {
  std::vector<int> in(threads + (kernel.starts_with("load_") ? 0 : 1));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(100 + i);
  Outcome outcome;
  outcome.out.assign(threads, -1);
  try {
    Toy(arch, "faults").in(in).out(outcome.out).run(kernel, {1, 1, 1}, {threads, 1, 1}, options);
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

/// The launch fails, and its message holds every one of the words.
void fails(const std::string& kernel, std::initializer_list<std::string> words, std::uint32_t threads = 64,
           MachineOptions options = {}) {
  for (const Arch arch : both) {
    const Outcome outcome = launch(arch, kernel, threads, options);
    INFO(kernel << ": " << outcome.error);
    CHECK(!outcome.error.empty());
    for (const std::string& word : words) {
      INFO("expected: " << word);
      CHECK(outcome.error.find(word) != std::string::npos);
    }
  }
}
template <class F>
void passes(const std::string& kernel, F expected, std::uint32_t threads = 64) {
  for (const Arch arch : both) {
    const Outcome outcome = launch(arch, kernel, threads);
    INFO(kernel);
    CHECK(outcome.error == "");
    int wrong = 0;
    for (std::uint32_t i = 0; i < threads; ++i) wrong += outcome.out[i] != expected(static_cast<int>(i));
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("a missing wait is reported") {
  fails("vector_load_unwaited", {"missing wait: v", "vmcnt", "v_add_u32", "block (0, 0, 0) wave 0 at 0x"});
  passes("vector_load_waited", [](int i) { return 101 + i; });
  fails("second_load_unwaited", {"missing wait: v", "vmcnt"});
  passes("first_load_waited", [](int i) { return 101 + i; });
  fails("loads_fill_the_counter", {"missing wait: v", "vmcnt"});
  passes("loads_overflow_the_counter", [](int i) { return 101 + i; });
  fails("scalar_load_unwaited", {"missing wait: s", "lgkmcnt", "s_add_u32"});
  passes("scalar_load_waited", [](int) { return 101; });
  fails("scalar_load_counted", {"missing wait: s", "lgkmcnt"});
  fails("lds_read_unwaited", {"missing wait: v", "lgkmcnt"});
}

TEST_CASE("LDS exchanged between waves without order is reported") {
  for (const bool reverse : {false, true}) {
    fails("exchange_without_barrier", {"LDS race", "since the last barrier"}, 256, {.reverse = reverse});
    fails("exchange_unwaited", {"LDS race", "ds_read", "s_waitcnt"}, 256, {.reverse = reverse});
  }
  fails("exchange_overwritten", {"LDS race", "ds_write", "read by another wave"}, 256);
  fails("exchange_overwritten", {"LDS race", "ds_read", "written by wave 1"}, 256, {.reverse = true});
  fails("broadcast_late_barrier", {"LDS race", "ds_read", "written by wave 0"}, 256);
  fails("broadcast_late_barrier", {"LDS race", "ds_write", "read by another wave"}, 256, {.reverse = true});
  passes(
      "broadcast_right", [](int i) { return 100 + i % 64; }, 256);
  passes(
      "exchange_right", [](int i) { return 100 + (i ^ 64); }, 256);
}

TEST_CASE("a copy to LDS is only there after its wait") {
  fails("direct_copy_unwaited", {"LDS race", "global-to-LDS copy"});
  passes("direct_copy_waited", [](int i) { return 100 + i; });
  fails("copy_address_unwaited", {"missing wait: v", "vmcnt", "buffer_load_dword", "lds"});
}

TEST_CASE("a read of LDS is done at its wait, not at the barrier behind it") {
  for (const bool reverse : {false, true}) {
    fails("copy_over_read", {"LDS race", "global_load_lds", "was read by wave 0", "behind the barrier"}, 128,
          {.reverse = reverse});
    fails("write_over_read", {"LDS race", "ds_write", "was read by wave 0", "behind the barrier"}, 128,
          {.reverse = reverse});
  }
  fails("copy_over_own_read", {"LDS race", "global_load_lds", "read by this wave", "lgkmcnt"});
  const auto first_wave = [](int i) { return 100 + i % 64; };
  passes("copy_over_waited_read", first_wave, 128);
  passes("write_over_waited_read", first_wave, 128);
  passes("copy_over_own_waited_read", first_wave);
}

TEST_CASE("accesses outside memory are reported with lane and address") {
  fails("load_past_end",
        {"lane 63", "global_load_dword", "outside every buffer", "nearest is buffer 0: offset 256 of 256"});
  fails("load_across_end", {"lane 63", "global_load_dwordx2", "(8 bytes)", "offset 252 of 256"});
  fails("store_to_input", {"lane 0", "buffer 0, which is read-only"});
  fails("lds_past_end", {"LDS address 4096", "outside the block's 0 bytes"});
}

TEST_CASE("what is not simulated stops the run when it is executed") {
  fails("unknown_instruction", {"unknown instruction v_sad_hi_u8"});
  fails("unknown_modifier", {"clamp", "v_add_u32"});
  fails("trap", {"the kernel trapped"});
  fails("endless", {"does not end", "s_branch"}, 64, {.max_wave_instructions = 10000});
  fails("register_beyond", {"v_mov_b32", "register beyond"});
}

TEST_CASE("a launch that does not fit the kernel is refused") {
  for (const Arch arch : both) {
    std::vector<int> out(64);
    CHECK_THROWS_AS(Toy(arch, "faults").out(out).run("endless"), Error);  // one argument short
    CHECK_THROWS_AS(Toy(arch, "faults").out(out).out(out).run("no_such_kernel"), Error);
    CHECK_THROWS_AS(Toy(arch, "faults").out(out).out(out).run("endless", {1, 1, 1}, {2048, 1, 1}), Error);
  }
}

}  // namespace faults_tests
