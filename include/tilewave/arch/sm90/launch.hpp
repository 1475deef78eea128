// SPDX-License-Identifier: MIT
// The one __global__ of this room.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

#if defined(__CUDA_ARCH__)
inline constexpr bool this_pass = true;
#else
inline constexpr bool this_pass = false;
#endif

// Waves per SIMD is the portable claim; CUDA counts resident blocks: 4 schedulers share a block's waves.
template <class K>
inline constexpr int blocks_per_sm =
    K::waves_per_simd* sm90_facts.simds_per_cu* sm90_facts.wave_lanes / K::block_threads;

template <class K>
__global__ void __launch_bounds__(K::block_threads, blocks_per_sm<K>)
    entry(const __grid_constant__ typename K::Args args) {
  if constexpr (K::Room::is_this_pass) {
    extern __shared__ __align__(16) unsigned char bytes[];
    K::run(args, *reinterpret_cast<typename K::Shared*>(bytes));
  }
}

struct Launch {
  static constexpr bool is_this_pass = this_pass;
  static constexpr bool emulated = false;

  /// Queue kernel K on the stream: status launch_failed or bad_extent instead of an exception; an empty grid is ok.
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, hipStream_t stream) {
    if (Status s = check_launch(shape, sm90_facts); !s.ok()) return s;
    if (shape.grid == 0) return {};
    constexpr int shared_bytes = sizeof(typename K::Shared);
    static_assert(shared_bytes <= sm90_facts.lds_bytes);
    if constexpr (shared_bytes > 48 * 1024) {
      const cudaError_t error =
          cudaFuncSetAttribute(&entry<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      if (error != cudaSuccess) return {StatusCode::launch_failed, cudaGetErrorString(error)};
    }
    // Not <<<>>> and cudaGetLastError, which would report an error the caller left behind.
    void* arguments[] = {const_cast<void*>(static_cast<const void*>(&args))};
    if (shape.cluster > 8) {
      const cudaError_t error = cudaFuncSetAttribute(&entry<K>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
      if (error != cudaSuccess) return {StatusCode::launch_failed, cudaGetErrorString(error)};
    }
    cudaLaunchAttribute attributes[2]{};
    int count = 0;
    if (shape.cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
    }
    if (shape.early) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(shape.grid));
    config.blockDim = dim3(static_cast<unsigned>(shape.block));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    const cudaError_t error = cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&entry<K>), arguments);
    if (error != cudaSuccess) return {StatusCode::launch_failed, cudaGetErrorString(error)};
    return {};
  }
};

}  // namespace tilewave::sm90

#endif
