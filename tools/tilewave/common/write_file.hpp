// SPDX-License-Identifier: MIT
// The one way in which the tools, the simulator and the benchmarks write a whole file. What is no ordinary file keeps its kind: a device, a
// fifo and what a link points to are written through, never replaced, so that --out /dev/null leaves the machine its device.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace tilewave::tool {

namespace detail {

inline bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = ::write(fd, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

/// Closes, and keeps the error of what came before.
inline bool closed(int fd, bool good) {
  const int why = errno;
  const bool closes = ::close(fd) == 0;
  if (!good) errno = why;
  return good && closes;
}

inline bool write_through(const std::string& path, std::string_view content, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644);
  return fd >= 0 && closed(fd, write_all(fd, content));
}

/// A file beside it takes its place; `was` is the file that goes, or null.
inline bool replace_file(const std::filesystem::path& path, std::string_view content, const struct stat* was) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::string temporary = (folder / ("." + path.filename().string() + ".XXXXXX")).string();
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return false;
  // Its owner is kept where that is allowed, and before its mode, which a change of owner may reduce.
  if (was != nullptr && (was->st_uid != ::geteuid() || was->st_gid != ::getegid()))
    static_cast<void>(::fchown(fd, was->st_uid, was->st_gid) == 0);
  bool good = ::fchmod(fd, was != nullptr ? was->st_mode & 07777 : 0644) == 0 && write_all(fd, content);
  good = closed(fd, good && ::fsync(fd) == 0) && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (!good) {
    const int why = errno;
    ::unlink(temporary.c_str());
    errno = why;
    return false;
  }
  const int in = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (in < 0) return true;  // not every file system has it
  ::fsync(in);
  ::close(in);
  return true;
}

}  // namespace detail

/// Writes all of a file, or says why not; empty: done. An ordinary file is replaced as a whole: another process, or this one after a kill at
/// any moment, sees it as before or as after. Of a link that is what it points to. Anything else that exists (a device, a
/// fifo, all of /dev and /proc) is written to as it is; a folder is refused. Folders that are missing are made.
inline std::string write_whole_file(const std::filesystem::path& path, std::string_view content) {
  const std::string name = path.string();
  struct stat there {};
  const bool exists = ::stat(name.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) return "it is a folder";
  const auto why = [](bool good) { return good ? std::string() : std::string(std::strerror(errno)); };
  // /dev/stdout may be an ordinary file that others have open too: the shell, with `>`.
  const bool special = name.starts_with("/dev/") || name.starts_with("/proc/");
  if (exists && (special || !S_ISREG(there.st_mode))) return why(detail::write_through(name, content, 0));
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    if (!exists) return why(detail::write_through(name, content, O_CREAT | O_TRUNC));
    const std::unique_ptr<char, void (*)(void*)> target(::realpath(name.c_str(), nullptr), std::free);
    return target == nullptr ? why(false) : why(detail::replace_file(target.get(), content, &there));
  }
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  return why(detail::replace_file(path, content, exists ? &there : nullptr));
}

}  // namespace tilewave::tool
