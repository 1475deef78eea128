// SPDX-License-Identifier: MIT
// A room whose launches take a kernel's machine code from the code objects of test/isa, where one of those that gate every
// change has it: clang takes up to a second for a kernel, and would make the same instructions of it again. CODE_OBJECTS is their
// folder. Where it is not defined, as for the label full, all kernels are compiled.
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave::test {

/// Where a kernel is: in CODE_OBJECTS/<list>_<chip>_<number>.co, under a name of test/isa that has one index or two.
struct ObjectKernel {
  const char* list = nullptr;  // null: in no code object
  int number = -1;             // -1: the list has one object, and the file's name no number
  const char* name = nullptr;
  int indices[2] = {-1, -1};
  char index_type = 'i';  // as compilers write it
};
/// An op's header beside this one says where its kernels are.
template <class Kernel>
inline constexpr ObjectKernel object_kernel{};

#ifndef CODE_OBJECTS

template <class Room>
using CodeObjects = Room;

#else

inline std::string file_of(const ObjectKernel& kernel, ArchId arch) {
  const std::string number = kernel.number < 0 ? "" : "_" + std::to_string(kernel.number);
  return CODE_OBJECTS "/" + std::string(kernel.list) + "_" + std::string(name_of(arch)) + number + ".co";
}
/// Returns the symbol of entry<Kernel> as compilers make it.
inline std::string symbol_of(const ObjectKernel& kernel, ArchId arch) {
  const std::string name = kernel.name;
  std::string symbol =
      "_ZN8tilewave6" + std::string(name_of(arch)) + "5entryINS0_" + std::to_string(name.size()) + name + "I";
  for (const int index : kernel.indices)
    if (index >= 0) symbol += std::string("L") + kernel.index_type + std::to_string(index) + "E";
  return symbol + "EEEEvNT_4ArgsE";
}

/// Finds the kernel in its code object, which is loaded once; null, and a line on stderr, if either is not there.
inline hipFunction_t load_kernel(const ObjectKernel& kernel, ArchId arch) {
  static std::map<std::string, hipModule_t> modules;
  const std::string file = file_of(kernel, arch), symbol = symbol_of(kernel, arch);
  hipModule_t& module = modules[file];
  hipFunction_t function = nullptr;
  if ((module == nullptr && hipModuleLoad(&module, file.c_str()) != hipSuccess) ||
      hipModuleGetFunction(&function, module, symbol.c_str()) != hipSuccess) {
    std::fprintf(stderr, "%s: no kernel %s\n", file.c_str(), symbol.c_str());
  }
  return function;
}

template <class Room>
struct CodeObjects : Room {
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, hipStream_t stream) {
    static constexpr ObjectKernel kernel = object_kernel<K>;
    if constexpr (kernel.list == nullptr) {
      return Room::template launch<K>(shape, args, stream);
    } else {
      if (Status s = check_launch(shape, Room::facts); !s.ok()) return s;
      if (shape.grid == 0) return {};
      static const hipFunction_t function = load_kernel(kernel, Room::facts.id);
      if (function == nullptr) return {StatusCode::launch_failed, "its code object does not have the kernel"};
      void* arguments[] = {const_cast<void*>(static_cast<const void*>(&args))};
      const hipError_t error =
          hipModuleLaunchKernel(function, static_cast<unsigned>(shape.grid), 1, 1, static_cast<unsigned>(shape.block),
                                1, 1, 0, stream, arguments, nullptr);
      if (error != hipSuccess) return {StatusCode::launch_failed, hipGetErrorString(error)};
      return {};
    }
  }
};

#endif

}  // namespace tilewave::test
