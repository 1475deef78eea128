// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/manifest.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <functional>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

/// One list of keys serves reading and writing, so that neither can forget one.
struct Fields {
  std::function<void(const char*, std::string&)> text;
  std::function<void(const char*, std::vector<std::string>&)> list;
  std::function<void(const char*, bool&)> flag;
  std::function<void(const char*, int&)> count;
  std::function<void(const char*, double&)> number;
};

void visit(Manifest& m, const Fields& f) {
  f.text("name", m.name);
  f.text("target_op", m.target_op);
  f.text("target_backend", m.target_backend);
  f.text("target_lang", m.target_lang);
  f.text("target_gpu", m.target_gpu);
  f.text("execution_mode", m.execution_mode);
  f.text("project_skill", m.project_skill);
  f.text("performance_target", m.performance_target);
  f.text("primary_metric", m.primary_metric);
  f.text("target_shapes", m.target_shapes);
  f.list("kernel_source", m.kernel_source);
  f.text("test_command", m.test_command);
  f.text("benchmark_command", m.benchmark_command);
  f.text("quick_command", m.quick_command);
  f.list("representative_shapes", m.representative_shapes);
  f.flag("git_commit", m.git_commit);
  f.text("git_branch", m.git_branch);
  f.count("max_iterations", m.max_iterations);
  f.text("created", m.created);
  f.text("repository", m.repository);
  f.text("worktree", m.worktree);
  f.text("build_command", m.build_command);
  f.text("format_command", m.format_command);
  f.text("trace_command", m.trace_command);
  f.text("trace_kernel", m.trace_kernel);
  f.text("trace_per_call", m.trace_per_call);
  f.text("skew_command", m.skew_command);
  f.text("upstream", m.upstream);
  f.text("upstream_commit", m.upstream_commit);
  f.text("target_chip", m.target_chip);
  f.text("target_peak", m.target_peak);
  f.text("map", m.map);
  f.list("by", m.by);
  f.list("fixed", m.fixed);
  f.number("tie_percent", m.tie_percent);
  f.text("gpu", m.gpu);
  f.text("gpu_retry", m.gpu_retry);
  f.text("gpu_limit", m.gpu_limit);
  f.text("timeout", m.timeout);
}

void check(const Manifest& m, const std::string& source) {
  const auto need = [&](const char* key, const std::string& value) {
    if (trim(value).empty()) refuse(fmt::format("{}: {} is missing", source, key));
  };
  need("name", m.name), need("target_op", m.target_op), need("target_backend", m.target_backend),
      need("target_gpu", m.target_gpu);
  need("benchmark_command", m.benchmark_command), need("repository", m.repository), need("worktree", m.worktree);
  for (const std::string* word : {&m.name, &m.target_op, &m.target_backend, &m.target_gpu}) {
    // They become names of folders and branches.
    if (word->find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") !=
            std::string::npos ||
        word->starts_with('.') || word->starts_with('-')) {
      refuse(fmt::format("{}: '{}' has characters other than letters, digits, '_', '-' and '.'", source,
                         printable(*word)));
    }
  }
  if (m.execution_mode != "repo" && m.execution_mode != "workspace")
    refuse(source + ": execution_mode is repo or workspace");
  if (m.gpu != "none" && m.gpu != "wait") refuse(source + ": gpu is none or wait");
  if (!contains({"auto", "bf16", "fp8", "fp4"}, m.target_peak))
    refuse(source + ": target_peak is auto, bf16, fp8 or fp4");
  if (m.max_iterations < 0 || m.max_iterations >= 120) refuse(source + ": max_iterations is below 120, or null");
  if (!(m.tie_percent >= 0 && m.tie_percent <= 50)) refuse(source + ": tie_percent is from 0 to 50");
  for (const std::string* duration : {&m.gpu_retry, &m.gpu_limit, &m.timeout}) seconds_of(*duration);
}

std::string scalar(const YAML::Node& node, const char* key, const std::string& source) {
  if (node.IsNull()) return "";
  if (!node.IsScalar()) refuse(fmt::format("{}: {} is no single value", source, key));
  return node.Scalar();
}

}  // namespace

Manifest parse_manifest(std::string_view yaml, const std::string& source) {
  YAML::Node root;
  try {
    root = YAML::Load(std::string(yaml));
  } catch (const YAML::Exception& error) {
    refuse(fmt::format("{} is no YAML: {}", source, printable(error.what(), 200)));
  }
  if (!root.IsMap()) refuse(source + " is no manifest: no keys");
  std::map<std::string, YAML::Node> nodes;
  for (const auto& item : root) {
    if (!item.first.IsScalar()) refuse(source + ": a key that is no word");
    if (!nodes.emplace(item.first.Scalar(), item.second).second)
      refuse(fmt::format("{}: {} comes twice", source, printable(item.first.Scalar())));
  }
  std::set<std::string> known;
  const auto with = [&](const char* key, const std::function<void(const YAML::Node&)>& use) {
    known.insert(key);
    const auto found = nodes.find(key);
    static const std::vector<std::string> later{"trace_per_call", "skew_command", "target_chip",
                                                "target_peak",    "upstream",     "upstream_commit"};
    if (found == nodes.end() && contains(later, key)) return;  // of an earlier version
    if (found == nodes.end()) refuse(fmt::format("{}: {} is missing", source, key));
    use(found->second);
  };
  Manifest m;
  visit(m, {.text = [&](const char* key,
                        std::string& to) { with(key, [&](const YAML::Node& n) { to = scalar(n, key, source); }); },
            .list =
                [&](const char* key, std::vector<std::string>& to) {
                  with(key, [&](const YAML::Node& n) {
                    to.clear();
                    if (n.IsNull()) return;
                    if (!n.IsSequence()) refuse(fmt::format("{}: {} is no list", source, key));
                    for (const auto& item : n) to.push_back(scalar(item, key, source));
                  });
                },
            .flag =
                [&](const char* key, bool& to) {
                  with(key, [&](const YAML::Node& n) {
                    const std::string word = scalar(n, key, source);
                    if (word != "true" && word != "false") refuse(fmt::format("{}: {} is true or false", source, key));
                    to = word == "true";
                  });
                },
            .count =
                [&](const char* key, int& to) {
                  with(key, [&](const YAML::Node& n) {
                    const std::string word = scalar(n, key, source);
                    const auto value = integer(word);
                    if (!n.IsNull() && (!value || *value < 0 || *value > 1000000))
                      refuse(fmt::format("{}: {} is no count", source, key));
                    to = n.IsNull() ? 0 : static_cast<int>(*value);
                  });
                },
            .number =
                [&](const char* key, double& to) {
                  with(key, [&](const YAML::Node& n) {
                    const auto value = number(scalar(n, key, source));
                    if (!value) refuse(fmt::format("{}: {} is no number", source, key));
                    to = *value;
                  });
                }});
  for (const auto& [key, node] : nodes) {
    if (!known.contains(key)) refuse(fmt::format("{}: '{}' is no key of a manifest", source, printable(key)));
  }
  check(m, source);
  return m;
}

std::string yaml_of(const Manifest& manifest) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  Manifest m = manifest;
  const auto key = [&](const char* name) -> YAML::Emitter& { return out << YAML::Key << name << YAML::Value; };
  visit(m, {.text = [&](const char* name,
                        std::string& v) { v.empty() ? key(name) << YAML::Null : key(name) << YAML::DoubleQuoted << v; },
            .list =
                [&](const char* name, std::vector<std::string>& v) {
                  key(name) << YAML::BeginSeq;
                  for (const std::string& item : v) out << YAML::DoubleQuoted << item;
                  out << YAML::EndSeq;
                },
            .flag = [&](const char* name, bool& v) { key(name) << v; },
            .count = [&](const char* name, int& v) { v == 0 ? key(name) << YAML::Null : key(name) << v; },
            .number = [&](const char* name, double& v) { key(name) << v; }});
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

std::string branch_of(const Manifest& m) {
  if (m.git_branch == "none" || !m.git_commit) return "";
  return m.git_branch == "auto" ? "optimize/" + m.name : m.git_branch;
}

std::string fixed_part(const Manifest& m) {
  std::string part =
      join({m.benchmark_command, m.test_command, m.quick_command, m.trace_command, m.target_shapes, m.map,
            join(m.by, ","), join(m.fixed, ","), m.primary_metric, m.target_gpu, fmt::format("{}", m.tie_percent)},
           "\n");
  for (const std::string* later : {&m.trace_kernel, &m.trace_per_call, &m.skew_command}) {
    if (!later->empty()) part += "\n" + *later;  // so that campaigns of before can go on
  }
  return part;
}

}  // namespace tilewave::tool
