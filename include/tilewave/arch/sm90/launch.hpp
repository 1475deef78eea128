// SPDX-License-Identifier: MIT
// This file has the one __global__ of the room.
#pragma once

#include <array>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
// -arch=sm_90a compiles for compute_90 as well, to embed PTX.
#error "tilewave's room sm90 is wgmma and other features of sm_90a alone: nvcc -gencode=arch=compute_90a,code=sm_90a"
#endif

#if defined(__CUDA_ARCH__)
inline constexpr bool this_pass = true;
#else
inline constexpr bool this_pass = false;
#endif

// Policies claim waves per SIMD, which is portable; CUDA counts resident blocks. 4 schedulers share a block's waves.
template <class K>
inline constexpr int blocks_per_sm =
    K::waves_per_simd* sm90_facts.simds_per_cu* sm90_facts.wave_lanes / K::block_threads;

template <class K>
__global__ void __launch_bounds__(K::block_threads, blocks_per_sm<K>)
    entry(const __grid_constant__ typename K::Args args) {
  if constexpr (K::Room::is_this_pass) {
    if constexpr (!WaitsItself<K>) {
      K::Room::wait_for_previous();
      if constexpr (!LaunchesNext<K>) K::Room::launch_next();
    }
    extern __shared__ __align__(1024) unsigned char bytes[];  // swizzled operands need this alignment
    K::run(args, *reinterpret_cast<typename K::Shared*>(bytes));
  }
}

/// A kernel with tensor maps, which are aligned to 128 bytes. They are an argument of their own, so that the others
/// begin where those do that come with the launch.
template <class K>
__global__ void __launch_bounds__(K::block_threads, blocks_per_sm<K>)
    entry_with_maps(const __grid_constant__ typename K::Args args, const __grid_constant__ typename K::Maps maps) {
  if constexpr (K::Room::is_this_pass) {
    static_assert(WaitsItself<K>, "a kernel with tensor maps waits for the stream's previous kernel itself");
    extern __shared__ __align__(1024) unsigned char bytes[];
    K::run(args, maps, *reinterpret_cast<typename K::Shared*>(bytes));
  }
}

struct Launch {
  static constexpr bool is_this_pass = this_pass;
  static constexpr bool emulated = false;

  /// Queues kernel K on the stream. Failures are a status, launch_failed or bad_extent, instead of an exception; an
  /// empty grid is ok.
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, hipStream_t stream) {
    void* arguments[] = {const_cast<typename K::Args*>(&args)};
    return launch_function<K>(reinterpret_cast<const void*>(&entry<K>), shape, arguments, stream);
  }
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, const typename K::Maps& maps,
                       hipStream_t stream) {
    void* arguments[] = {const_cast<typename K::Args*>(&args), const_cast<typename K::Maps*>(&maps)};
    return launch_function<K>(reinterpret_cast<const void*>(&entry_with_maps<K>), shape, arguments, stream);
  }

 private:
  template <class K>
  static Status launch_function(const void* function, LaunchShape shape, void** arguments, hipStream_t stream) {
    if (Status s = check_launch(shape, sm90_facts); !s.ok()) return s;
    if (shape.grid == 0) return {};
    if (const cudaError_t error = allow_shared<K>(function, shape); error != cudaSuccess) {
      return {StatusCode::launch_failed, cudaGetErrorString(error)};
    }
    // <<<>>> with cudaGetLastError would report an error that the caller left behind.
    if (shape.cluster > 8) {
      const cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
      if (error != cudaSuccess) return {StatusCode::launch_failed, cudaGetErrorString(error)};
    }
    Attributes attributes{};
    const cudaLaunchConfig_t config = launch_config<K>(shape, stream, attributes);
    const cudaError_t error = cudaLaunchKernelExC(&config, function, arguments);
    if (error != cudaSuccess) return {StatusCode::launch_failed, cudaGetErrorString(error)};
    return {};
  }
  /// CUDA requires a request for more than 48 KB of shared memory.
  template <class K>
  static cudaError_t allow_shared(const void* function, const LaunchShape& shape) {
    static_assert(sizeof(typename K::Shared) <= sm90_facts.lds_bytes,
                  "the kernel asks for more shared memory than a block may use");
    if (shared_bytes<K>(shape) <= 48 * 1024) return cudaSuccess;
    return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, sm90_facts.lds_bytes);
  }
  /// Shared memory of a block. A launch that is spread asks for so much that an SM has no room for one more than its
  /// share. The driver keeps 1 KiB for each block.
  template <class K>
  static std::int64_t shared_bytes(const LaunchShape& shape) {
    constexpr std::int64_t own = sizeof(typename K::Shared), kept = 1024, all = sm90_facts.lds_bytes + kept;
    if (!shape.spread) return own;
    return max_of(own, all / (ceil_div<std::int64_t>(shape.grid, sm90_facts.compute_units) + 1) - kept + 128);
  }
  using Attributes = std::array<cudaLaunchAttribute, 2>;
  /// `attributes` must outlive the returned configuration.
  template <class K>
  static cudaLaunchConfig_t launch_config(LaunchShape shape, hipStream_t stream, Attributes& attributes) {
    unsigned count = 0;
    if (shape.cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
    }
    if (overlap_launches) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(shape.grid));
    config.blockDim = dim3(static_cast<unsigned>(shape.block));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes<K>(shape));
    config.stream = stream;
    config.attrs = attributes.data();
    config.numAttrs = count;
    return config;
  }
};

}  // namespace tilewave::sm90

#endif
