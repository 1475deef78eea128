// SPDX-License-Identifier: MIT
// sampling_check refuses bad problems, and nothing is written then.
#include "test/ops/sampling/sampled.hpp"

namespace tilewave::test::check {
namespace {

using P = SamplingProblem;
using C = StatusCode;
constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

template <class T>
RowValue<T> at(const void* p, int bytes) {
  return {T{}, reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(p) + bytes), false};
}

const Wrong<P> wrongs[] = {
    {"x of fp8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::fp8_e4m3fn; }},
    {"x of no type", C::unsupported_dtype, [](P& p) { p.spec.x = static_cast<DType>(99); }},
    {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"columns -1", C::bad_extent, [](P& p) { p.columns = -1; }},
    {"no column", C::bad_extent, [](P& p) { p.columns = 0; }},
    {"columns 262145", C::bad_extent, [](P& p) { p.columns = p.row_stride = 262145; }},
    {"temperature -1", C::bad_value, [](P& p) { p.temperature.value = -1; }},
    {"temperature NaN", C::bad_value, [](P& p) { p.temperature.value = nan; }},
    {"temperature infinite", C::bad_value, [](P& p) { p.temperature.value = inf; }},
    {"top_p 0", C::bad_value, [](P& p) { p.top_p.value = 0; }},
    {"top_p 1.5", C::bad_value, [](P& p) { p.top_p.value = 1.5f; }},
    {"top_p NaN", C::bad_value, [](P& p) { p.top_p.value = nan; }},
    {"min_p -0.1", C::bad_value, [](P& p) { p.min_p.value = -0.1f; }},
    {"min_p 1.5", C::bad_value, [](P& p) { p.min_p.value = 1.5f; }},
    {"min_p NaN", C::bad_value, [](P& p) { p.min_p.value = nan; }},
    {"top_k -2", C::bad_value, [](P& p) { p.top_k.value = -2; }},
    {"temperatures off by a byte", C::misaligned, [](P& p) { p.temperature = at<float>(p.x, 1); }},
    {"top_p off by a byte", C::misaligned, [](P& p) { p.top_p = at<float>(p.x, 1); }},
    {"min_p off by a byte", C::misaligned, [](P& p) { p.min_p = at<float>(p.x, 1); }},
    {"top_k off by a byte", C::misaligned, [](P& p) { p.top_k = at<std::int32_t>(p.x, 1); }},
    {"seeds off by 4 bytes", C::misaligned, [](P& p) { p.seed = at<std::uint64_t>(p.x, 4); }},
    {"offsets off by 4 bytes", C::misaligned, [](P& p) { p.offset = at<std::uint64_t>(p.x, 4); }},
    {"raw log probabilities nowhere", C::bad_value,
     [](P& p) {
       p.raw_logprobs = true;
       p.logprobs = nullptr;
     }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"tokens null", C::null_pointer, [](P& p) { p.tokens = nullptr; }},
    {"x off by a byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
    {"tokens off by a byte", C::misaligned, [](P& p) { p.tokens = moved(p.tokens, 1); }},
    {"logprobs off by a byte", C::misaligned, [](P& p) { p.logprobs = moved(p.logprobs, 1); }},
    {"rows in one place", C::bad_stride, [](P& p) { p.row_stride = 0; }},
    {"a stride of 2^62", C::bad_stride, [](P& p) { p.row_stride = std::int64_t{1} << 62; }},
    {"tokens inside x", C::bad_value,
     [](P& p) { p.tokens = static_cast<std::int32_t*>(moved(const_cast<void*>(p.x), 8)); }},
    {"logprobs inside x", C::bad_value,
     [](P& p) { p.logprobs = static_cast<float*>(moved(const_cast<void*>(p.x), 8)); }},
    {"logprobs are tokens", C::bad_value, [](P& p) { p.logprobs = reinterpret_cast<float*>(p.tokens); }},
    {"temperatures are logprobs", C::bad_value, [](P& p) { p.temperature = at<float>(p.logprobs, 0); }},
    {"top_p in tokens", C::bad_value, [](P& p) { p.top_p = at<float>(p.tokens, 4); }},
    {"min_p in tokens", C::bad_value, [](P& p) { p.min_p = at<float>(p.tokens, 4); }},
    {"top_k are tokens", C::bad_value, [](P& p) { p.top_k = at<std::int32_t>(p.tokens, 0); }},
    {"seeds are tokens", C::bad_value, [](P& p) { p.seed = at<std::uint64_t>(p.tokens, 0); }},
    {"workspace of -1 bytes", C::bad_value, [](P& p) { p.workspace_bytes = ~std::size_t{0}; }},
    {"workspace off by 8 bytes", C::misaligned,
     [](P& p) {
       p.workspace = moved(p.tokens, 8);
       p.workspace_bytes = 16;
     }},
    {"workspace inside x", C::bad_value,
     [](P& p) {
       p.workspace = moved(const_cast<void*>(p.x), 16);
       p.workspace_bytes = 16;
     }},
    {"workspace is x, of 2^56 bytes", C::bad_value,
     [](P& p) {
       p.workspace = const_cast<void*>(p.x);
       p.workspace_bytes = std::int64_t{1} << 56;
     }},
    {"workspace is x, of 2^63 - 1 bytes", C::bad_value,
     [](P& p) {
       p.workspace = const_cast<void*>(p.x);
       p.workspace_bytes = std::numeric_limits<std::int64_t>::max();
     },
     "workspace_bytes"},
    {"offsets are tokens", C::bad_value, [](P& p) { p.offset = at<std::uint64_t>(p.tokens, 0); }},
};

TEST_CASE("bad sampling problems get a named status and a reason, and nothing is written") {
  for (const SamplingEntry* e : all_sampling_entries()) {
    if (e->policy.lanes != facts_of(e->arch).wave_lanes) continue;
    Sampled s(e->spec, {.rows = 4, .columns = 64});
    check_refused<SamplingEntry, P>(*e, s.problem, wrongs, sampling_check, sampling_select, all_sampling_entries());
    P none = s.problem;
    none.rows = 0;
    CHECK(e->launch(none, {}).ok());
    none.columns = 0;
    none.x = nullptr;
    CHECK(e->launch(none, {}).ok());
    s.tokens.download();
    s.logprobs.download();
    CHECK(s.tokens.host == std::vector<std::int32_t>(4, unwritten_word));
    CHECK(s.logprobs.host == std::vector<float>(4, __builtin_bit_cast(float, unwritten_word)));
    P single = s.problem;  // the stride of one row does not matter
    single.rows = 1;
    single.row_stride = std::int64_t{1} << 62;
    CHECK(sampling_check(single, facts_of(e->arch)).ok());
  }
}

}  // namespace
}  // namespace tilewave::test::check
