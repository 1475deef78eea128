// SPDX-License-Identifier: MIT
// The exit statuses of the command. docs/guide/optimise.md lists these numbers; scripts depend on them.
#pragma once

#include <stdexcept>
#include <string>

namespace tilewave::tool {

enum class Exit : int {
  ok = 0,       // done; compare: keep
  failed = 1,   // what was run failed, or the system refused
  usage = 2,    // a bad option, or a file that cannot be read as what it should be
  unknown = 3,  // a hardware number is UNKNOWN
  discard = 10,
  tie = 11,
  split = 12,
  incorrect = 13,
  refused = 14,   // the two measurements are not of the same thing
  violated = 15,  // compiled code breaks a rule, or its page says something else
  no_gpu = 20,    // none became idle
  stopped = 30,   // a campaign's stop rule
  conflict = 31,  // the campaign is not in the state that the command needs
};

/// Gives one line on stderr, nothing on stdout, and the exit status.
struct Error : std::runtime_error {
  Error(Exit status, const std::string& message) : std::runtime_error(message), exit(status) {}
  Exit exit;
};

[[noreturn]] inline void refuse(const std::string& message) { throw Error(Exit::usage, message); }

}  // namespace tilewave::tool
