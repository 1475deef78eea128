// SPDX-License-Identifier: MIT
// A fiber: one lane's stack and saved registers, known to ASan and TSan when they are on.
//
// ThreadSanitizer sees one "thread" per fiber, and a switch orders nothing (no-sync flag): only barriers, collectives
// and the launch itself do, so a race between two lanes is reported although the lanes never run at the same time.
// For that, the room's own bookkeeping must stay invisible: every function that touches it is TILEWAVE_HOST_UNTRACKED.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

// Other processors switch with Boost.Context; define the macro to have it on x86-64 as well.
#if !defined(__x86_64__) && !defined(TILEWAVE_HOST_BOOST_CONTEXT)
#define TILEWAVE_HOST_BOOST_CONTEXT 1
#endif
#if defined(TILEWAVE_HOST_BOOST_CONTEXT)
#include <boost/context/detail/fcontext.hpp>
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TILEWAVE_HOST_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define TILEWAVE_HOST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TILEWAVE_HOST_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TILEWAVE_HOST_ASAN 1
#endif

#if defined(TILEWAVE_HOST_TSAN)
#include <sanitizer/tsan_interface.h>
// It is not inlined: inlined into a kernel, the body would be instrumented with it.
#define TILEWAVE_HOST_UNTRACKED __attribute__((no_sanitize("thread"), noinline))
#else
#define TILEWAVE_HOST_UNTRACKED
#endif
#if defined(TILEWAVE_HOST_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tilewave::host {

#if defined(TILEWAVE_HOST_TSAN)
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif

/// These are happens-before edges for TSan, and nothing otherwise: everything before a release on `point` is before
/// everything after an acquire on it.
inline void order_release([[maybe_unused]] void* point) {
#if defined(TILEWAVE_HOST_TSAN)
  __tsan_release(point);
#endif
}
inline void order_acquire([[maybe_unused]] void* point) {
#if defined(TILEWAVE_HOST_TSAN)
  __tsan_acquire(point);
#endif
}

inline std::size_t page_bytes() {
  static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Anonymous memory between two inaccessible pages. The system supplies pages on first touch, so a terabyte mapping is
/// as cheap as a page.
struct GuardedPages {
  std::byte* begin = nullptr;  // first usable byte
  std::size_t bytes = 0;       // usable bytes, a multiple of the page

  std::byte* end() const { return begin + bytes; }

  /// Returns false, and changes nothing, when the system has no address space left.
  bool map(std::size_t wanted) {
    const std::size_t page = page_bytes();
    if (wanted > ~std::size_t{0} - 4 * page) return false;
    const std::size_t usable = (wanted + page - 1) / page * page;
    void* base = mmap(nullptr, usable + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    std::byte* const first = static_cast<std::byte*>(base) + page;
    if (usable != 0 && mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) {
      munmap(base, usable + 2 * page);
      return false;
    }
    begin = first;
    bytes = usable;
    return true;
  }
  void unmap() {
    if (begin != nullptr) munmap(begin - page_bytes(), bytes + 2 * page_bytes());
    begin = nullptr;
    bytes = 0;
  }
};

/// A context to switch to. The context of the thread itself has no stack of its own here.
struct Fiber {
  void* context = nullptr;            // the point at which it continues, valid while it does not run
  const void* stack_begin = nullptr;  // lowest address
  std::size_t stack_bytes = 0;
  [[maybe_unused]] void* tsan = nullptr;
  [[maybe_unused]] void* asan_fake_stack = nullptr;
};

namespace detail {

#if defined(TILEWAVE_HOST_BOOST_CONTEXT)

TILEWAVE_HOST_UNTRACKED inline void left(boost::context::detail::transfer_t from) {
  static_cast<Fiber*>(from.data)->context = from.fctx;
}
template <void (*entry)()>
void* make_context(std::byte* top, std::size_t bytes) {
  return boost::context::detail::make_fcontext(top, bytes, [](boost::context::detail::transfer_t from) {
    left(from);
    entry();
  });
}
TILEWAVE_HOST_UNTRACKED inline void switch_context(Fiber& from, Fiber& to) {
  left(boost::context::detail::jump_fcontext(to.context, &from));
}

#else

// x86-64 has a switch of its own: with it a barrier costs half of what it costs with fcontext. It leaves the
// floating-point control words alone, which no kernel changes. It has no jump but its `ret`, so the processor's return
// predictor, which sees lane after lane take the same path, stays right.
template <void (*entry)()>
TILEWAVE_HOST_UNTRACKED void* make_context(std::byte* top, std::size_t) {
  constexpr int registers = 6;
  std::uintptr_t* const words = reinterpret_cast<std::uintptr_t*>(top);  // 16-byte aligned
  words[-1] = 0;                                                         // no return address, so a backtrace ends here
  words[-2] = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 1; i <= registers; ++i) words[-2 - i] = 0;
  return words - 2 - registers;
}
static_assert(offsetof(Fiber, context) == 0, "the arguments of a switch point to the contexts");
// Its body is all there is: no frame, and the registers that a caller expects to find again. Other registers belong to
// the caller, which must not learn that few of them are used (hence noipa).
#if defined(__clang__)
__attribute__((naked, noinline, no_sanitize("thread")))
#else
__attribute__((naked, noipa, no_sanitize("thread")))
#endif
inline void
switch_context(Fiber&, Fiber&) {
  asm("pushq %rbp\n"
      "pushq %rbx\n"
      "pushq %r12\n"
      "pushq %r13\n"
      "pushq %r14\n"
      "pushq %r15\n"
      "movq %rsp, (%rdi)\n"
      "movq (%rsi), %rsp\n"
      "popq %r15\n"
      "popq %r14\n"
      "popq %r13\n"
      "popq %r12\n"
      "popq %rbx\n"
      "popq %rbp\n"
      "ret\n");
}

#endif

#if defined(TILEWAVE_HOST_ASAN)
inline thread_local constinit Fiber* switched_from = nullptr;
#endif
/// This is the second half of a switch, on the stack that was switched to.
inline void arrived([[maybe_unused]] void* fake_stack) {
#if defined(TILEWAVE_HOST_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack, &switched_from->stack_begin, &switched_from->stack_bytes);
#endif
}

}  // namespace detail

/// Runs `to`. It returns when something switches back to `from`, the fiber that is running now.
#if !defined(TILEWAVE_HOST_TSAN)
__attribute__((always_inline))
#endif
TILEWAVE_HOST_UNTRACKED inline void
switch_fiber(Fiber& from, Fiber& to) {
#if defined(TILEWAVE_HOST_ASAN)
  detail::switched_from = &from;
  __sanitizer_start_switch_fiber(&from.asan_fake_stack, to.stack_begin, to.stack_bytes);
#endif
#if defined(TILEWAVE_HOST_TSAN)
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  detail::switch_context(from, to);
  detail::arrived(from.asan_fake_stack);
}

/// Initialises the fiber of the calling thread, so that others can switch back to it.
TILEWAVE_HOST_UNTRACKED inline void adopt_thread([[maybe_unused]] Fiber& fiber) {
#if defined(TILEWAVE_HOST_TSAN)
  fiber.tsan = __tsan_get_current_fiber();
#endif
}

/// A fiber with its own stack.
class LaneStack {
 public:
  // An unoptimised or instrumented kernel body keeps every temporary in its frame. Only touched pages take memory.
  static constexpr std::size_t bytes = 252 * 1024;

  Fiber fiber;

  LaneStack() = default;
  LaneStack(const LaneStack&) = delete;
  LaneStack& operator=(const LaneStack&) = delete;
  ~LaneStack() {
    forget();
    pages_.unmap();
  }

  bool map() { return pages_.map(bytes); }

  /// Starts the fiber anew and drops whatever it was doing (no destructors run). `entry` never returns, and its first
  /// statement is LaneStack::entered(). Stacks whose tops had equal page offsets would compete for the same few cache
  /// sets, so `colour` shifts the top by whole cache lines.
  template <void (*entry)()>
  TILEWAVE_HOST_UNTRACKED void restart(int colour) {
    forget();
    std::byte* const top = pages_.end() - (colour % 60) * 64;
    fiber = Fiber{};
    fiber.stack_begin = pages_.begin;
    fiber.stack_bytes = static_cast<std::size_t>(top - pages_.begin);
#if defined(TILEWAVE_HOST_ASAN)
    __asan_unpoison_memory_region(pages_.begin, pages_.bytes);
#endif
#if defined(TILEWAVE_HOST_TSAN)
    fiber.tsan = __tsan_create_fiber(0);
#endif
    fiber.context = detail::make_context<entry>(top, fiber.stack_bytes);
  }

  /// Orders everything that the stopped fiber did so far before whatever follows an acquire on `point`.
  TILEWAVE_HOST_UNTRACKED void release_to([[maybe_unused]] void* point) {
#if defined(TILEWAVE_HOST_TSAN)
    void* const running = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.tsan, __tsan_switch_to_fiber_no_sync);
    __tsan_release(point);
    __tsan_switch_to_fiber(running, __tsan_switch_to_fiber_no_sync);
#endif
  }

  static void entered() { detail::arrived(nullptr); }

 private:
  void forget() {
#if defined(TILEWAVE_HOST_TSAN)
    if (fiber.tsan != nullptr) __tsan_destroy_fiber(fiber.tsan);
    fiber.tsan = nullptr;
#endif
  }
  GuardedPages pages_;
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
