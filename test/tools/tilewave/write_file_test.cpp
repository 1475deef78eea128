// SPDX-License-Identifier: MIT
// What a tool writes takes the place of an ordinary file and of nothing else.
#include "tools/tilewave/common/write_file.hpp"

#include <sys/sysmacros.h>

#include <thread>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/text.hpp"

namespace write_file_tests {
namespace {
using namespace tilewave::tool;
using tilewave::test::status_of;
namespace fs = std::filesystem;

struct Folder {
  explicit Folder(const std::string& name)
      : path(fs::temp_directory_path() / ("tilewave_write_file_" + name + std::to_string(::getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};
}  // namespace

TEST_CASE("a fifo is written through and stays a fifo") {
  const Folder folder("fifo");
  const fs::path fifo = folder.path / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const std::string content(100000, 'x');  // more than a pipe holds
  std::string got;
  std::thread reader([&] { got = read_file(fifo.string()); });
  write_atomically(fifo, content);
  const bool stays = fs::is_fifo(fifo);
  if (!stays) reader.detach();  // who waits for what never comes
  REQUIRE(stays);
  reader.join();
  CHECK(got == content);
}

TEST_CASE("a link stays a link, and what it points to is written") {
  const Folder folder("link");
  write_atomically(folder.path / "file", "before");
  fs::permissions(folder.path / "file", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("file", folder.path / "link");
  fs::create_symlink("link", folder.path / "second");
  write_atomically(folder.path / "second", "after");
  CHECK(fs::read_symlink(folder.path / "second") == "link");
  CHECK(fs::read_symlink(folder.path / "link") == "file");
  CHECK(read_file((folder.path / "file").string()) == "after");
  CHECK(fs::status(folder.path / "file").permissions() == (fs::perms::owner_read | fs::perms::owner_write));

  fs::create_symlink("not_yet", folder.path / "dangling");
  write_atomically(folder.path / "dangling", "new");
  CHECK(fs::is_symlink(folder.path / "dangling"));
  CHECK(read_file((folder.path / "not_yet").string()) == "new");

  fs::create_symlink("/dev/null", folder.path / "null");
  write_atomically(folder.path / "null", "nowhere");
  CHECK(fs::read_symlink(folder.path / "null") == "/dev/null");
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("a device stays a device, and one that takes nothing is a failure") {
  const Folder folder("device");
  const fs::path device = folder.path / "device";
  if (::mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0 && ::open(device.c_str(), O_WRONLY) >= 0) {
    write_atomically(device, "nowhere");
    CHECK(fs::is_character_file(device));
  }
  if (fs::is_character_file("/dev/full")) {
    fs::create_symlink("/dev/full", folder.path / "full");
    CHECK(status_of([&] { write_atomically(folder.path / "full", "too much"); }) == Exit::failed);
  }
  CHECK(status_of([&] { write_atomically(folder.path, "a folder"); }) == Exit::failed);
}

TEST_CASE("an ordinary file is replaced as a whole, and nothing is left beside it") {
  const Folder folder("file");
  const fs::path file = folder.path / "new/file";
  write_atomically(file, "first");
  const fs::path kept = folder.path / "new/kept";
  fs::create_hard_link(file, kept);  // whoever has it open reads on
  write_atomically(file, "second");
  CHECK(read_file(kept.string()) == "first");
  CHECK(read_file(file.string()) == "second");
  CHECK(std::distance(fs::directory_iterator(folder.path / "new"), {}) == 2);
  CHECK(status_of([&] { write_atomically(file / "below", "x"); }) == Exit::failed);
}

}  // namespace write_file_tests
