// SPDX-License-Identifier: MIT
#include "tools/tilewave/gpu/wait.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

/// Locks the GPU among all that use this command on the host; -1 if another has it.
int take(const std::string& tool, int index) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("tilewave-{}-{}.lock", tool, index);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0666);
  if (fd < 0) throw Error(Exit::failed, "cannot write " + path.string());
  ::fchmod(fd, 0666);  // of whoever comes next; umask took it away
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

std::string reasons(const GpuList& list, const std::vector<std::string>& allowed) {
  std::vector<std::string> words;
  for (const Gpu& gpu : list.gpus) {
    if (!allowed.empty() && !contains(allowed, std::to_string(gpu.index)) && !contains(allowed, gpu.uuid)) continue;
    const std::string busy = why_busy(gpu);
    words.push_back(fmt::format("GPU {}: {}", gpu.index, busy.empty() ? "taken or in flux" : busy));
  }
  return words.empty() ? "none is allowed by " + list.variable : join(words, "; ");
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

BoundGpu wait_for_gpu(const GpuWait& wait) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const GpuList before = ask_gpus();
    sleep_for(wait.gap_s);
    const GpuList all = ask_gpus();
    GpuList now = all;
    const auto allowed = allowed_gpus(now);
    while (const auto gpu = idlest(before, now, allowed)) {
      if (const int lock = take(now.tool, gpu->index); lock >= 0)
        return {*gpu, now.tool, now.variable, bound_value(all, *gpu), lock};
      std::erase_if(now.gpus, [&](const Gpu& g) { return g.index == gpu->index; });
    }
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double left = wait.limit_s - waited;
    if (left <= 0) {
      throw Error(Exit::no_gpu, fmt::format("no idle GPU within {:.0f} s: {}", wait.limit_s, reasons(before, allowed)));
    }
    const double pause = std::min(wait.retry_s, left);  // the last look is at the limit
    fmt::print(stderr, "tilewave: no idle GPU ({}); again in {:.0f} s, for another {:.0f} s\n",
               reasons(before, allowed), pause, left);
    sleep_for(pause);
  }
}

}  // namespace tilewave::tool
