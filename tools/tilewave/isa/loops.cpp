// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "tools/tilewave/isa/listing.hpp"

namespace tilewave::tool {

namespace {

using Graph = std::vector<std::vector<int>>;

bool multiplies(const AsmLine& line) { return std::string_view(kind_of(line.mnemonic)) == "matrix"; }

/// Returns for each instruction the indices of those that may come next, as far as they are here.
Graph successors(const Listing& lines) {
  std::unordered_map<std::uint64_t, int> index_of;
  for (std::size_t n = 0; n < lines.size(); ++n) index_of[lines[n].address] = static_cast<int>(n);
  Graph following(lines.size());
  const auto add = [&](std::size_t n, std::uint64_t address) {
    if (const auto found = index_of.find(address); found != index_of.end()) following[n].push_back(found->second);
  };
  for (std::size_t n = 0; n < lines.size(); ++n) {
    if (lines[n].falls_through) add(n, lines[n].address + static_cast<std::uint64_t>(lines[n].bytes));
    if (lines[n].target >= 0) add(n, static_cast<std::uint64_t>(lines[n].target));
  }
  return following;
}

/// Strongly connected parts of the graph of `nodes`, those without a cycle left out: Tarjan's algorithm with a stack of its own.
std::vector<std::set<int>> connected(const Graph& following, const std::set<int>& nodes) {
  std::unordered_map<int, int> order, low;
  std::set<int> on_path;
  std::vector<int> path;
  std::vector<std::set<int>> found;
  for (const int root : nodes) {
    if (order.contains(root)) continue;
    struct Frame {
      int node;
      std::size_t next;
    };
    std::vector<Frame> work;
    const auto enter = [&](int node) {
      const int number = static_cast<int>(order.size());
      order[node] = low[node] = number;
      path.push_back(node);
      on_path.insert(node);
      work.push_back({node, 0});
    };
    enter(root);
    while (!work.empty()) {
      const int node = work.back().node;
      if (work.back().next < following[node].size()) {
        const int to = following[node][work.back().next++];
        if (!nodes.contains(to)) continue;
        if (!order.contains(to)) {
          enter(to);
        } else if (on_path.contains(to)) {
          low[node] = std::min(low[node], order[to]);
        }
        continue;
      }
      work.pop_back();
      if (!work.empty()) low[work.back().node] = std::min(low[work.back().node], low[node]);
      if (low[node] != order[node]) continue;
      std::set<int> part;
      int last = -1;
      while (last != node) {
        last = path.back();
        path.pop_back();
        on_path.erase(last);
        part.insert(last);
      }
      const auto& out = following[node];
      if (part.size() > 1 || std::find(out.begin(), out.end(), node) != out.end()) found.push_back(std::move(part));
    }
  }
  return found;
}

/// Returns how much of the work is among some instructions.
template <class Weight>
std::int64_t sum(const std::set<int>& part, const Weight& weight) {
  std::int64_t total = 0;
  for (const int n : part) total += weight(n);
  return total;
}

struct Way {
  std::array<std::int64_t, 3> worth{-1, 0, 0};
  std::vector<int> nodes{};
};

/// Returns the longest way from `head` back to it. Ways that cross themselves elsewhere are left out.
Way longest_way(const Listing& loop, const Graph& following, int head) {
  std::vector<int> order, position(loop.size(), -1), state(loop.size(), 0);
  std::vector<std::pair<int, std::size_t>> work{{head, 0}};
  state[head] = 1;
  while (!work.empty()) {  // depth first: what may follow a node comes before it in `order`
    auto& [node, next] = work.back();
    if (next < following[node].size()) {
      const int to = following[node][next++];
      if (state[to] == 0) {
        state[to] = 1;
        work.push_back({to, 0});
      }
    } else {
      position[node] = static_cast<int>(order.size());
      order.push_back(node);
      work.pop_back();
    }
  }
  struct Reach {
    std::array<std::int64_t, 3> worth{-1, 0, 0};
    int to = -1;
  };
  std::vector<Reach> reach(loop.size());
  for (const int node : order) {
    Reach best;
    for (const int to : following[node]) {
      if (to == head && best.worth < std::array<std::int64_t, 3>{0, 0, 0}) best = {{0, 0, 0}, -1};
      if (to != head && position[to] >= 0 && position[to] < position[node] && best.worth < reach[to].worth)
        best = {reach[to].worth, to};
    }
    if (best.worth[0] < 0) continue;
    const AsmLine& line = loop[node];
    reach[node] = {{best.worth[0] + multiplies(line), best.worth[1] + load_bytes(line.mnemonic), best.worth[2] - 1},
                   best.to};
  }
  Way way{reach[head].worth, {}};
  if (way.worth[0] < 0) return way;
  for (int node = head; node >= 0; node = reach[node].to) way.nodes.push_back(node);
  return way;
}

/// The outermost loops with some of the weight, without what only repeats a loop of their own that has all of it, as persistent
/// blocks do: that one takes their place. Its places in the kernel.
template <class Weight>
std::vector<std::set<int>> steady_loops(const Graph& following, const Weight& weight) {
  std::set<int> reached;
  std::vector<int> work{0};  // not so the padding in front of a loop that is jumped to
  while (!work.empty()) {
    const int n = work.back();
    work.pop_back();
    if (reached.insert(n).second) work.insert(work.end(), following[n].begin(), following[n].end());
  }
  auto loops = connected(following, reached);
  std::erase_if(loops, [&](const std::set<int>& loop) { return sum(loop, weight) == 0; });
  // Without the instructions it is entered at, only what repeats inside a loop is still connected.
  for (std::set<int>& loop : loops) {
    for (bool inner = true; inner;) {
      inner = false;
      std::set<int> rest = loop;
      for (const int n : reached)
        if (!loop.contains(n))
          for (const int to : following[n]) rest.erase(to);
      if (rest.size() == loop.size()) break;  // nothing stands before it
      for (std::set<int>& part : connected(following, rest)) {
        if (sum(part, weight) != sum(loop, weight)) continue;
        loop = std::move(part);
        inner = true;
        break;
      }
    }
  }
  return loops;
}

Listing lines_at(const std::set<int>& indices, const Listing& kernel) {
  Listing lines;
  for (const int n : indices) lines.push_back(kernel[n]);
  return lines;
}

}  // namespace

std::vector<Listing> matrix_loops(const Listing& kernel) {
  std::vector<Listing> loops;
  if (std::none_of(kernel.begin(), kernel.end(), multiplies)) return loops;
  for (const std::set<int>& loop :
       steady_loops(successors(kernel), [&](int n) { return std::int64_t{multiplies(kernel[n])}; }))
    loops.push_back(lines_at(loop, kernel));
  return loops;
}

Listing most_products(std::vector<Listing> loops, bool shortest) {
  Listing best;
  std::int64_t most = 0;
  for (Listing& loop : loops) {
    const std::int64_t found = std::count_if(loop.begin(), loop.end(), multiplies);
    const bool other = shortest ? loop.size() < best.size() : loop.size() > best.size();
    if (found > most || (found == most && other)) best = std::move(loop), most = found;
  }
  return best;
}

Listing steady_loop(const Listing& kernel) {
  if (kernel.empty()) return {};
  if (std::vector<Listing> loops = matrix_loops(kernel); !loops.empty()) return most_products(std::move(loops));
  const auto loaded = [&](int n) { return std::int64_t{load_bytes(kernel[n].mnemonic)}; };
  std::set<int> best;
  std::int64_t most = 0;
  for (std::set<int>& loop : steady_loops(successors(kernel), loaded)) {
    const std::int64_t found = sum(loop, loaded);
    if (found > most || (found == most && loop.size() > best.size())) best = std::move(loop), most = found;
  }
  return lines_at(best, kernel);
}

Listing steady_path(const Listing& loop) {
  const Graph following = successors(loop);
  std::set<int> heads;  // where the loop may be entered again
  for (int n = 0; n < static_cast<int>(loop.size()); ++n)
    for (const int to : following[n])
      if (to <= n) heads.insert(to);
  Way best;
  for (const int head : heads) {
    Way way = longest_way(loop, following, head);
    if (best.worth < way.worth) best = std::move(way);
  }
  Listing lines;
  for (const int n : best.nodes) lines.push_back(loop[n]);
  return lines;
}

}  // namespace tilewave::tool
