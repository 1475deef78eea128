// SPDX-License-Identifier: MIT
// Launching a small kernel in the simulator from a test.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "sim/machine/machine.hpp"

namespace tilewave::sim::test {

/// Code objects are compiled by the build; these come from the command line of the compiler that built the tests.
inline const CodeObject& code_object(const std::string& name, Arch arch) {
  static std::map<std::string, CodeObject> loaded;
  const std::string file = name + (arch == Arch::gfx942 ? "_gfx942.co" : "_gfx950.co");
  if (!loaded.contains(file)) loaded[file] = load_code_object(ISA_SIM_KERNELS "/" + file, ISA_SIM_OBJDUMP);
  return loaded.at(file);
}

/// Arguments and buffers of one launch. Results are read back from the vectors that were passed.
class Toy {
 public:
  explicit Toy(Arch arch, std::string code = "toys") : object_(code_object(code, arch)) {}

  template <class T>
  Toy& in(const std::vector<T>& values) {
    copies_.emplace_back(reinterpret_cast<const std::uint8_t*>(values.data()),
                         reinterpret_cast<const std::uint8_t*>(values.data() + values.size()));
    return pointer(copies_.back().data(), copies_.back().size(), false);
  }
  template <class T>
  Toy& out(std::vector<T>& values) {
    return pointer(reinterpret_cast<std::uint8_t*>(values.data()), values.size() * sizeof(T), true);
  }
  Toy& value(int x) {
    append(&x, sizeof x);
    return *this;
  }
  Counts run(const std::string& kernel, std::array<std::uint32_t, 3> grid = {1, 1, 1},
             std::array<std::uint32_t, 3> block = {64, 1, 1}, MachineOptions options = {}) {
    return run_launch(object_, {kernel + ".kd", grid, block, 0, kernarg_}, memory_, options);
  }

 private:
  void append(const void* bytes, std::size_t size) {
    while (kernarg_.size() % size) kernarg_.push_back(0);
    const auto* from = static_cast<const std::uint8_t*>(bytes);
    kernarg_.insert(kernarg_.end(), from, from + size);
  }
  Toy& pointer(std::uint8_t* data, std::size_t size, bool writable) {
    const std::uint64_t address = memory_.map("buffer " + std::to_string(memory_.count()), data, size, writable);
    append(&address, sizeof address);
    return *this;
  }

  const CodeObject& object_;
  Memory memory_;
  std::deque<std::vector<std::uint8_t>> copies_;
  std::vector<std::uint8_t> kernarg_;
};

/// A reproducible stream of 32-bit patterns (Steele, Lea, Flood 2014, "splitmix64").
class Patterns {
 public:
  explicit Patterns(std::uint64_t seed) : state_(seed) {}
  std::uint32_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return static_cast<std::uint32_t>(z >> 32);
  }
  float unit() { return static_cast<float>(next() >> 8) * 0x1p-23f - 1.0f; }  // [-1, 1)

 private:
  std::uint64_t state_;
};

}  // namespace tilewave::sim::test
