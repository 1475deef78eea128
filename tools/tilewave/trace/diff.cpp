// SPDX-License-Identifier: MIT
#include "tools/tilewave/trace/diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/registers.hpp"

namespace tilewave::tool {

namespace {

/// Returns the part of an instruction that names it whatever its registers are; for a wait it includes the counts.
std::string_view key_of(const std::string& text) {
  const std::string_view view(text);
  return view.starts_with("s_waitcnt") ? view : view.substr(0, view.find(' '));
}

/// Pairs by name, the n-th of a name with the n-th, then the only ones that are left over.
template <class T, class Name>
std::vector<std::pair<const T*, const T*>> paired(const std::vector<T>& base, const std::vector<T>& next,
                                                  const Name& name_of) {
  std::vector<std::pair<const T*, const T*>> pairs;
  std::vector<const T*> left;
  for (const T& t : next) left.push_back(&t);
  for (const T& b : base) {
    const auto same = std::find_if(left.begin(), left.end(), [&](const T* t) {
      return plain_kernel_name(name_of(*t)) == plain_kernel_name(name_of(b));
    });
    pairs.emplace_back(&b, same == left.end() ? nullptr : *same);
    if (same != left.end()) left.erase(same);
  }
  const auto alone = [](const auto& pair) { return pair.second == nullptr; };
  if (left.size() == 1 && std::count_if(pairs.begin(), pairs.end(), alone) == 1) {
    std::find_if(pairs.begin(), pairs.end(), alone)->second = left.front();
    left.clear();
  }
  for (const T* t : left) pairs.emplace_back(nullptr, t);
  return pairs;
}

template <class T, class Name>
std::string name_of_pair(const T* base, const T* next, const Name& name_of) {
  if (next == nullptr) return name_of(*base) + " (only in the base)";
  if (base == nullptr) return name_of(*next) + " (only in the new one)";
  const std::string was = name_of(*base), is = name_of(*next);
  return plain_kernel_name(was) == plain_kernel_name(is) ? is : was + ", now " + is;
}

void add_launch(KernelChange& change, const KernelTime* base, const KernelTime* next, const Chip* chip) {
  const auto add = [&](const char* what, const auto& value) {
    Change c{what, {}, {}};
    if (base != nullptr) c.base = value(*base);
    if (next != nullptr) c.next = value(*next);
    if (c.base || c.next) change.of_launch.push_back(c);
  };
  using Maybe = std::optional<double>;
  add("calls", [](const KernelTime& k) { return Maybe(static_cast<double>(k.calls)); });
  add("mean us", [](const KernelTime& k) { return Maybe(k.mean_us()); });
  add("us in all", [](const KernelTime& k) { return Maybe(k.total_us); });
  if (chip != nullptr) {
    add("waves per SIMD", [&](const KernelTime& k) {
      const auto o = occupancy_of(k, *chip);
      return o && o->perhaps == 0 ? Maybe(o->waves) : Maybe();
    });
    add("registers", [&](const KernelTime& k) {
      const auto o = occupancy_of(k, *chip);
      return o && o->perhaps == 0 ? Maybe(o->registers) : Maybe();
    });
  }
  for (const auto& [key, what] : {std::pair("lds_bytes", "LDS bytes"), std::pair("scratch_bytes", "scratch bytes")}) {
    add(what, [key = key](const KernelTime& k) {
      const auto found = k.launch.find(key);
      return found == k.launch.end() ? Maybe() : Maybe(found->second);
    });
  }
}

using Numbers = std::map<std::string, double>;

void add_numbers(KernelChange& change, const Numbers& base, const Numbers& next) {
  std::map<std::string, Change> all;
  for (const auto& [name, value] : base) all[name].base = value;
  for (const auto& [name, value] : next) all[name].next = value;
  for (auto& [name, c] : all) c.what = name, change.of_counter.push_back(c);
}

/// Counters of a kernel, or what ncu measured of it.
Numbers numbers_of(const Profile& p, const std::string& kernel) {
  Numbers numbers;
  if (p.counters) {
    for (const auto& [name, means] : p.counters->per_dispatch)
      if (plain_kernel_name(name) == plain_kernel_name(kernel)) numbers.insert(means.begin(), means.end());
  }
  for (const NcuKernel& k : p.ncu) {
    if (plain_kernel_name(k.kernel) != plain_kernel_name(kernel)) continue;
    for (const NcuMetric& m : k.metrics) numbers[m.unit.empty() ? m.name : m.name + ", " + m.unit] = m.value;
  }
  return numbers;
}

struct Named {
  std::string name;
  const KernelTime* time = nullptr;
};

std::vector<Named> kernels_of(const Profile& p) {
  std::vector<Named> kernels;
  if (p.times) {
    for (const KernelTime& k : p.times->kernels) kernels.push_back({k.name, &k});
  }
  const auto add = [&](const std::string& name) {
    const auto known = [&](const Named& k) { return plain_kernel_name(k.name) == plain_kernel_name(name); };
    if (std::none_of(kernels.begin(), kernels.end(), known)) kernels.push_back({name, nullptr});
  };
  if (p.counters) {
    for (const auto& [name, means] : p.counters->per_dispatch) add(name);
  }
  for (const NcuKernel& k : p.ncu) add(k.kernel);
  return kernels;
}

/// Cycles are of all traced waves, of which there may be more or fewer: of one wave.
double share_of_wave(const ThreadTrace& trace) {
  if (trace.unit != "cycles") return 1;
  std::int64_t waves = 1;
  if (!trace.code.empty()) waves = std::max<std::int64_t>(waves, trace.code.front().hits);
  return 1 / static_cast<double>(waves);
}

std::string place_of(const Instruction& i) { return i.at.empty() ? fmt::format("{:#x}", i.address) : i.at; }

TraceChange change_of(const ThreadTrace& base, const ThreadTrace& next) {
  TraceChange change;
  const double of_base = share_of_wave(base), of_next = share_of_wave(next);
  change.unit = base.unit == "cycles" ? "cycles of a wave" : base.unit;
  change.base_latency = static_cast<double>(base.latency) * of_base;
  change.next_latency = static_cast<double>(next.latency) * of_next;
  std::map<std::string, Change> kinds;
  for (const auto& [kind, stall] : stalls_by_class(base)) kinds[kind].base = static_cast<double>(stall) * of_base;
  for (const auto& [kind, stall] : stalls_by_class(next)) kinds[kind].next = static_cast<double>(stall) * of_next;
  for (auto& [kind, c] : kinds) c.what = kind, change.kinds.push_back(c);
  const auto take_base = [&](InstructionChange& c, const Instruction& i) {
    c.what = i.text, c.kind = kind_of(i), c.source = i.source, c.base_address = place_of(i);
    c.base_hits = static_cast<double>(i.hits) * of_base, c.base_stall = static_cast<double>(i.stall) * of_base;
  };
  const auto take_next = [&](InstructionChange& c, const Instruction& i) {
    c.what = i.text, c.kind = kind_of(i), c.next_address = place_of(i);
    if (!i.source.empty()) c.source = i.source;
    c.next_hits = static_cast<double>(i.hits) * of_next, c.next_stall = static_cast<double>(i.stall) * of_next;
  };
  std::size_t b = 0, n = 0;
  auto pairs = aligned(base.code, next.code);
  change.kept = pairs.size(), change.gone = base.code.size() - pairs.size(),
  change.added = next.code.size() - pairs.size();
  pairs.emplace_back(base.code.size(), next.code.size());
  for (const auto& [to_b, to_n] : pairs) {
    for (; b < to_b; ++b) take_base(change.instructions.emplace_back(), base.code[b]);
    for (; n < to_n; ++n) take_next(change.instructions.emplace_back(), next.code[n]);
    if (b == base.code.size() || n == next.code.size()) break;
    InstructionChange& both = change.instructions.emplace_back();
    take_base(both, base.code[b++]);
    take_next(both, next.code[n++]);
  }
  return change;
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> aligned(const std::vector<Instruction>& base,
                                                         const std::vector<Instruction>& next) {
  std::vector<std::pair<std::size_t, std::size_t>> head, tail;
  std::size_t begin = 0, b_end = base.size(), n_end = next.size();
  while (begin < b_end && begin < n_end && base[begin].text == next[begin].text)
    head.emplace_back(begin, begin), ++begin;
  while (b_end > begin && n_end > begin && base[b_end - 1].text == next[n_end - 1].text)
    tail.emplace_back(--b_end, --n_end);
  const std::size_t rows = b_end - begin, columns = n_end - begin;
  constexpr std::size_t most = std::size_t{1} << 27;  // bytes; codes of more than 11000 instructions that share no end
  if (rows > 0 && columns > 0 && rows <= most / columns) {
    // Best sum of what follows (i, j): equal text counts for two, an equal key for one.
    enum : std::uint8_t { both, skip_base, skip_next };
    std::vector<std::uint8_t> choice(rows * columns);
    std::vector<std::uint32_t> below(columns + 1, 0), here(columns + 1, 0);
    for (std::size_t i = rows; i-- > 0;) {
      here[columns] = 0;
      const std::string& text = base[begin + i].text;
      const std::string_view key = key_of(text);
      for (std::size_t j = columns; j-- > 0;) {
        const std::string& other = next[begin + j].text;
        const std::uint32_t same = text == other ? 2 : key == key_of(other) ? 1 : 0;
        std::uint8_t best = below[j] >= here[j + 1] ? skip_base : skip_next;
        here[j] = std::max(below[j], here[j + 1]);
        if (same > 0 && below[j + 1] + same >= here[j]) here[j] = below[j + 1] + same, best = both;
        choice[i * columns + j] = best;
      }
      std::swap(here, below);
    }
    for (std::size_t i = 0, j = 0; i < rows && j < columns;) {
      const std::uint8_t c = choice[i * columns + j];
      if (c == both) head.emplace_back(begin + i, begin + j);
      i += c != skip_next, j += c != skip_base;
    }
  }
  head.insert(head.end(), tail.rbegin(), tail.rend());
  return head;
}

ProfileDiff diff_of(const Profile& base, const Profile& next, const Chip* chip) {
  ProfileDiff diff;
  bool any = false;
  const auto kernel_name = [](const Named& k) { return k.name; };
  const auto base_kernels = kernels_of(base), next_kernels = kernels_of(next);
  for (const auto& [b, n] : paired(base_kernels, next_kernels, kernel_name)) {
    KernelChange change{name_of_pair(b, n, kernel_name), {}, {}};
    any = any || (b != nullptr && n != nullptr);
    add_launch(change, b == nullptr ? nullptr : b->time, n == nullptr ? nullptr : n->time, chip);
    add_numbers(change, b == nullptr ? Numbers() : numbers_of(base, b->name),
                n == nullptr ? Numbers() : numbers_of(next, n->name));
    diff.kernels.push_back(std::move(change));
  }
  const auto moved = [](const KernelChange& k) {
    for (const Change& c : k.of_launch)
      if (c.what == "us in all") return std::abs(c.next.value_or(0) - c.base.value_or(0));
    return 0.0;
  };
  std::stable_sort(diff.kernels.begin(), diff.kernels.end(),
                   [&](const KernelChange& a, const KernelChange& b) { return moved(a) > moved(b); });
  const auto trace_name = [](const ThreadTrace& t) {
    return t.kernel.empty() ? std::string("a kernel without a name") : t.kernel;
  };
  for (const auto& [b, n] : paired(base.traces, next.traces, trace_name)) {
    if (b == nullptr || n == nullptr || b->unit != n->unit) continue;
    any = true;
    diff.traces.push_back(change_of(*b, *n));
    diff.traces.back().name = name_of_pair(b, n, trace_name);
  }
  if (!any) refuse("the two profiles have no kernel in common");
  return diff;
}

}  // namespace tilewave::tool
