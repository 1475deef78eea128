// SPDX-License-Identifier: MIT
#include "bench/ops/gemm/vendor.hpp"

#include <stdexcept>

#include "bench/harness/device.hpp"

// Both libraries have one interface under two prefixes: LT(MatmulDescCreate) is a function or type of it, LT_CODE() a constant.
#if defined(TILEWAVE_CUBLASLT)
#include <cublasLt.h>
#define LT(name) cublasLt##name
#define LT_CODE(name) CUBLASLT_##name
#elif defined(TILEWAVE_HIPBLASLT)
#include <hipblaslt/hipblaslt.h>
#define LT(name) hipblasLt##name
#define LT_CODE(name) HIPBLASLT_##name
#endif

namespace tilewave::bench {

#if !defined(LT)

std::string_view vendor_name() { return ""; }
std::unique_ptr<VendorGemm> vendor_gemm(const GemmProblem&, std::span<const void* const>, std::string& reason) {
  reason = "this build has no library of the vendor";
  return nullptr;
}

#else

namespace {

#if defined(TILEWAVE_CUBLASLT)
using LtStatus = cublasStatus_t;
using LtType = cudaDataType_t;
constexpr std::string_view library = "cublaslt";
constexpr auto succeeded = CUBLAS_STATUS_SUCCESS;
constexpr auto compute = CUBLAS_COMPUTE_32F;
constexpr LtType f32 = CUDA_R_32F, f16 = CUDA_R_16F, bf16 = CUDA_R_16BF, fp8 = CUDA_R_8F_E4M3, fp8_fnuz = fp8;
constexpr std::int32_t op_n = CUBLAS_OP_N, op_t = CUBLAS_OP_T;
constexpr bool scales_rows_and_blocks = true;
#else
using LtStatus = hipblasStatus_t;
using LtType = hipDataType;
constexpr std::string_view library = "hipblaslt";
constexpr auto succeeded = HIPBLAS_STATUS_SUCCESS;
constexpr auto compute = HIPBLAS_COMPUTE_32F;
constexpr LtType f32 = HIP_R_32F, f16 = HIP_R_16F, bf16 = HIP_R_16BF, fp8 = HIP_R_8F_E4M3,
                 fp8_fnuz = HIP_R_8F_E4M3_FNUZ;
constexpr std::int32_t op_n = HIPBLAS_OP_N, op_t = HIPBLAS_OP_T;
constexpr bool scales_rows_and_blocks = false;  // releases differ in how they are asked for
#endif

/// What a proposal may ask for; both vendors recommend 32 MiB and more on their large chips.
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;
constexpr int most_proposals = 16;

void check(LtStatus status, const char* doing) {
  if (status != succeeded)
    throw std::runtime_error(std::string(library) + ": " + doing + " answers " +
                             std::to_string(static_cast<int>(status)));
}

LtType type_of(DType type) {
  switch (type) {
    case DType::f32: return f32;
    case DType::f16: return f16;
    case DType::bf16: return bf16;
    case DType::fp8_e4m3fnuz: return fp8_fnuz;
    default: return fp8;
  }
}

/// Why the library is not asked; empty if it is.
std::string refusal_of(const GemmProblem& p) {
  const GemmSpec& s = p.spec;
  const bool floats = s.a == DType::bf16 || s.a == DType::f16;
  if (s.groups != GemmGroups::one) return "groups";
  if (s.weights != GemmWeights::row_major) return "preshuffled weights";
  if (s.b != s.a || (!floats && !is_fp8(s.a))) return "these types of operands";
  if (s.gated || s.activation != ActivationKind::none) return "activations";
  if (s.out_scale != Scaling::none) return "a quantised out";
  if (p.residual != nullptr) return "a residual";
  if (s.scale != Scaling::none && !is_fp8(s.a)) return "scales of 16-bit operands";
  if (p.bias != nullptr && p.batch > 1) return "batches with a bias";
  const bool rows_or_blocks = s.scale == Scaling::per_row || s.scale == Scaling::per_block;
  if (rows_or_blocks && !scales_rows_and_blocks) return "scales of rows and blocks";
  if (rows_or_blocks && p.batch > 1) return "batches with such scales";
  if (s.scale == Scaling::per_block && (ceil_div(p.k, gemm_scale_block) % 4 != 0 || p.m % 4 != 0))
    return "scales of blocks whose rows are not whole 16 bytes";
  return "";
}

LT(Handle_t) handle() {
  static const LT(Handle_t) made = [] {
    LT(Handle_t) handle;
    check(LT(Create)(&handle), "creating a handle");
    return handle;
  }();
  return made;
}

/// The library is column-major: its A is our B, its B our A, and out is [N, M].
class LtGemm : public VendorGemm {
  struct Proposal {  // a name for the library's struct, without which nvcc takes no vector of it
    LT(MatmulAlgo_t) algo;
  };

 public:
  LtGemm(const GemmProblem& p, std::span<const void* const> weights)
      : p_(p), weights_(weights.begin(), weights.end()), workspace_(workspace_bytes) {
    check(LT(MatmulDescCreate)(&desc_, compute, f32), "describing a product");
    const GemmSpec& s = p.spec;
    set(LT_CODE(MATMUL_DESC_TRANSA), transposed_b(s.layout) ? op_n : op_t);
    set(LT_CODE(MATMUL_DESC_TRANSB), transposed_a(s.layout) ? op_t : op_n);
    if (s.scale != Scaling::none) {
      set(LT_CODE(MATMUL_DESC_A_SCALE_POINTER), p.b_scale);
      set(LT_CODE(MATMUL_DESC_B_SCALE_POINTER), p.a_scale);
    }
    if (is_fp8(s.a)) set_modes(s);
    if (p.bias != nullptr) {
      set(LT_CODE(MATMUL_DESC_EPILOGUE), LT_CODE(EPILOGUE_BIAS));
      set(LT_CODE(MATMUL_DESC_BIAS_POINTER), p.bias);
      set(LT_CODE(MATMUL_DESC_BIAS_DATA_TYPE), static_cast<std::int32_t>(type_of(s.extra())));
    }
    b_ = layout(s.b, transposed_b(s.layout), p.k, p.n, p.b_stride, p.b_batch_stride);
    a_ = layout(s.a, transposed_a(s.layout), p.k, p.m, p.a_stride, p.a_batch_stride);
    out_ = layout(s.out, false, p.n, p.m, p.out_stride, p.out_batch_stride);
    propose();
  }
  LtGemm(LtGemm&&) = delete;
  ~LtGemm() override {
    for (LT(MatrixLayout_t) layout : {a_, b_, out_}) (void)LT(MatrixLayoutDestroy)(layout);
    (void)LT(MatmulDescDestroy)(desc_);
  }

  std::vector<Side> sides() override {
    std::vector<Side> sides;
    for (const auto& proposal : proposals_)
      sides.push_back(
          {std::string(library), [this, &proposal](hipStream_t stream) { return launch(proposal, stream); }});
    return sides;
  }

 private:
  template <class Attribute, class Value>
  void set(Attribute attribute, const Value& value) {
    check(LT(MatmulDescSetAttribute)(desc_, attribute, &value, sizeof(value)), "describing a product");
  }

  void set_modes([[maybe_unused]] const GemmSpec& s) {
#if defined(TILEWAVE_CUBLASLT)
    const bool blocks = s.scale == Scaling::per_block, rows = s.scale == Scaling::per_row;
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(!blocks && s.sums == GemmSums::fast));
    const std::int32_t whole =
        rows ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, blocks ? std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F} : whole);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, blocks ? std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F} : whole);
#endif
  }

  /// A matrix whose columns are `rows` long, or its transpose.
  LT(MatrixLayout_t)
  layout(DType type, bool transposed, std::int64_t rows, std::int64_t columns, std::int64_t stride,
         std::int64_t batch_stride) const {
    LT(MatrixLayout_t) made;
    const auto height = static_cast<std::uint64_t>(transposed ? columns : rows);
    const auto width = static_cast<std::uint64_t>(transposed ? rows : columns);
    check(LT(MatrixLayoutCreate)(&made, type_of(type), height, width, stride), "describing a matrix");
    if (p_.batch > 1) {
      const std::int32_t count = p_.batch;
      check(LT(MatrixLayoutSetAttribute)(made, LT_CODE(MATRIX_LAYOUT_BATCH_COUNT), &count, sizeof(count)), "batches");
      check(LT(MatrixLayoutSetAttribute)(made, LT_CODE(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET), &batch_stride,
                                         sizeof(batch_stride)),
            "strides of batches");
    }
    return made;
  }

  void propose() {
    LT(MatmulPreference_t) preference;
    check(LT(MatmulPreferenceCreate)(&preference), "preferring");
    const std::uint64_t bytes = workspace_bytes;
    check(LT(MatmulPreferenceSetAttribute)(preference, LT_CODE(MATMUL_PREF_MAX_WORKSPACE_BYTES), &bytes, sizeof(bytes)),
          "preferring a workspace");
    LT(MatmulHeuristicResult_t) results[most_proposals];
    int found = 0;
    const LtStatus status =
        LT(MatmulAlgoGetHeuristic)(handle(), desc_, b_, a_, out_, out_, preference, most_proposals, results, &found);
    (void)LT(MatmulPreferenceDestroy)(preference);
    if (status != succeeded) return;
    for (int i = 0; i < found; ++i) proposals_.push_back({results[i].algo});
  }

  Status launch(const Proposal& proposal, hipStream_t stream) {
    const float alpha = p_.alpha, zero = 0;
    const void* const b = weights_[turn_++ % weights_.size()];
    const LtStatus status = LT(Matmul)(handle(), desc_, &alpha, b, b_, p_.a, a_, &zero, p_.out, out_, p_.out, out_,
                                       &proposal.algo, workspace_.data(), workspace_.bytes(), stream);
    return status == succeeded ? Status{} : Status{StatusCode::launch_failed, "the vendor's library refuses"};
  }

  GemmProblem p_;
  std::vector<const void*> weights_;
  std::size_t turn_ = 0;
  DeviceBuffer workspace_;
  LT(MatmulDesc_t) desc_{};
  LT(MatrixLayout_t) a_{}, b_{}, out_{};
  std::vector<Proposal> proposals_;
};

}  // namespace

std::string_view vendor_name() { return library; }

std::unique_ptr<VendorGemm> vendor_gemm(const GemmProblem& p, std::span<const void* const> weights,
                                        std::string& reason) {
  reason = refusal_of(p);
  if (!reason.empty()) {
    reason = std::string(library) + " is not asked for " + reason;
    return nullptr;
  }
  try {
    auto gemm = std::make_unique<LtGemm>(p, weights);
    if (!gemm->sides().empty()) return gemm;
    reason = std::string(library) + " proposes nothing";
  } catch (const std::runtime_error& error) {
    reason = error.what();
  }
  return nullptr;
}

#endif

}  // namespace tilewave::bench
