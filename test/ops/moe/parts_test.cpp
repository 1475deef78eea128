// SPDX-License-Identifier: MIT
// Tests that a layer in one call has the bits of its parts, which are called one by one with tensors of their own.
#include "test/ops/moe/call.hpp"
#include "test/turns.hpp"

namespace tilewave::test {
namespace {

/// Returns the entry of a list with a spec and a policy, or null.
template <class Entry>
const Entry* entry_of(std::span<const Entry* const> list, ArchId arch, const GemmSpec& spec, const GemmPolicy& policy) {
  for (const Entry* e : list)
    if (e->arch == arch && e->spec == spec && e->policy == policy) return e;
  return nullptr;
}

/// Bytes on the device that are set from the host and read back.
struct Bytes {
  bench::DeviceBuffer device;
  explicit Bytes(std::size_t bytes) : device(bytes) { device.fill(unread_byte); }
  template <class T>
  explicit Bytes(const std::vector<T>& values) : device(values.size() * sizeof(T)) {
    bench::check_hip(hipMemcpy(device.data(), values.data(), device.bytes(), hipMemcpyHostToDevice), "copying over");
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(device.data());
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(device.bytes() / sizeof(T));
    bench::check_hip(hipMemcpy(values.data(), device.data(), device.bytes(), hipMemcpyDeviceToHost), "copying back");
    return values;
  }
};

/// Runs a layer of fp8 blocks step by step: quantises, sorts and gathers on the host, multiplies copied rows, and sums.
/// Returns out, or nothing where an entry is missing.
std::vector<std::uint16_t> step_by_step(MoeCall& call, const MoeEntry& e, std::int32_t tokens, std::int32_t topk) {
  const ArchFacts& facts = facts_of(e.arch);
  const MoeProblem p = call.on_device();
  const std::int32_t d = p.hidden, h = p.intermediate, blocks = ceil_div(d, 128), choices = tokens * topk;
  QuantProblem quant;
  const Bytes codes(static_cast<std::size_t>(tokens) * d), scales(static_cast<std::size_t>(tokens) * blocks * 4);
  quant.spec = {p.spec.x, p.spec.weights, Scaling::per_group};
  quant.x = p.x, quant.x_strides = {p.x_stride, 0};
  quant.out = codes.as<void>(), quant.out_strides = {d, 0};
  quant.scale = scales.as<void>(), quant.scale_stride = blocks;
  quant.rows = tokens, quant.columns = d;
  const QuantEntry* quantises = nullptr;
  REQUIRE(quant_select(quant, all_quant_entries(), facts, quantises).ok());
  REQUIRE(quantises->launch(quant, {}).ok());
  bench::check_hip(hipDeviceSynchronize(), "quantising");

  std::vector<std::int32_t> order, offsets{0}, rows(choices);
  for (std::int32_t expert = 0; expert < p.experts; ++expert) {
    for (std::int32_t choice = 0; choice < choices; ++choice) {
      if (call.ids()[choice] != expert) continue;
      rows[choice] = static_cast<std::int32_t>(order.size());
      order.push_back(choice);
    }
    offsets.push_back(static_cast<std::int32_t>(order.size()));
  }
  const auto all_codes = codes.read<std::uint8_t>();
  const auto all_scales = scales.read<float>();
  std::vector<std::uint8_t> gathered;
  std::vector<float> gathered_scales;
  for (const std::int32_t choice : order) {
    const std::int32_t token = choice / topk;
    gathered.insert(gathered.end(), &all_codes[token * d], &all_codes[token * d] + d);
    gathered_scales.insert(gathered_scales.end(), &all_scales[token * blocks], &all_scales[token * blocks] + blocks);
  }

  const Bytes a(gathered), a_scales(gathered_scales), table(offsets), row_table(rows);
  const Bytes mid(static_cast<std::size_t>(choices) * h), mid_scales(static_cast<std::size_t>(choices) * (h / 128) * 4);
  const Bytes results(static_cast<std::size_t>(choices) * d * 2), out(static_cast<std::size_t>(tokens) * d * 2);
  const auto multiply = [&](GemmSpec spec, const GemmPlan& plan, const Bytes& from, const Bytes& from_scales,
                            const MoeWeights& w, void* to, float* to_scales, std::int32_t n, std::int32_t k) {
    spec.gathered = spec.scattered = false;
    const GemmEntry* found = entry_of(all_gemm_gated_entries(), e.arch, spec, plan.entry->policy);
    if (found == nullptr) found = entry_of(all_gemm_grouped_entries(), e.arch, spec, plan.entry->policy);
    REQUIRE(found != nullptr);
    GemmProblem g = GemmProblem::packed(spec, from.as<void>(), w.data, to, choices, n, k);
    g.a_scale = from_scales.as<float>(), g.b_scale = w.scale, g.out_scale = to_scales;
    g.group_offsets = table.as<std::int32_t>(), g.groups = p.experts;
    const Bytes workspace(gemm_workspace_size(g, found->policy, plan.splits));
    g.workspace = workspace.as<void>(), g.workspace_bytes = workspace.device.bytes();
    REQUIRE(found->launch(g, plan.splits, {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "multiplying");
  };
  multiply(moe_first_spec(p.spec), call.plan().first, a, a_scales, p.w1, mid.as<void>(), mid_scales.as<float>(), 2 * h,
           d);
  multiply(moe_second_spec(p.spec), call.plan().second, mid, mid_scales, p.w2, results.as<void>(), nullptr, d, h);

  MoeReduceProblem sum;
  sum.spec = {p.spec.out};
  sum.x = results.as<void>(), sum.x_stride = d, sum.x_rows = choices;
  sum.slots = row_table.as<std::int32_t>(), sum.weights = p.topk_weights;
  sum.out = out.as<void>(), sum.out_stride = d;
  sum.rows = tokens, sum.columns = d, sum.topk = topk;
  const MoeReduceEntry* sums = nullptr;
  REQUIRE(moe_reduce_select(sum, all_moe_reduce_entries(), facts, sums).ok());
  REQUIRE(sums->launch(sum, {}).ok());
  bench::check_hip(hipDeviceSynchronize(), "summing");
  return out.read<std::uint16_t>();
}

TEST_CASE("a layer in one call has the bits of its parts") {
  int compared = 0;
  for (const MoeEntry* const entry : all_moe_entries()) {
    const MoeSpec& s = entry->spec;
    if (s.routing != MoeRouting::given || !s.quantises_x() || s.scale != Scaling::per_block) continue;
    if (entry->policy.h == MoeH::f32) continue;  // has the bits of the usual policy, see below
    INFO(name_of(entry->arch) << " " << name_of(s) << " " << name_of(entry->policy));
    MoeParts parts = all_moe_parts();
    parts.layers = {&entry, 1};
    const MoeShape shape{.tokens = 33, .topk = 3, .intermediate = 256};
    MoeCall call(s, shape);
    REQUIRE(call.launch(facts_of(entry->arch), parts) == "");
    const auto* const got = static_cast<const std::uint16_t*>(call.at("out").host());
    const std::vector<std::uint16_t> wanted = step_by_step(call, *entry, shape.tokens, shape.topk);
    CHECK(std::equal(wanted.begin(), wanted.end(), got));
    ++compared;
  }
  CHECK(compared > 0);
}

TEST_CASE("policies of a layer make the sums of the usual one, to the bit") {
  const MoeEntry* rows = nullptr;
  for (const MoeEntry* const entry : all_moe_entries()) {
    if (entry->policy == MoePolicy{}) {
      rows = entry;
      continue;
    }
    const bool keeps_h = entry->policy.h == MoeH::f32;
    if (entry->spec.masked() || (entry->spec.quantised() && !keeps_h && !all_entries())) continue;
    // No list has products of MXFP4 for slots, and where rows are copied they may take another instruction.
    if (entry->spec.four_bit()) continue;
    REQUIRE((rows->arch == entry->arch && rows->spec == entry->spec));
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    const std::int32_t tokens = entry->policy.choosing != MoeChoosing::apart ? 13 : 29;
    const MoeShape shape{.tokens = tokens, .experts = 16, .topk = 4, .first_expert = 2, .local_experts = 7};
    MoeCall in_rows(entry->spec, shape), in_slots(entry->spec, shape);
    MoeParts parts = all_moe_parts();
    parts.layers = {&rows, 1};
    REQUIRE(in_rows.launch(facts_of(entry->arch), parts) == "");
    parts.layers = {&entry, 1};
    REQUIRE(in_slots.launch(facts_of(entry->arch), parts) == "");
    CHECK(std::memcmp(in_rows.at("out").host(), in_slots.at("out").host(), tokens * 256 * 2) == 0);
  }
}

TEST_CASE("a layer's launches one by one are the layer") {
  const MoeEntry* const entry = all_moe_entries().front();
  const ArchFacts& facts = facts_of(entry->arch);
  for (const std::int32_t tokens : {9, 20}) {
    MoeCall whole(entry->spec, {.tokens = tokens}), single(entry->spec, {.tokens = tokens});
    REQUIRE(whole.launch(facts) == "");
    REQUIRE(single.launch(facts) == "");
    MoeProblem p = single.on_device();
    p.workspace = single.workspace().data(), p.workspace_bytes = single.workspace().bytes();
    single.workspace().fill(unread_byte);
    int launches = 0;
    for (const MoePlan::Launch& l : single.plan().launches(p)) {
      REQUIRE(single.plan().launch_one(p, l.what, {}).ok());
      CHECK(l.entry != "none");
      ++launches;
    }
    bench::check_hip(hipDeviceSynchronize(), "running launches");
    single.at("out").download();
    CHECK(launches == (tokens == 9 ? 4 : 5));  // the choice, or gating and sort; two products, sums
    CHECK(std::memcmp(whole.at("out").host(), single.at("out").host(), tokens * 256 * 2) == 0);
  }
}

}  // namespace
}  // namespace tilewave::test
