// SPDX-License-Identifier: MIT
#include "bench/ops/paged_attention/bundle.hpp"

#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "bench/harness/bundle_files.hpp"
#include "bench/ops/paged_attention/tensors.hpp"
#include "bench/ops/paged_attention/verify.hpp"
#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

template <class T>
void write_values(const fs::path& path, const std::vector<T>& values) {
  write_file(path, values.data(), values.size() * sizeof(T));
}

template <class T>
T read_at(const Bytes& bytes, std::size_t at) {
  if (at + sizeof(T) > bytes.size()) throw std::runtime_error("the code object ends too early");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// The metadata of the one kernel in a code object: MessagePack in the ELF note NT_AMDGPU_METADATA (LLVM, "User Guide
/// for AMDGPU Backend", code object V5 metadata).
nlohmann::json kernel_metadata(const Bytes& elf, const std::string& name) {
  constexpr std::uint32_t pt_note = 4, metadata_note = 32;
  const auto headers = read_at<std::uint64_t>(elf, 32);
  const auto header_bytes = read_at<std::uint16_t>(elf, 54), count = read_at<std::uint16_t>(elf, 56);
  for (int i = 0; i < count; ++i) {
    const std::size_t header = headers + std::size_t{header_bytes} * i;
    if (read_at<std::uint32_t>(elf, header) != pt_note) continue;
    std::size_t at = read_at<std::uint64_t>(elf, header + 8);
    const std::size_t end = at + read_at<std::uint64_t>(elf, header + 32);
    while (at < end) {
      const auto name_bytes = align_up<std::size_t>(read_at<std::uint32_t>(elf, at), 4);
      const auto bytes = read_at<std::uint32_t>(elf, at + 4);
      const std::size_t content = at + 12 + name_bytes;
      if (read_at<std::uint32_t>(elf, at + 8) == metadata_note && content + bytes <= elf.size()) {
        const auto note = nlohmann::json::from_msgpack(elf.begin() + content, elf.begin() + content + bytes);
        const auto& kernels = note.at("amdhsa.kernels");
        if (kernels.size() != 1) throw std::runtime_error(name + ": holds more than one kernel");
        return kernels[0];
      }
      at = content + align_up<std::size_t>(bytes, 4);
    }
  }
  throw std::runtime_error(name + ": no AMDGPU metadata");
}

/// The kernarg segment: the argument struct, then what the compiler asked for besides. Global offsets and all other
/// hidden arguments stay zero, as for a launch without queues, printf or heap.
Bytes kernarg_segment(const nlohmann::json& kernel, const PagedAttentionArgs& args, std::int64_t grid, int block) {
  Bytes segment(kernel.at(".kernarg_segment_size").get<std::size_t>(), 0);
  const auto put = [&](std::size_t at, std::uint64_t value, std::size_t bytes) {
    std::memcpy(segment.data() + at, &value, bytes);  // little-endian, like the device
  };
  for (const auto& arg : kernel.at(".args")) {
    const auto kind = arg.at(".value_kind").get<std::string>();
    const auto at = arg.at(".offset").get<std::size_t>(), bytes = arg.at(".size").get<std::size_t>();
    if (kind == "by_value") {
      if (bytes != sizeof(args))
        throw std::runtime_error("the code object was compiled with other arguments: rebuild it");
      std::memcpy(segment.data() + at, &args, bytes);
    } else if (kind.starts_with("hidden_block_count_")) {
      put(at, kind.back() == 'x' ? static_cast<std::uint64_t>(grid) : 1, bytes);
    } else if (kind.starts_with("hidden_group_size_")) {
      put(at, kind.back() == 'x' ? block : 1, bytes);
    } else if (kind == "hidden_grid_dims") {
      put(at, 1, bytes);
    }
  }
  for (const PointerField& field : paged_attention_pointers) put(field.offset, 0, sizeof(void*));
  return segment;
}

struct Buffer {
  std::size_t bytes;
  const char* direction;
};

/// The declared extent of each tensor, from its first element to its last, whatever lies around it.
Buffer buffer_of(std::string_view name, const PagedAttentionProblem& p, std::size_t workspace) {
  const std::int64_t rows = std::int64_t{p.batch} * p.mtp, d = p.spec.head_size, x = p.spec.unit();
  const auto bytes = [](std::int64_t last, int element) { return static_cast<std::size_t>((last + 1) * element); };
  const auto pages = [&](std::int64_t page, std::int64_t head) {
    return (p.num_pages - 1) * page + (p.num_kv_heads - 1) * head;
  };
  if (name == "q") return {bytes((rows - 1) * p.q_row_stride + (p.num_q_heads - 1) * p.q_head_stride + d - 1, 2), "in"};
  if (name == "out") {
    return {bytes((rows - 1) * p.out_row_stride + (p.num_q_heads - 1) * p.out_head_stride + d - 1, 2), "out"};
  }
  if (name == "lse") return {bytes(rows * p.num_q_heads - 1, 4), "out"};
  if (name == "k") {
    const PagedKeyStrides& s = p.k_strides;
    return {
        bytes(pages(s.page, s.head) + (d / x - 1) * s.unit + (p.block_size - 1) * s.token + x - 1, size_of(p.spec.kv)),
        "in"};
  }
  if (name == "v") {
    const PagedValueStrides& s = p.v_strides;
    const std::int64_t in_head = p.spec.values == ValueLayout::token_major
                                     ? (p.block_size - 1) * s.token + d - 1
                                     : (p.block_size / x - 1) * s.unit + (d - 1) * s.dim + x - 1;
    return {bytes(pages(s.page, s.head) + in_head, size_of(p.spec.kv)), "in"};
  }
  if (name == "k_scale" || name == "v_scale") {
    const bool token = p.spec.quant == Scaling::per_token, head = p.spec.quant == Scaling::per_head;
    const std::int64_t last_head = head ? (p.num_kv_heads - 1) * p.scale_head_stride : 0;
    return {bytes(token ? pages(p.scale_page_stride, p.scale_head_stride) + p.block_size - 1 : last_head, 4), "in"};
  }
  if (name == "sinks" || name == "alibi_slopes") return {bytes(p.num_q_heads - 1, 4), "in"};
  if (name == "block_table") return {bytes((p.batch - 1) * p.table_row_stride + p.table_columns - 1, 4), "in"};
  if (name == "context_lengths") return {bytes(p.batch - 1, 4), "in"};
  if (name == "stage_starts") return {bytes(p.batch, 4), "in"};
  const std::size_t lse = workspace / (d + 1);  // a float for each partial, which has d
  if (name == "partial_out") return {workspace - lse, "scratch"};
  if (name == "partial_lse") return {lse, "scratch"};
  throw std::runtime_error("no extent is known for the pointer " + std::string(name));
}

ordered_json describe(const PagedAttentionProblem& p, int splits) {
  const PagedValueStrides& v = p.v_strides;
  const ordered_json v_strides = p.spec.values == ValueLayout::token_major
                                     ? ordered_json::array({v.page, v.head, v.token, 1})
                                     : ordered_json::array({v.page, v.head, v.unit, v.dim, 1});
  return {{"q_dtype", name_of(p.spec.q)},
          {"kv_dtype", name_of(p.spec.kv)},
          {"out_dtype", name_of(p.spec.out)},
          {"quant_mode", name_of(p.spec.quant)},
          {"head_size", p.spec.head_size},
          {"softmax_scale", p.softmax_scale},
          {"sliding_window", p.sliding_window},
          {"soft_cap", p.soft_cap},
          {"split_tokens", p.split_tokens},
          {"batch", p.batch},
          {"mtp", p.mtp},
          {"num_q_heads", p.num_q_heads},
          {"num_kv_heads", p.num_kv_heads},
          {"block_size", p.block_size},
          {"table_columns", p.table_columns},
          {"num_pages", p.num_pages},
          {"num_splits", splits},
          {"q_strides", {p.q_row_stride, p.q_head_stride, 1}},
          {"out_strides", {p.out_row_stride, p.out_head_stride, 1}},
          {"k_strides", {p.k_strides.page, p.k_strides.head, p.k_strides.unit, p.k_strides.token, 1}},
          {"v_strides", v_strides},
          {"scale_strides", {p.scale_page_stride, p.scale_head_stride, 1}},
          {"table_row_stride", p.table_row_stride}};
}

/// A kernel as entries.json describes it, with its code object.
struct Compiled {
  ordered_json claims;
  Bytes image;
  nlohmann::json metadata;
};
Compiled find_compiled(const fs::path& code_objects, ArchId arch, const std::string& kernel, const std::string& spec,
                       const std::string& policy) {
  const fs::path list = code_objects / "entries.json";
  if (!fs::exists(list)) throw std::runtime_error(list.string() + ": missing; build the target tilewave_code_objects");
  const ordered_json entries = ordered_json::parse(read_file(list));
  for (const ordered_json& entry : entries.at("entries")) {
    if (entry.at("arch") != name_of(arch) || entry.at("kernel") != kernel || entry.at("spec") != spec ||
        entry.at("policy") != policy) {
      continue;
    }
    const std::string file = entry.at("code_object");
    Bytes image = read_file(code_objects / file);
    nlohmann::json metadata = kernel_metadata(image, file);
    return {entry, std::move(image), std::move(metadata)};
  }
  throw std::runtime_error(list.string() + ": no " + kernel + " for " + std::string(name_of(arch)) + " " + spec + " " +
                           policy);
}

class Writer {
 public:
  Writer(fs::path dir, const PagedAttentionCase& c, const PagedAttentionPlan& plan)
      : dir_(std::move(dir)),
        plan_(plan),
        pools_(0, 0),
        tensors_(c, pools_),
        problem_(problem_of(c)),
        workspace_(std::make_unique_for_overwrite<std::byte[]>(plan.workspace_bytes(problem_))) {
    problem_.workspace = workspace_.get();
    args_ = paged_attention_args(problem_, plan.entry->policy, facts_of(plan.entry->arch), plan.splits);
    json_ = {{"schema", "tilewave-bundle/1"},
             {"arch", name_of(c.arch)},
             {"config", name_of(c)},
             {"policy", plan.name()},
             {"description",
              "paged-attention decode, " + name_of(plan.entry->spec) +
                  ": run the launches in order, then compare the outputs; docs/reference/bundle.md explains every key"},
             {"problem", describe(problem_, plan.splits)}};
  }

  void add_launch(const std::string& name, const Compiled& compiled, std::int64_t grid) {
    const nlohmann::json& kernel = compiled.metadata;
    const int block = 64 * compiled.claims.at("waves_per_block").get<int>();
    const Bytes kernarg = kernarg_segment(kernel, args_, grid, block);
    ordered_json pointers = ordered_json::array();
    each_pointer([&](const PointerField& field, const void*, const std::string& file, const Buffer& buffer) {
      pointers.push_back({{"offset", field.offset},
                          {"file", file},
                          {"file_offset", 0},
                          {"bytes", buffer.bytes},
                          {"direction", buffer.direction}});
    });
    const std::string file = name + ".co";
    write_file(dir_ / file, compiled.image.data(), compiled.image.size());
    json_["launches"].push_back({{"name", name},
                                 {"code_object", file},
                                 {"kernel", kernel.at(".name")},
                                 {"symbol", kernel.at(".symbol")},
                                 {"grid_blocks", {grid, 1, 1}},
                                 {"block", {block, 1, 1}},
                                 {"dynamic_lds_bytes", 0},
                                 {"static_lds_bytes", kernel.at(".group_segment_fixed_size")},
                                 {"kernarg_bytes", kernarg.size()},
                                 {"kernarg_hex", hex_of(kernarg)},
                                 {"pointers", std::move(pointers)}});
  }

  void add_buffers() {
    each_pointer([&](const PointerField&, const void* data, const std::string& file, const Buffer& buffer) {
      if (std::string_view(buffer.direction) == "in") write_file(dir_ / file, data, buffer.bytes);
      json_["buffers"].push_back({{"file", file}, {"bytes", buffer.bytes}, {"direction", buffer.direction}});
    });
  }

  void add_outputs(const PagedAttentionCase& c) {
    const reference::PagedAttentionResult expected = reference::paged_attention(problem_);
    const Tolerance tolerance = tolerance_of(c);
    const std::int64_t rows = std::int64_t{problem_.batch} * problem_.mtp;
    ordered_json out = output("out", problem_.spec.out, expected.out);
    if (problem_.spec.out == DType::bf16) {
      std::vector<std::uint16_t> rounded;
      for (const float value : narrow(expected.out)) rounded.push_back(f32_to_bf16(value));
      write_values(dir_ / "out.expected.bf16.bin", rounded);
      out["expected_bf16"] = "out.expected.bf16.bin";
    }
    out["shape"] = {rows, problem_.num_q_heads, problem_.spec.head_size};
    out["strides"] = {problem_.out_row_stride, problem_.out_head_stride, 1};
    out["atol"] = out["rtol"] = tolerance.element;
    out["row_rtol"] = tolerance.row;
    ordered_json lse = output("lse", DType::f32, expected.lse);
    lse["shape"] = {rows, problem_.num_q_heads};
    lse["strides"] = {problem_.num_q_heads, 1};
    lse["atol"] = tolerance.lse;
    lse["rtol"] = 0.0;
    json_["outputs"] = {out, lse};
  }

  void finish() const {
    const std::string text = json_.dump(1) + "\n";
    write_file(dir_ / "bundle.json", text.data(), text.size());
  }

  std::int64_t decode_grid() const {
    if (plan_.entry->policy.balanced()) return args_.balanced_blocks;
    return paged_attention_grid(problem_, plan_.entry->policy, plan_.splits);
  }
  /// A wave of combine takes one output row. After a balanced decode several waves may share one.
  std::int64_t combine_waves() const {
    return std::int64_t{args_.output_rows} * (plan_.entry->policy.balanced() ? args_.combine_waves.divisor : 1);
  }

 private:
  PagedAttentionProblem problem_of(const PagedAttentionCase& c) {
    if (c.stage_starts) {
      const Status status = tensors_.set_stage_starts(plan_.entry->policy);
      if (!status.ok()) throw std::runtime_error(status.reason);
    }
    return tensors_.host_problem();
  }

  /// Calls f(field, address, file, buffer) for every argument that the call does not leave out.
  template <class F>
  void each_pointer(const F& f) const {
    for (const PointerField& field : paged_attention_pointers) {
      const void* value;
      std::memcpy(&value, reinterpret_cast<const char*>(&args_) + field.offset, sizeof(value));
      if (value == nullptr) continue;
      const std::size_t workspace = plan_.workspace_bytes(problem_);
      f(field, value, std::string(field.name) + ".bin", buffer_of(field.name, problem_, workspace));
    }
  }

  static std::vector<float> narrow(const std::vector<double>& values) { return {values.begin(), values.end()}; }

  ordered_json output(const std::string& name, DType dtype, const std::vector<double>& expected) {
    write_values(dir_ / (name + ".expected.f64.bin"), expected);
    write_values(dir_ / (name + ".expected.f32.bin"), narrow(expected));
    return {{"file", name + ".bin"},
            {"expected", name + ".expected.f32.bin"},
            {"expected_f64", name + ".expected.f64.bin"},
            {"dtype", name_of(dtype)}};
  }

  fs::path dir_;
  PagedAttentionPlan plan_;
  KvPoolCache pools_;
  CaseTensors tensors_;
  PagedAttentionProblem problem_;  // pointers that the host can read
  std::unique_ptr<std::byte[]> workspace_;
  PagedAttentionArgs args_;
  ordered_json json_;
};

void write_bundle(const fs::path& dir, const PagedAttentionCase& c, const PagedAttentionPlan& plan,
                  const fs::path& code_objects) {
  if (c.arch == ArchId::sm90) throw std::runtime_error("bundles hold AMD code objects: use --arch=gfx942 or gfx950");
  if (plan.entry == nullptr) throw std::runtime_error("no entry of this build serves the config");
  if (plan.entry->arch != c.arch || !(plan.entry->spec == spec_of(c)))
    throw std::runtime_error("the entry does not fit the case");
  if (c.batch == 0) throw std::runtime_error("a batch of 0 launches nothing");
  const PagedAttentionEntry& entry = *plan.entry;
  const bool balanced = entry.policy.balanced();
  const std::string spec = name_of(entry.spec), policy = name_of(entry.policy, entry.spec);
  const Compiled decode = find_compiled(code_objects, c.arch, "decode", spec, policy);
  const Compiled combine =
      balanced ? find_compiled(code_objects, c.arch, "balanced_combine", spec, policy)
               : find_compiled(code_objects, c.arch, "combine", combine_name(c.head_size, entry.spec.out), "");

  prepare_bundle(dir);
  Writer writer(dir, c, plan);
  writer.add_launch("decode", decode, writer.decode_grid());
  if (balanced || plan.splits > 1) {
    const auto waves = combine.claims.at("waves_per_block").get<std::int64_t>();
    writer.add_launch("combine", combine, ceil_div(writer.combine_waves(), waves));
  }
  writer.add_buffers();
  writer.add_outputs(c);
  writer.finish();
}

}  // namespace

int export_bundle(const std::string& dir, const PagedAttentionCase& c, const PagedAttentionPlan& plan,
                  const std::string& code_objects) try {
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "code_objects";
  write_bundle(dir, c, plan, code_objects.empty() ? beside : fs::path(code_objects));
  return 0;
} catch (const std::exception& error) {
  std::cerr << program_invocation_short_name << ": " << error.what() << "\n";
  return 2;
}

}  // namespace tilewave::bench
