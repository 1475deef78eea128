// SPDX-License-Identifier: MIT
// Everything, for a first look; an engine includes one op's launch.hpp and one room's backend.hpp.
//
// The GPU rooms are empty unless their compiler is running. The emulated device is asked for by name, because it
// needs Boost.Context: #include "tilewave/arch/host/backend.hpp" and link tilewave::host.
#pragma once

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/gfx942/backend.hpp"
#include "tilewave/arch/gfx950/backend.hpp"
#include "tilewave/arch/sm90/backend.hpp"
#include "tilewave/core/config.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/core/vec.hpp"
#include "tilewave/ops/activation/registry.hpp"
#include "tilewave/ops/attention_combine/registry.hpp"
#include "tilewave/ops/embedding/registry.hpp"
#include "tilewave/ops/flash_attention/registry.hpp"
#include "tilewave/ops/gemm/registry.hpp"
#include "tilewave/ops/kv_cache_write/registry.hpp"
#include "tilewave/ops/mla_decode/registry.hpp"
#include "tilewave/ops/moe/registry.hpp"
#include "tilewave/ops/moe_reduce/registry.hpp"
#include "tilewave/ops/moe_sort/registry.hpp"
#include "tilewave/ops/mqa_logits/registry.hpp"
#include "tilewave/ops/norm/registry.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"
#include "tilewave/ops/quant/registry.hpp"
#include "tilewave/ops/rope/registry.hpp"
#include "tilewave/ops/sampling/registry.hpp"
#include "tilewave/ops/softmax/registry.hpp"
#include "tilewave/ops/topk_gating/registry.hpp"
#include "tilewave/ops/vec_add/registry.hpp"
#include "tilewave/version.hpp"
