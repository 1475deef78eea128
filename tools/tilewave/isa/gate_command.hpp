// SPDX-License-Identifier: MIT
#pragma once

#include "tools/tilewave/common/command.hpp"

namespace tilewave::tool {

/// The subcommands of `isa` that hold a build to its claims.
void add_isa_gate(Command& isa);

}  // namespace tilewave::tool
