// SPDX-License-Identifier: MIT
// Files for the tests of the command, made here in the shape of those that benchmarks and profilers write.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/tilewave/common/error.hpp"

namespace tilewave::test {

inline std::string pa_row(int block_size, int mtp, double us, const std::string& more = "0,gfx950,3e9,1") {
  return "\"pa_decode/x\"," + std::to_string(block_size) + "," + std::to_string(mtp) + ",128," + std::to_string(us) +
         "," + std::to_string(us * 0.999) + "," + std::to_string(us * 1.001) + ",100," + more + "\n";
}

/// Returns a CSV as bench_pa writes it, cut to what a comparison looks at; rows come from pa_row.
inline std::string pa_csv(const std::string& rows) {
  return "name,block_size,mtp,head_size,us,us_q1,us_q3,samples,err,arch,bytes_ideal,seed\n" + rows;
}

/// The status that the error of this call carries; ok if there was none.
inline tool::Exit status_of(const std::function<void()>& call, std::string* message = nullptr) {
  try {
    call();
    return tool::Exit::ok;
  } catch (const tool::Error& error) {
    if (message != nullptr) *message = error.what();
    return error.exit;
  }
}

/// Calls the parser with every kind of damage to the sample: cut short at each place, bytes changed, parts repeated,
/// removed, exchanged, and noise. Whatever it does but return or throw tool::Error fails the test; so does an accepted
/// empty text. The number of texts that were taken as valid comes back.
inline int fuzz(const std::string& sample, const std::function<void(const std::string&)>& parse, int rounds = 1500) {
  std::uint64_t state = 88172645463325252ULL;
  const auto random = [&](std::size_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<std::size_t>(state % (below > 0 ? below : 1));
  };
  int accepted = 0;
  const auto feed = [&](const std::string& text) { accepted += status_of([&] { parse(text); }) == tool::Exit::ok; };
  static const std::vector<std::string> words{"\"",
                                              ",",
                                              "\n",
                                              "\n\n",
                                              "{",
                                              "}",
                                              "[",
                                              "]",
                                              ":",
                                              "-1",
                                              "1e999",
                                              "nan",
                                              "inf",
                                              "18446744073709551616",
                                              "null",
                                              "true",
                                              "\xff\xfe",
                                              std::string(1, '\0'),
                                              "==PROF==",
                                              "|",
                                              "---",
                                              "#",
                                              "\\u0000",
                                              "\"\"",
                                              std::string(3000, '['),
                                              "&a *a"};
  for (std::size_t cut = 0; cut < sample.size(); cut += 1 + sample.size() / 300) feed(sample.substr(0, cut));
  for (int i = 0; i < rounds; ++i) {
    std::string text = sample;
    for (std::size_t edits = 1 + random(4); edits > 0; --edits) {
      const std::size_t at = random(text.size()), length = random(30);
      switch (random(5)) {
        case 0:
          if (!text.empty()) text[at] = static_cast<char>(random(256));
          break;
        case 1: text.insert(at, words[random(words.size())]); break;
        case 2: text.erase(at, length); break;
        case 3: text.insert(random(text.size()), text.substr(at, length)); break;
        default: text.replace(at, length, words[random(words.size())]);
      }
    }
    feed(text);
  }
  for (int i = 0; i < rounds / 10; ++i) {
    std::string noise(random(200), ' ');
    for (char& c : noise) c = static_cast<char>(random(256));
    feed(noise);
  }
  return accepted;
}

}  // namespace tilewave::test
