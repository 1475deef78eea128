// SPDX-License-Identifier: MIT
// Parts that the tests of the host room share.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "test/arch/no_shared.hpp"
#include "tilewave/arch/host/backend.hpp"

namespace tilewave::test {

using Gfx942 = host::Backend<ArchId::gfx942>;
using Gfx950 = host::Backend<ArchId::gfx950>;
using Sm90 = host::Backend<ArchId::sm90>;

/// Sets the options for a scope.
class WithOptions {
 public:
  explicit WithOptions(const host::Options& options) : before_(host::options()) { host::set_options(options); }
  ~WithOptions() { host::set_options(before_); }
  WithOptions(const WithOptions&) = delete;
  WithOptions& operator=(const WithOptions&) = delete;

 private:
  host::Options before_;
};

/// Every schedule, the random one with several seeds, alone and on two threads.
inline std::vector<host::Options> all_options() {
  std::vector<host::Options> all;
  for (const int threads : {1, 2}) {
    for (const host::Schedule schedule : host::all_schedules) {
      const int seeds = schedule == host::Schedule::random ? 4 : 1;
      for (int seed = 0; seed < seeds; ++seed) {
        all.push_back({.threads = threads, .schedule = schedule, .seed = static_cast<std::uint64_t>(seed)});
      }
    }
  }
  return all;
}

inline std::string name_of(const host::Options& o) {
  return std::string(host::name_of(o.schedule)) + " seed " + std::to_string(o.seed) + " threads " +
         std::to_string(o.threads);
}

/// Launches K with its own block size.
template <class B, class K>
Status launch(std::int64_t grid, const typename K::Args& args) {
  return B::template launch<K>({grid, K::block_threads}, args, nullptr);
}

inline bool contains(const char* text, const char* part) { return std::string(text).find(part) != std::string::npos; }

}  // namespace tilewave::test
