// SPDX-License-Identifier: MIT
// Prints every spec of GEMM on sm90 that a user can name and the library takes, a line each: how many policies it has, and
// the spec as C++ writes it. What ptxas makes of them is ptxas_test.py's to say.
#include <cstdio>
#include <string>

#include "tilewave/ops/gemm/registry.hpp"

namespace {

using namespace tilewave;

std::string text_of(const GemmSpec& s) {
  const auto word = [](const char* type, auto name) { return std::string(type) + "::" + std::string(name); };
  return "{.a = " + word("DType", name_of(s.a)) + ", .b = " + word("DType", name_of(s.b)) +
         ", .out = " + word("DType", name_of(s.out)) + ", .scale = " + word("Scaling", name_of(s.scale)) +
         ", .layout = " + word("GemmLayout", name_of(s.layout)) +
         ", .weights = " + word("GemmWeights", name_of(s.weights)) +
         ", .groups = " + word("GemmGroups", name_of(s.groups)) +
         ", .activation = " + word("ActivationKind", name_of(s.activation)) +
         ", .gated = " + (s.gated ? "true" : "false") + ", .out_scale = " + word("Scaling", name_of(s.out_scale)) +
         ", .scale_k = " + std::to_string(s.scale_k) + ", .sums = " + word("GemmSums", name_of(s.sums)) + "}";
}

void print(const GemmSpec& s) {
  if (!gemm_check_spec(s, sm90_facts).ok()) return;
  if (const int count = gemm_policies(ArchId::sm90, s).count; count > 0)
    std::printf("%d %s\n", count, text_of(s).c_str());
}

/// Calls f for each value of one field after the other.
template <class T, class F>
void each(std::initializer_list<T> values, const F& f) {
  for (const T value : values) f(value);
}

}  // namespace

int main() {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16, f32 = DType::f32, fp8 = DType::fp8_e4m3fn, i8 = DType::i8;
  struct Types {
    DType a, b;
    int group;
  };
  constexpr Types operands[] = {{bf16, bf16, 0},      {f16, f16, 0},         {fp8, fp8, 0},
                                {i8, i8, 0},          {bf16, DType::i4, 32}, {f16, DType::i4, 128},
                                {fp8, DType::i4, 64}, {fp8, DType::i4, 128}, {bf16, DType::fp4_e2m1, 32}};
  GemmSpec s;
  for (const Types& types : operands) {
    s.a = types.a, s.b = types.b, s.scale_k = types.group;
    each({bf16, f16, f32, fp8, i8}, [&](DType out) {
      s.out = out;
      each({Scaling::none, Scaling::per_tensor, Scaling::per_row, Scaling::per_block, Scaling::per_group},
           [&](Scaling scale) {
             s.scale = scale;
             each({GemmLayout::nt, GemmLayout::nn, GemmLayout::tn}, [&](GemmLayout layout) {
               s.layout = layout;
               each({GemmWeights::row_major, GemmWeights::preshuffled}, [&](GemmWeights weights) {
                 s.weights = weights;
                 each({GemmGroups::one, GemmGroups::contiguous, GemmGroups::masked}, [&](GemmGroups groups) {
                   s.groups = groups;
                   each({ActivationKind::none, ActivationKind::silu, ActivationKind::swigluoai},
                        [&](ActivationKind kind) {
                          s.activation = kind;
                          each({Scaling::none, Scaling::per_tensor, Scaling::per_group}, [&](Scaling out_scale) {
                            s.out_scale = out_scale;
                            for (const bool gated : {false, true}) {
                              s.gated = gated;
                              each({GemmSums::promoted, GemmSums::fast}, [&](GemmSums sums) {
                                s.sums = sums;
                                print(s);
                              });
                            }
                          });
                        });
                 });
               });
             });
           });
    });
  }
}
