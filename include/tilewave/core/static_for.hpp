// SPDX-License-Identifier: MIT
// A loop whose index is a constant expression. It serves template arguments, and register arrays that must never be
// indexed at run time.
#pragma once

#include <utility>

#include "tilewave/core/config.hpp"

namespace tilewave {

/// A constant-expression int. std::integral_constant converts through a host function, which nvcc refuses in kernels.
template <int value>
struct Index {
  TILEWAVE_HOST_DEVICE constexpr operator int() const { return value; }
};

namespace detail {
template <class F, int... i>
TILEWAVE_HOST_DEVICE constexpr void static_for(F&& body, std::integer_sequence<int, i...>) {
  (body(Index<i>{}), ...);
}
}  // namespace detail

/// Calls body(Index<0>{}) ... body(Index<n - 1>{}).
template <int n, class F>
TILEWAVE_HOST_DEVICE constexpr void static_for(F&& body) {
  detail::static_for(body, std::make_integer_sequence<int, n>{});
}

}  // namespace tilewave
