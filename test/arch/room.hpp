// SPDX-License-Identifier: MIT
// Parts that the tests of a room's primitives share: running a kernel in each of the build's rooms. ROOM_HEADER and
// ROOM_BACKENDS come from test/CMakeLists.txt.
#pragma once

#include ROOM_HEADER

#include <string>
#include <vector>

#include "bench/harness/device.hpp"
#include "test/arch/no_shared.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {

/// Runs K on a copy of `in` and returns the `count` results it wrote; both are only read and written by the kernel.
template <class K, class In, class Out>
std::vector<Out> run_kernel(int blocks, const std::vector<In>& in, std::size_t count, Out poison) {
  bench::DeviceBuffer input(in.size() * sizeof(In)), output(count * sizeof(Out));
  std::vector<Out> out(count, poison);
  REQUIRE(hipMemcpy(input.data(), in.data(), input.bytes(), hipMemcpyHostToDevice) == hipSuccess);
  REQUIRE(hipMemcpy(output.data(), out.data(), output.bytes(), hipMemcpyHostToDevice) == hipSuccess);
  const typename K::Args args{static_cast<const In*>(input.data()), static_cast<Out*>(output.data())};
  const Status status = K::Room::template launch<K>({blocks, K::block_threads}, args, nullptr);
  INFO(status.reason);
  REQUIRE(status.ok());
  REQUIRE(hipDeviceSynchronize() == hipSuccess);
  REQUIRE(hipMemcpy(out.data(), output.data(), output.bytes(), hipMemcpyDeviceToHost) == hipSuccess);
  return out;
}

template <class... Backends>
struct Rooms {
  template <class F>
  static void each(F f) {
    (f.template operator()<Backends>(), ...);
  }
};
using AllRooms = Rooms<ROOM_BACKENDS>;

template <class B>
std::string room_name() {
  return std::string(name_of(B::facts.id));
}

}  // namespace tilewave::test
