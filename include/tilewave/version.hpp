// SPDX-License-Identifier: MIT
// The version, in this one place: CMake reads it from here.
#pragma once

#define TILEWAVE_VERSION_MAJOR 0
#define TILEWAVE_VERSION_MINOR 1
#define TILEWAVE_VERSION_PATCH 0

/// One integer for `#if`: 1.2.3 is 10203.
#define TILEWAVE_VERSION (TILEWAVE_VERSION_MAJOR * 10000 + TILEWAVE_VERSION_MINOR * 100 + TILEWAVE_VERSION_PATCH)
