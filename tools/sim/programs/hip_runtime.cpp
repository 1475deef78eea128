// SPDX-License-Identifier: MIT
// libtilewave_sim_hip.so: the HIP runtime functions of core/hip.hpp over the simulator. A HIP program built for gfx942 or gfx950
// runs on a machine without a GPU when this is preloaded or linked instead of libamdhip64: device memory is host memory,
// streams are synchronous, launches execute the program's own embedded machine code. Nothing is timed.
//   ISA_SIM_ARCH      gfx942 or gfx950 (default: the first in the program)
//   ISA_SIM_OBJDUMP   llvm-objdump to disassemble with
//   ISA_SIM_THREADS   blocks simulated at a time (default 2)
#include <hip/hip_runtime_api.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "sim/programs/launch_file.hpp"

namespace {

using namespace tilewave::sim;
using Step = std::function<hipError_t()>;
using Steps = std::vector<Step>;

struct Stream {
  std::unique_ptr<Steps> captured;  // while capturing
};
struct Module;
struct Kernel {
  Module* module;
  std::string name;
};
struct Module {
  DeviceImage image;
  std::unique_ptr<CodeObject> object;       // disassembled at the first launch, that of a file when it is loaded
  std::map<std::string, Kernel> functions;  // that the program asked for by name
};
struct Device {
  std::mutex mutex;
  std::vector<std::unique_ptr<Module>> modules;  // of the program itself
  std::vector<std::unique_ptr<Module>> loaded;   // from files
  std::map<const void*, Kernel> kernels;         // by host stub
  std::map<void*, std::size_t> allocations;      // bytes
};
Device& device() {
  static auto* const one = new Device;  // outlives every static destructor that frees
  return *one;
}

thread_local hipError_t last_error = hipSuccess;
hipError_t answer(hipError_t error) {
  if (error != hipSuccess) last_error = error;
  return error;
}

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

Stream* stream_of(hipStream_t stream) { return reinterpret_cast<Stream*>(stream); }

/// Do it now, or note it down while the stream is being captured.
hipError_t submit(hipStream_t stream, Step step) {
  if (stream && stream_of(stream)->captured) {
    stream_of(stream)->captured->push_back(std::move(step));
    return hipSuccess;
  }
  return answer(step());
}

/// The code object of the wanted architecture.
void read_bundle(const std::uint8_t* bundle, Module& module) {
  const std::string wanted = environment("ISA_SIM_ARCH", "");
  for (DeviceImage& image : images_of_bundle(bundle))
    if (module.image.bytes.empty() && (wanted.empty() || image.arch == wanted)) module.image = std::move(image);
}

const CodeObject& object_of(Module& module) {
  if (module.object) return *module.object;
  if (module.image.bytes.empty()) throw Error("the program holds no code for the simulated chip");
  module.object =
      std::make_unique<CodeObject>(load_image(module.image, environment("ISA_SIM_OBJDUMP", "llvm-objdump")));
  return *module.object;
}

/// The kernel argument segment: the caller's values, and the hidden ones that describe the launch.
std::vector<std::uint8_t> kernarg_of(const CodeObject& object, const Launch& launch, void** values) {
  std::vector<std::uint8_t> segment = hidden_arguments(object, launch);
  for (const KernelArgument& argument : object.arguments.at(launch.symbol))
    if (!argument.kind.starts_with("hidden_")) std::memcpy(segment.data() + argument.offset, *values++, argument.bytes);
  return segment;
}

hipError_t execute(const CodeObject& object, const Launch& launch) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  Memory memory;
  for (const auto& [pointer, bytes] : d.allocations)
    memory.map_in_place("an allocation", static_cast<std::uint8_t*>(pointer), bytes, true);
  try {
    run_launch(object, launch, memory, {.threads = std::stoi(environment("ISA_SIM_THREADS", "2"))});
    return hipSuccess;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewave-sim: %s: %s\n", launch.symbol.c_str(), error.what());
    return hipErrorLaunchFailure;
  }
}

/// Launches the kernel, now or when the stream's capture is replayed.
hipError_t queue(const Kernel& kernel, dim3 grid, dim3 block, void** values, std::size_t shared, hipStream_t stream) {
  try {
    const CodeObject& object = object_of(*kernel.module);
    Launch launch{.symbol = kernel.name + ".kd",
                  .grid_blocks = {grid.x, grid.y, grid.z},
                  .block = {block.x, block.y, block.z},
                  .dynamic_lds_bytes = static_cast<std::uint32_t>(shared),
                  .kernarg = {}};
    launch.kernarg = kernarg_of(object, launch, values);
    return submit(stream, [&object, launch] { return execute(object, launch); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewave-sim: %s: %s\n", kernel.name.c_str(), error.what());
    return answer(hipErrorLaunchFailure);
  }
}

struct CallConfiguration {
  dim3 grid, block;
  std::size_t shared;
  hipStream_t stream;
};
thread_local std::vector<CallConfiguration> configurations;

}  // namespace

extern "C" {

// Clang's generated code calls these functions.
void** __hipRegisterFatBinary(const void* wrapper) {
  auto module = std::make_unique<Module>();
  const std::uint8_t* bundle;
  std::memcpy(&bundle, static_cast<const std::uint8_t*>(wrapper) + 8, sizeof bundle);  // {magic, version, binary, ...}
  try {
    read_bundle(bundle, *module);
  } catch (const Error& error) {
    std::fprintf(stderr, "tilewave-sim: %s\n", error.what());
  }
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  d.modules.push_back(std::move(module));
  return reinterpret_cast<void**>(d.modules.back().get());
}
void __hipRegisterFunction(void** module, const void* stub, char*, const char* name, unsigned, void*, void*, void*,
                           void*, int*) {
  const std::lock_guard lock(device().mutex);
  device().kernels[stub] = {reinterpret_cast<Module*>(module), name};
}
void __hipUnregisterFatBinary(void**) {}
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, hipStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, hipStream_t* stream) {
  if (configurations.empty()) return answer(hipErrorInvalidValue);
  const CallConfiguration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid, *block = c.block, *shared = c.shared, *stream = c.stream;
  return hipSuccess;
}
hipError_t hipLaunchKernel(const void* stub, dim3 grid, dim3 block, void** values, std::size_t shared,
                           hipStream_t stream) {
  const auto kernel = device().kernels.find(stub);
  if (kernel == device().kernels.end()) return answer(hipErrorInvalidValue);
  return queue(kernel->second, grid, block, values, shared, stream);
}

/// Code objects of files, and their kernels by name.
hipError_t hipModuleLoad(hipModule_t* module, const char* path) {
  if (!module || !path) return answer(hipErrorInvalidValue);
  auto loaded = std::make_unique<Module>();
  try {
    loaded->object = std::make_unique<CodeObject>(
        load_any_object(path, environment("ISA_SIM_ARCH", ""), environment("ISA_SIM_OBJDUMP", "llvm-objdump")));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewave-sim: %s\n", error.what());
    return answer(hipErrorInvalidImage);
  }
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  d.loaded.push_back(std::move(loaded));
  return *module = reinterpret_cast<hipModule_t>(d.loaded.back().get()), hipSuccess;
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t handle, const char* name) {
  if (!function || !handle || !name) return answer(hipErrorInvalidValue);
  Module& module = *reinterpret_cast<Module*>(handle);
  if (!module.object->kernels.contains(name + std::string(".kd"))) return answer(hipErrorNotFound);
  const std::lock_guard lock(device().mutex);
  const auto kernel = module.functions.try_emplace(name, Kernel{&module, name}).first;
  return *function = reinterpret_cast<hipFunction_t>(&kernel->second), hipSuccess;
}
hipError_t hipModuleUnload(hipModule_t module) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  const auto unloaded =
      std::erase_if(d.loaded, [&](const auto& one) { return one.get() == reinterpret_cast<Module*>(module); });
  return answer(unloaded ? hipSuccess : hipErrorInvalidValue);
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                 hipStream_t stream, void** values, void** packed) {
  if (!function) return answer(hipErrorInvalidValue);
  if (packed) return answer(hipErrorNotSupported);
  return queue(*reinterpret_cast<Kernel*>(function), dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z),
               values, shared, stream);
}

const char* hipGetErrorString(hipError_t error) {
  return error == hipSuccess              ? "no error"
         : error == hipErrorLaunchFailure ? "simulated launch failed; see stderr"
         : error == hipErrorOutOfMemory   ? "out of memory"
         : error == hipErrorNotSupported  ? "not simulated"
         : error == hipErrorInvalidImage  ? "no code object that is simulated; see stderr"
         : error == hipErrorNotFound      ? "the code object has no such kernel"
                                          : "invalid argument";
}
hipError_t hipGetLastError() { return std::exchange(last_error, hipSuccess); }
hipError_t hipPeekAtLastError() { return last_error; }

hipError_t hipGetDeviceCount(int* count) { return *count = 1, hipSuccess; }
hipError_t hipGetDevice(int* id) { return *id = 0, hipSuccess; }
hipError_t hipSetDevice(int id) { return answer(id == 0 ? hipSuccess : hipErrorInvalidDevice); }
hipError_t hipDeviceSynchronize() { return hipSuccess; }
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int) {
  const bool gfx950 = !device().modules.empty() && device().modules.front()->image.arch == "gfx950";
  switch (attribute) {
    case hipDeviceAttributeMultiprocessorCount: return *value = gfx950 ? 256 : 304, hipSuccess;
    case hipDeviceAttributeWarpSize: return *value = wave_lanes, hipSuccess;
    case hipDeviceAttributeMaxThreadsPerBlock: return *value = 1024, hipSuccess;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: return *value = gfx950 ? 160 * 1024 : 64 * 1024, hipSuccess;
    case hipDeviceAttributeL2CacheSize: return *value = 4 << 20, hipSuccess;
    default: return answer(hipErrorNotSupported);
  }
}

constexpr std::size_t guard = 4096;  // so that the end of one allocation is never the start of another

/// Taken on first touch, so pools larger than this machine's memory can be allocated.
hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  if (!pointer) return answer(hipErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return hipSuccess;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* pages = mmap(nullptr, bytes + guard, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (pages == MAP_FAILED) return answer(hipErrorOutOfMemory);
  const std::lock_guard lock(device().mutex);
  device().allocations[pages] = bytes;
  *pointer = pages;
  return hipSuccess;
}
hipError_t hipFree(void* pointer) {
  if (!pointer) return hipSuccess;
  const std::lock_guard lock(device().mutex);
  const auto found = device().allocations.find(pointer);
  if (found == device().allocations.end()) return answer(hipErrorInvalidValue);
  munmap(pointer, found->second + guard);
  device().allocations.erase(found);
  return hipSuccess;
}
hipError_t hipMemGetInfo(std::size_t* free, std::size_t* total) {
  return *total = std::size_t{256} << 30, *free = *total, hipSuccess;
}
hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind) {
  return std::memcpy(to, from, bytes), hipSuccess;
}
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind, hipStream_t stream) {
  return submit(stream, [=] { return std::memcpy(to, from, bytes), hipSuccess; });
}
hipError_t hipMemset(void* to, int byte, std::size_t bytes) { return std::memset(to, byte, bytes), hipSuccess; }
hipError_t hipMemsetAsync(void* to, int byte, std::size_t bytes, hipStream_t stream) {
  return submit(stream, [=] { return std::memset(to, byte, bytes), hipSuccess; });
}

hipError_t hipStreamCreate(hipStream_t* stream) {
  return *stream = reinterpret_cast<hipStream_t>(new Stream), hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) { return delete stream_of(stream), hipSuccess; }
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  if (!stream || stream_of(stream)->captured) return answer(hipErrorInvalidValue);
  return stream_of(stream)->captured = std::make_unique<Steps>(), hipSuccess;
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  if (!stream || !stream_of(stream)->captured) return answer(hipErrorInvalidValue);
  return *graph = reinterpret_cast<hipGraph_t>(stream_of(stream)->captured.release()), hipSuccess;
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph, unsigned long long) {
  return *executable = reinterpret_cast<hipGraphExec_t>(new Steps(*reinterpret_cast<Steps*>(graph))), hipSuccess;
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t) {
  for (const Step& step : *reinterpret_cast<Steps*>(executable))
    if (const hipError_t error = step(); error != hipSuccess) return answer(error);
  return hipSuccess;
}
hipError_t hipGraphDestroy(hipGraph_t graph) { return delete reinterpret_cast<Steps*>(graph), hipSuccess; }
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  return delete reinterpret_cast<Steps*>(executable), hipSuccess;
}

hipError_t hipEventCreate(hipEvent_t* event) { return *event = reinterpret_cast<hipEvent_t>(new char), hipSuccess; }
hipError_t hipEventDestroy(hipEvent_t event) { return delete reinterpret_cast<char*>(event), hipSuccess; }
hipError_t hipEventRecord(hipEvent_t, hipStream_t) { return hipSuccess; }
hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t, hipEvent_t) { return *milliseconds = NAN, hipSuccess; }

}  // extern "C"
