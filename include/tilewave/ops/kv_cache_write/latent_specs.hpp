// SPDX-License-Identifier: MIT
// Latent heads with the other groups that are served, each kind of scale; tests labelled full run them.
#pragma once

#include "tilewave/ops/kv_cache_write/registry.hpp"

namespace tilewave {

constexpr auto kv_cache_write_latent_specs(ArchId arch) {
  return std::to_array<KvCacheWriteSpec>(
      {kv_cache_write_latent_spec(arch, 32, false), kv_cache_write_latent_spec(arch, 32, true),
       kv_cache_write_latent_spec(arch, 256, true), kv_cache_write_latent_spec(arch, 512, false)});
}

/// The entries of a spec under the name that the list of these is found by.
template <class B, KvCacheWriteSpec S>
inline constexpr auto& kv_cache_write_latent_entries = kv_cache_write_entries<B, S>;

}  // namespace tilewave
