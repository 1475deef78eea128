// SPDX-License-Identifier: MIT
// Runs llvm-objdump on a code object, for so long at most.
#pragma once

#include <functional>
#include <string>

namespace tilewave::sim {

/// Gives `line` what `objdump -d path` prints, line by line. An Error where it fails, or takes longer than the seconds of
/// ISA_SIM_OBJDUMP_SECONDS (300): it is ended then, with all that it has started.
void run_objdump(const std::string& objdump, const std::string& path, const std::function<void(const char*)>& line);

}  // namespace tilewave::sim
