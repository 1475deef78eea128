// SPDX-License-Identifier: MIT
// The scalings of stored values: quantised inputs, outputs, caches and products share this one enum.
#pragma once

namespace tilewave {

/// The values that share one scale. A stored value times its scale gives the value back. Every op lists the scalings
/// that it takes, and its check refuses the others by name.
///   none        values are as stored
///   per_tensor  one scale for the whole tensor
///   per_token   one for each token: for a row of activations, or for a token and KV head of a cache
///   per_row     of a product: one for each row of A (its per_token scales) and one for each row of B (its channels)
///   per_head    one for each KV head of a cache
///   per_block   of a product: one for each 128 k of a row of A, and one for each 128 x 128 of B
///   per_group   one for each group of neighbouring columns in a row: 128, or GemmSpec::scale_k with int4 weights
///   mx          OCP MX: one e8m0 scale, a power of two, for each 32 columns of a row
enum class Scaling : int { none, per_tensor, per_token, per_row, per_head, per_block, per_group, mx };

constexpr bool is_scaling(Scaling s) { return s >= Scaling::none && s <= Scaling::mx; }

constexpr const char* name_of(Scaling s) {
  constexpr const char* names[] = {"none",     "per_tensor", "per_token", "per_row",
                                   "per_head", "per_block",  "per_group", "mx"};
  return is_scaling(s) ? names[static_cast<int>(s)] : "unknown";
}

}  // namespace tilewave
