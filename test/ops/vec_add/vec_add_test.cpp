// SPDX-License-Identifier: MIT
// The tests compare every entry with sums in double: boundary counts, misaligned and shared tensors, infinities and
// NaN, far addresses.
#include "entries/vec_add.hpp"

#include "test/ops/rows.hpp"
#include "tilewave/ops/vec_add/registry.hpp"
#if !TILEWAVE_ON_GPU_COMPILER
#include "tilewave/arch/host/backend.hpp"
#endif

namespace tilewave::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

enum class Share { none, out_is_a, out_is_b, all };

struct Shape {
  std::int32_t count = 0;
  int a_offset = 0, b_offset = 0, out_offset = 0;  // elements between a multiple of 16 bytes and the tensor
  Share share = Share::none;
  float (*value)(char name, int i) = nullptr;  // instead of random ones
};

void* at(const Tensor& tensor, DType type, std::int64_t element) {
  return static_cast<std::byte*>(tensor.device()) + element * size_of(type);
}

/// Runs the entry, or the one that is selected if null, and compares all it wrote; what is wrong.
std::string run(const ArchFacts& facts, const VecAddSpec& spec, const VecAddEntry* entry, const Shape& s) {
  constexpr int behind = 9;  // elements of out that must stay as they are
  const DType type = spec.x;
  const auto value = [&](char name, int i) { return s.value ? s.value(name, i) : drawn(name, 0, i); };
  const auto input = [&](char name, int offset) {
    Tensor tensor(type, offset + s.count);
    tensor.set(1, offset + s.count, [&](int, int c) { return c < offset ? 1.0f : value(name, c - offset); });
    return tensor;
  };
  Tensor a = input('a', s.a_offset), b = input('b', s.b_offset), fresh(type, s.out_offset + s.count + behind);
  const Tensor a_before = input('a', s.a_offset), b_before = input(s.share == Share::all ? 'a' : 'b', s.b_offset);
  Tensor& out = s.share == Share::none ? fresh : s.share == Share::out_is_b ? b : a;
  const int out_offset = s.share == Share::none ? s.out_offset : s.share == Share::out_is_b ? s.b_offset : s.a_offset;
  VecAddProblem p;
  p.spec = spec;
  p.a = at(a, type, s.a_offset);
  p.b = s.share == Share::all ? p.a : at(b, type, s.b_offset);
  p.out = at(out, type, out_offset);
  p.count = s.count;
  if (entry == nullptr) {
    if (!vec_add_select(p, all_vec_add_entries(), facts, entry).ok()) return "no entry selected";
  } else if (!policy_takes(entry->policy, p)) {
    return entry->launch(p, {}).code == StatusCode::no_matching_entry ? "" : "took tensors that it does not take";
  }
  const Status status = entry->launch(p, {});
  if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
  bench::check_hip(hipDeviceSynchronize(), "running the kernel");
  out.download();
  for (int i = 0; i < s.count; ++i) {
    const double x = a_before.at(0, s.a_offset + i), y = b_before.at(0, s.b_offset + i);
    const double wanted = reference::rounded(type, x + y), got = out.at(0, out_offset + i);
    if (std::isnan(wanted) ? !std::isnan(got) : got != wanted) {
      return "element " + std::to_string(i) + " is " + std::to_string(got) + ", not " + std::to_string(wanted);
    }
  }
  if (s.share != Share::none) return "";
  for (int i = 0; i < out_offset + s.count + behind; ++i) {
    const bool beside = i < out_offset || i >= out_offset + s.count;
    if (beside && !out.untouched(0, i)) return "wrote beside the output";
  }
  return "";
}

template <class F>
void each_vec_add_entry(const F& f) {
  for (const VecAddEntry* e : all_vec_add_entries()) {
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}

std::string run_all(const VecAddEntry& e, const std::vector<Shape>& shapes) {
  for (const Shape& s : shapes) {
    const std::string error = run(facts_of(e.arch), e.spec, &e, s);
    if (error != "") {
      return std::to_string(s.count) + " elements, offsets " + std::to_string(s.a_offset) + " " +
             std::to_string(s.b_offset) + " " + std::to_string(s.out_offset) + ": " + error;
    }
  }
  return "";
}

TEST_CASE("every vec_add entry adds boundary counts, aligned and not") {
  each_vec_add_entry([](const VecAddEntry& e) {
    const int tile = e.policy.tile_bytes() / size_of(e.spec.x), unit = 16 / size_of(e.spec.x);
    std::vector<Shape> shapes;
    for (const int count : {0, 1, unit - 1, unit, unit + 1, 997, tile - 1, tile, tile + 1, 2 * tile, 3 * tile + 5}) {
      shapes.push_back({count});
      for (const int offset : {1, unit - 1}) shapes.push_back({count, offset, offset, offset});
    }
    shapes.push_back({tile + 7, 1, 0, 0});  // taken by the policy of single elements only
    shapes.push_back({tile + 7, 0, 1, 0});
    shapes.push_back({tile + 7, 0, 0, 1});
    shapes.push_back({2 * tile, 3, 1, unit - 1});
    return run_all(e, shapes);
  });
}

TEST_CASE("the output of vec_add may be an input") {
  each_vec_add_entry([](const VecAddEntry& e) {
    const int tile = e.policy.tile_bytes() / size_of(e.spec.x);
    std::vector<Shape> shapes;
    for (const Share share : {Share::out_is_a, Share::out_is_b, Share::all}) {
      shapes.push_back({.count = 2 * tile + 1, .share = share});
      shapes.push_back({.count = tile, .a_offset = 1, .b_offset = 1, .share = share});
    }
    return run_all(e, shapes);
  });
}

TEST_CASE("vec_add of infinities, NaN, zeros, subnormals, ties and what overflows") {
  constexpr auto value = [](char name, int i) -> float {
    constexpr float values[][2] = {{inf, 1},      {inf, -inf},    {nan, 1},      {1, nan},          {-inf, -inf},
                                   {0.0f, -0.0f}, {-0.0f, -0.0f}, {0x1p-24f, 0}, {1, 0x1p-8f},      {1, 0x1p-9f},
                                   {1, 0x3p-9f},  {1, 0x1p-11f},  {1, 0x3p-11f}, {60000.0f, 60000}, {3e38f, 3e38f},
                                   {1, 0x1p-24f}, {1, 0x3p-24f}};
    return values[i % std::size(values)][name == 'b'];
  };
  each_vec_add_entry([&](const VecAddEntry& e) {
    const int tile = e.policy.tile_bytes() / size_of(e.spec.x);
    return run_all(e, {{.count = tile + 40, .value = value}});
  });
}

TEST_CASE("vec_add selects 16-byte accesses where the tensors agree modulo 16, single elements elsewhere") {
  for (const VecAddEntry* e : all_vec_add_entries()) {
    const ArchFacts& facts = facts_of(e->arch);
    const int element = size_of(e->spec.x);
    const Tensor tensor(e->spec.x, 4096);
    VecAddProblem p;
    p.spec = e->spec;
    p.count = 1000;
    const VecAddEntry* selected = nullptr;
    const auto vec_of = [&](int a, int b, int out) {
      p.a = at(tensor, e->spec.x, a);
      p.b = at(tensor, e->spec.x, 1024 + b);
      p.out = at(tensor, e->spec.x, 2048 + out);
      REQUIRE(vec_add_select(p, all_vec_add_entries(), facts, selected).ok());
      CHECK(selected->arch == e->arch);
      CHECK(selected->spec == e->spec);
      return selected->policy.vec;
    };
    CHECK(vec_of(0, 0, 0) == 16);
    CHECK(vec_of(3, 3, 3) == 16);
    CHECK(vec_of(1, 0, 0) == element);
    CHECK(vec_of(0, 1, 0) == element);
    CHECK(vec_of(0, 0, 1) == element);
  }
}

TEST_CASE("bad vec_add problems get a named status and a reason, and nothing is written") {
  using P = VecAddProblem;
  using C = StatusCode;
  const Wrong<P> wrongs[] = {
      {"fp8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::fp8_e4m3fn; }},
      {"i8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::i8; }},
      {"no type", C::unsupported_dtype, [](P& p) { p.spec.x = static_cast<DType>(99); }},
      {"count -1", C::bad_extent, [](P& p) { p.count = -1; }},
      {"count beyond the grid", C::bad_extent, [](P& p) { p.count = vec_add_max_count + 1; }},
      {"a null", C::null_pointer, [](P& p) { p.a = nullptr; }},
      {"b null", C::null_pointer, [](P& p) { p.b = nullptr; }},
      {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
      {"a off by a byte", C::misaligned, [](P& p) { p.a = static_cast<const char*>(p.a) + 1; }},
      {"b off by a byte", C::misaligned, [](P& p) { p.b = static_cast<const char*>(p.b) + 1; }},
      {"out off by a byte", C::misaligned, [](P& p) { p.out = static_cast<char*>(p.out) + 1; }},
      {"out starts inside a", C::bad_value,
       [](P& p) { p.a = static_cast<const char*>(p.out) - (p.count - 1) * size_of(p.spec.x); }},
      {"b starts inside out", C::bad_value,
       [](P& p) { p.b = static_cast<const char*>(p.out) + (p.count - 1) * size_of(p.spec.x); }},
  };
  for (const VecAddEntry* e : all_vec_add_entries()) {
    const std::int32_t count = 64;
    Tensor a(e->spec.x, count), b(e->spec.x, count), out(e->spec.x, count);
    P good;
    good.spec = e->spec;
    good.a = a.device();
    good.b = b.device();
    good.out = out.device();
    good.count = count;
    const ArchFacts& facts = facts_of(e->arch);
    check_refused<VecAddEntry, P>(*e, good, wrongs, vec_add_check, vec_add_select, all_vec_add_entries());
    P other = good;
    other.spec.x = e->spec.x == DType::f32 ? DType::bf16 : DType::f32;
    CHECK(e->launch(other, {}).code == C::no_matching_entry);
    P largest = good;  // shapes only: nothing of it is launched
    largest.count = vec_add_max_count;
    largest.out = reinterpret_cast<void*>(std::uintptr_t{1} << 40);
    largest.a = largest.b = reinterpret_cast<void*>(std::uintptr_t{1} << 44);
    CHECK(vec_add_check(largest, facts).ok());
    const std::int64_t tile = e->policy.tile_bytes() / size_of(e->spec.x);
    CHECK(check_launch({ceil_div(vec_add_max_count + 7, tile), e->policy.lanes}, facts).ok());
    P empty = good;
    empty.count = 0;
    empty.a = empty.b = empty.out = nullptr;
    CHECK(e->launch(empty, {}).ok());
    out.download();
    CHECK(out.gaps_kept(0, 0));
  }
}

/// Counts beyond 2^32 elements, of which a few stretches hold numbers and are compared.
class FarTensors {
 public:
  static constexpr std::int64_t count = (std::int64_t{1} << 32) + 1029;

  explicit FarTensors(DType type) : type_(type), a_(bytes()), b_(bytes()), out_(bytes()) {}

  VecAddProblem problem() const { return {{type_}, a_.data(), b_.data(), out_.data(), count}; }
  void set(std::int64_t first, int n) const {
    for (std::int64_t i = first; i < first + n; ++i) {
      put(a_, i, drawn('a', 0, i));
      put(b_, i, drawn('b', 0, i));
    }
  }
  std::string wrong(std::int64_t first, int n) const {
    for (std::int64_t i = first; i < first + n; ++i) {
      std::uint32_t bits = 0;
      bench::check_hip(hipMemcpy(&bits, place(out_, i), size_of(type_), hipMemcpyDeviceToHost), "copying back");
      if (bits != encode(type_, value(drawn('a', 0, i)) + value(drawn('b', 0, i))))
        return "element " + std::to_string(i);
    }
    return "";
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(type_); }
  std::byte* place(const bench::DeviceBuffer& buffer, std::int64_t i) const {
    return static_cast<std::byte*>(buffer.data()) + i * size_of(type_);
  }
  float value(float x) const { return static_cast<float>(reference::rounded(type_, x)); }
  void put(const bench::DeviceBuffer& buffer, std::int64_t i, float x) const {
    const std::uint32_t bits = encode(type_, x);
    bench::check_hip(hipMemcpy(place(buffer, i), &bits, size_of(type_), hipMemcpyHostToDevice), "copying over");
  }
  DType type_;
  bench::DeviceBuffer a_, b_, out_;
};

#if TILEWAVE_ON_GPU_COMPILER

TEST_CASE("vec_add adds more than 2^32 elements") {
  for (const VecAddEntry* e : all_vec_add_entries()) {
    std::size_t free = 0, total = 0;
    bench::check_hip(hipMemGetInfo(&free, &total), "asking for the free memory");
    if (free < 3 * FarTensors::count * size_of(e->spec.x) + (std::size_t{1} << 30)) {
      skip_test("not enough device memory");
      return;
    }
    const FarTensors far(e->spec.x);
    const std::int64_t starts[] = {0, (std::int64_t{1} << 31) - 20, (std::int64_t{1} << 32) - 20,
                                   FarTensors::count - 40};
    for (const std::int64_t first : starts) far.set(first, 40);
    REQUIRE(e->launch(far.problem(), {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    for (const std::int64_t first : starts) {
      INFO(name_of(e->spec) << "/" << name_of(e->policy));
      CHECK(far.wrong(first, 40) == "");
    }
  }
}

#else

/// A room whose first block has a number of choice: of a grid of millions of blocks, those that matter are run.
template <ArchId Id>
struct FarRoom : host::Backend<Id> {
  static inline int first_block = 0;
  static int block_id() { return first_block + host::Backend<Id>::block_id(); }
};

template <ArchId Id, VecAddSpec S, std::size_t policy>
std::string run_far_blocks() {
  constexpr VecAddPolicy P = vec_add_policies(Id, S)[policy];
  using Room = FarRoom<Id>;
  using Kernel = VecAdd<Room, S, P>;
  const FarTensors far(S.x);
  const VecAddProblem p = far.problem();
  const VecAddArgs args{p.a, p.b, p.out, p.count, 0};
  constexpr std::int64_t count = FarTensors::count, tile = Kernel::tile;
  // Around 2^31 and 2^32 elements, of which the latter is also the end.
  for (const std::int64_t block : {(std::int64_t{1} << 31) / tile - 1, (std::int64_t{1} << 32) / tile - 1}) {
    const int n = static_cast<int>(std::min(2 * tile, count - block * tile));
    far.set(block * tile, n);
    Room::first_block = static_cast<int>(block);
    const std::int64_t blocks = min_of<std::int64_t>(2, ceil_div(count, tile) - block);
    if (!Room::template launch<Kernel>({blocks, P.lanes}, args).ok()) return name_of(P) + ": did not run";
    if (const std::string wrong = far.wrong(block * tile, n); wrong != "") return name_of(P) + ": " + wrong;
  }
  return "";
}

template <ArchId Id, DType type>
void check_far_blocks() {
  constexpr VecAddSpec S{type};
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    for (const std::string& error : {run_far_blocks<Id, S, i>()...}) CHECK(error == "");
  }
  (std::make_index_sequence<vec_add_policies(Id, S).size()>{});
}

TEST_CASE("a plan names a spec that is not the template's before anything else") {
  VecAddProblem p;  // its tensors are null, too
  p.spec.x = DType::f32;
  p.count = 1;
  VecAddPlan plan{.entry = all_vec_add_entries()[0]};
  const Status status = vec_add_plan<host::Backend<ArchId::sm90>, VecAddSpec{DType::f16}>(p, plan);
  CHECK(name_of(status.code) == "no_matching_entry");
  CHECK(std::string(status.reason).find("problem.spec") == 0);
  CHECK(plan.entry == nullptr);
  CHECK(name_of(plan.launch(p, {}).code) == "no_matching_entry");
  CHECK(plan.name() == "none");
  CHECK(plan.workspace_bytes(p) == 0);
  p.spec.x = DType::f16;
  p.count = 0;
  REQUIRE(vec_add_plan<host::Backend<ArchId::sm90>, VecAddSpec{DType::f16}>(p, plan).ok());
  CHECK(plan.entry->spec == p.spec);
  CHECK(plan.explain(p).find(plan.name() + ": chosen\n") != std::string::npos);
}

TEST_CASE("vec_add reaches elements beyond 2^31 and 2^32") {
  check_far_blocks<ArchId::gfx942, DType::f32>();
  check_far_blocks<ArchId::gfx950, DType::bf16>();
  check_far_blocks<ArchId::sm90, DType::f16>();
  check_far_blocks<ArchId::sm90, DType::f32>();
}

#endif

}  // namespace
}  // namespace tilewave::test
