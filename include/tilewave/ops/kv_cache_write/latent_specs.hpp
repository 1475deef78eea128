// SPDX-License-Identifier: MIT
// Latent heads with the other sizes of groups that are served, and each kind of scale. Tests labelled full run them.
#pragma once

#include "tilewave/ops/kv_cache_write/registry.hpp"

namespace tilewave {

constexpr auto kv_cache_write_latent_specs(ArchId arch) {
  return std::to_array<KvCacheWriteSpec>(
      {kv_cache_write_latent_spec(arch, 32, false), kv_cache_write_latent_spec(arch, 32, true),
       kv_cache_write_latent_spec(arch, 256, true), kv_cache_write_latent_spec(arch, 512, false)});
}

/// The entries of a spec, under the name that the generated list of these specs looks for.
template <class B, KvCacheWriteSpec S>
inline constexpr auto& kv_cache_write_latent_entries = kv_cache_write_entries<B, S>;

}  // namespace tilewave
