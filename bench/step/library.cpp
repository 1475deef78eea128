// SPDX-License-Identifier: MIT
// A step as a shared library, for bench/peers/step_in_turns.py: the model is made once, and its tensors are lent to
// whoever computes the same beside it.
#include <cstring>
#include <exception>
#include <string>

#include "bench/step/step.hpp"
#include "tilewave/arch/backend.hpp"

using tilewave::bench::StepCase;
using tilewave::bench::StepModel;
using tilewave::bench::StepPart;
using tilewave::bench::StepPhase;

/// Returns a model with its step captured, or null with the reason in `error`. prefill: 0 is a decode step.
extern "C" void* tilewave_step_make(const char* model, int prefill, int batch, int context, int overlap, char* error,
                                    int bytes) {
  try {
    StepCase c;
    c.arch = tilewave::bench::step_kernels().begin()->first;
    c.phase = prefill != 0 ? StepPhase::prefill : StepPhase::decode;
    c.model = model, c.batch = batch, c.context = context, c.overlap = overlap != 0;
    auto made = std::make_unique<StepModel>(c, layers_of(tilewave::bench::share_of(model, 1)), false);
    tilewave::overlap_launches = c.overlap;
    static_cast<void>(made->queue(StepPart::step));
    static_cast<void>(made->capture(StepPart::step));
    static_cast<void>(made->logits());
    return made.release();
  } catch (const std::exception& wrong) {
    std::strncpy(error, wrong.what(), static_cast<std::size_t>(bytes) - 1);
    return nullptr;
  }
}
extern "C" void tilewave_step_free(void* step) { delete static_cast<StepModel*>(step); }

/// Queues the captured step. Returns 0, or 1 where it cannot.
extern "C" int tilewave_step_launch(const void* step, void* stream) {
  try {
    static_cast<const StepModel*>(step)->replay(static_cast<tilewave::hipStream_t>(stream));
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

/// The address of a tensor of a layer by its name, or of the model where layer is negative; null for an unknown name.
extern "C" void* tilewave_step_tensor(const void* step, int layer, const char* name, std::int64_t* bytes) {
  const engine::Buffer* const found = static_cast<const StepModel*>(step)->tensor(layer, name);
  if (found == nullptr) return nullptr;
  *bytes = static_cast<std::int64_t>(found->bytes());
  return found->data();
}
