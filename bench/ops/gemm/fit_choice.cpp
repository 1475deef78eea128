// SPDX-License-Identifier: MIT
// fit_choice SPEC[,SPEC...] ROWS.csv... [-- ROWS.csv...] fits the constants of gemm_cost_dense_sm90 to measured times,
// and writes them as choice/policy_costs_sm90.hpp has them. Rows behind -- are held out: they are judged, not fitted.
//
// ROWS: columns spec, m, n, k, plan, us, best_us and samples, as docs/notebook/tuned has them. Specs that are named
// together have the same constants. The fit is Levenberg and Marquardt's, on logarithms of times: only the order of the
// plans of a shape counts for a choice, so an error that all of them have counts a thirtieth.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/ops/gemm/recorded_names.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace {

using namespace tilewave;
using bench::recorded_name, bench::recorded_spec;
using PolicyCost = tilewave::detail::GemmPolicyCost;

constexpr int shared_count = sizeof(GemmDenseCost) / sizeof(double);
constexpr int policy_count = 7;  // start, stage, tile, merge, split, memory, crowd
// How far a constant usually is from where it starts: the unit of steps, of differences and of the pull to the start.
constexpr double shared_units[shared_count] = {.3, .6, .6, .6, .6, .6, .1, .5, .1, .1, .5, .2, 15,
                                               .1, .4, 1,  .1, .1, .1, .1, .5, .3, .5, .3, .1, .3};
constexpr double policy_units[policy_count] = {.6, .03, .6, .6, .25, .06, .1};
constexpr double pull = 1e-4, difference = .02;
constexpr double level = 1.0 / 30;  // of an error that all plans of a shape have
constexpr double outlier = .15;     // a logarithm that is farther off counts less

struct Constants {
  GemmDenseCost shared;
  std::vector<PolicyCost> policies;

  double& of_shared(int i) { return (&shared.memory)[i]; }
  double& of_policy(std::size_t policy, int i) { return (&policies[policy].start)[i]; }
  int count() const { return shared_count + policy_count * static_cast<int>(policies.size()); }
  double& at(int i) {
    if (i < shared_count) return of_shared(i);
    return of_policy((i - shared_count) / policy_count, (i - shared_count) % policy_count);
  }
  static double unit(int i) {
    return i < shared_count ? shared_units[i] : policy_units[(i - shared_count) % policy_count];
  }
  /// Keeps constants where they mean something.
  void clamp() {
    for (int i = 0; i < shared_count; ++i) of_shared(i) = std::max(of_shared(i), i < 6 ? 2.5 : 0.0);
    shared.intake = std::max(shared.intake, 60.0);
    for (PolicyCost& p : policies) {
      p.stage = std::max(p.stage, .02), p.tile = std::max(p.tile, 0.0), p.merge = std::max(p.merge, -1.0);
      p.memory = std::max(p.memory, .5);
    }
  }
};

struct Plan {
  int policy;  // of Constants
  GemmPolicy how;
  int splits;
  double us, samples, modelled = 1e9;
};
struct Shape {
  std::string name;
  GemmProblem problem;
  double best = 1e30;
  std::vector<Plan> plans;
};

double modelled(const Shape& shape, const Plan& plan, const Constants& c) {
  return gemm_model_dense_sm90(shape.problem, shape.problem.m, plan.how, plan.splits, c.shared,
                               c.policies[plan.policy]);
}

/// All plans of the specs by name, and the constants of their policies as they are.
class Specs {
 public:
  explicit Specs(const std::string& names) {
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) add(name);
  }
  Constants start;

  std::vector<Shape> read(const std::vector<std::string>& paths) const {
    std::map<std::string, Shape> shapes;
    for (const std::string& path : paths) {
      std::ifstream file(path);
      std::string line;
      std::getline(file, line);
      std::map<std::string, std::size_t> column;
      std::istringstream header(line);
      for (std::string name; std::getline(header, name, ',');) column.emplace(name, column.size());
      while (std::getline(file, line)) {
        std::vector<std::string> cells;
        std::istringstream row(line);
        for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
        const auto cell = [&](const char* name) { return cells[column.at(name)]; };
        const auto plan = plans_.find(cell("spec") + " " + recorded_name(cell("plan")));
        if (plan == plans_.end()) continue;
        const std::string run = column.contains("run") ? "run " + cell("run") + " " : "";
        Shape& shape =
            shapes[path + " " + run + cell("spec") + " " + cell("m") + " x " + cell("n") + " x " + cell("k")];
        shape.problem.spec = recorded_spec(cell("spec"));
        shape.problem.m = std::stoi(cell("m")), shape.problem.n = std::stoi(cell("n")),
        shape.problem.k = std::stoi(cell("k"));
        shape.problem.a_stride = shape.problem.b_stride = shape.problem.k, shape.problem.out_stride = shape.problem.n;
        Plan timed = plan->second;
        timed.us = std::stod(cell("us")), timed.samples = std::stod(cell("samples"));
        // Mostly the median. Of a dozen samples it has a noise of 1 to 2 %, which the least one has not.
        if (timed.samples >= 4) timed.us = 0.7 * timed.us + 0.3 * std::stod(cell("best_us"));
        shape.best = std::min(shape.best, timed.us);
        shape.plans.push_back(timed);
      }
    }
    std::vector<Shape> all;
    for (auto& [name, shape] : shapes) {
      shape.name = name;
      if (shape.plans.size() > 1) all.push_back(shape);
    }
    return all;
  }

 private:
  std::map<std::string, Plan> plans_;
  std::map<std::string, int> policies_;

  void add(const std::string& name) {
    const GemmSpec spec = recorded_spec(name);
    start.shared = gemm_dense_cost(spec);
    const GemmPolicies policies = gemm_policies(ArchId::sm90, spec);
    for (int i = 0; i < policies.count; ++i) {
      if (policies[i].leaves_room()) continue;
      const std::string policy = recorded_name(name_of(policies[i]));
      if (policies_.emplace(policy, start.policies.size()).second) {
        PolicyCost cost = gemm_policy_cost(spec, policies[i]);
        cost.rows = policies[i].rows, cost.columns = policies[i].columns,
        cost.form = tilewave::detail::gemm_form(policies[i]);
        cost.waves_rows =
            cost.form == tilewave::detail::GemmForm::few_rows ? policies[i].waves_per_simd : policies[i].waves_rows;
        start.policies.push_back(cost);
      }
      for (int splits = 1; splits <= policies[i].splits; ++splits) {
        const std::string by = splits > 1 ? ".by" + std::to_string(splits) : "";
        plans_[name + " " + policy + by] = {policies_[policy], policies[i], splits, 0, 0};
      }
    }
  }
};

void report(const char* title, const std::vector<Shape>& shapes, const Constants& c, bool far) {
  double loss = 0, within_3 = 0, within_5 = 0, worst = 0;
  for (const Shape& shape : shapes) {
    const auto chosen = std::min_element(shape.plans.begin(), shape.plans.end(), [&](const Plan& a, const Plan& b) {
      return modelled(shape, a, c) < modelled(shape, b, c);
    });
    const double longer = chosen->us / shape.best - 1;
    loss += longer, within_3 += longer <= .03, within_5 += longer <= .05, worst = std::max(worst, longer);
    if (far && longer > .05)
      std::fprintf(stderr, "%5.1f %% %s, %d of K\n", 100 * longer, (shape.name + " " + name_of(chosen->how)).c_str(),
                   chosen->splits);
  }
  const double n = std::max<double>(1, shapes.size()) / 100;
  std::fprintf(stderr, "%-9s %4zu shapes, loss %.2f %%, within 3 %% %.1f %%, within 5 %% %.1f %%, worst %.1f %%\n",
               title, shapes.size(), loss / n, within_3 / n, within_5 / n, 100 * worst);
}

/// A plan counts by its samples, and by how near the best it is or is taken to be.
double weight(const Shape& shape, const Plan& plan) {
  const double off = (std::min(plan.us, std::max(shape.best, plan.modelled)) / shape.best - 1) / .08;
  return std::min(1.0, plan.samples / 10) / (1 + off * off) * 10 / shape.plans.size();
}
double robust(double error) { return 1 / (1 + error * error / (outlier * outlier)); }

/// The errors of a shape's plans less most of what all of them have.
struct Errors {
  std::vector<double> plain, centred, weights;
  double sum = 0;

  Errors(const Shape& shape, const Constants& c) {
    double mean = 0;
    for (const Plan& plan : shape.plans) {
      const double us = modelled(shape, plan, c);
      plain.push_back(us < 1e5 ? std::log(us / plan.us) : 0);
      weights.push_back(us < 1e5 ? weight(shape, plan) : 0);
      const double w = weights.back() * robust(plain.back());
      mean += w * plain.back(), sum += w;
    }
    mean /= std::max(sum, 1e-9);
    for (const double error : plain) centred.push_back(error - (1 - level) * mean);
  }
};

double objective(const std::vector<Shape>& shapes, Constants c, Constants start) {
  double total = 0;
  for (const Shape& shape : shapes) {
    const Errors errors(shape, c);
    for (std::size_t i = 0; i < errors.centred.size(); ++i)
      total += errors.weights[i] * outlier * outlier * std::log(1 + std::pow(errors.centred[i] / outlier, 2));
  }
  for (int i = 0; i < c.count(); ++i) total += pull * std::pow((c.at(i) - start.at(i)) / Constants::unit(i), 2);
  return total;
}

/// The normal equations of all shapes.
struct Equations {
  std::vector<double> matrix, gradient;

  Equations(const std::vector<Shape>& shapes, Constants c, Constants start)
      : matrix(std::size_t(c.count()) * c.count()), gradient(c.count()) {
    const int count = c.count();
    using Row = std::vector<std::pair<int, double>>;
    for (const Shape& shape : shapes) {
      const Errors errors(shape, c);
      std::map<int, double> mean;
      for (std::size_t p = 0; p < shape.plans.size(); ++p) {
        const Plan& plan = shape.plans[p];
        if (errors.weights[p] == 0) continue;
        Row row;
        const auto differ = [&](int i) {
          double& x = c.at(i);
          const double old = x;
          x += difference * Constants::unit(i);
          const double d = (std::log(modelled(shape, plan, c) / plan.us) - errors.plain[p]) / difference;
          x = old;
          if (d != 0) row.push_back({i, d});
        };
        for (int i = 0; i < shared_count; ++i) differ(i);
        for (int i = 0; i < policy_count; ++i) differ(shared_count + plan.policy * policy_count + i);
        const double w = errors.weights[p] * robust(errors.centred[p]);
        for (const auto& [a, x] : row) {
          gradient[a] += w * x * errors.centred[p];
          mean[a] += errors.weights[p] * robust(errors.plain[p]) * x;
          for (const auto& [b, y] : row) matrix[std::size_t(a) * count + b] += w * x * y;
        }
      }
      const double part = (1 - level * level) / std::max(errors.sum, 1e-9);
      for (const auto& [a, x] : mean)
        for (const auto& [b, y] : mean) matrix[std::size_t(a) * count + b] -= part * x * y;
    }
    for (int i = 0; i < count; ++i) {
      matrix[std::size_t(i) * count + i] += pull;
      gradient[i] += pull * (c.at(i) - start.at(i)) / Constants::unit(i);
    }
  }
  /// Returns the step of damped equations, or nothing where they are not positive.
  std::vector<double> solved(double damping) const {
    const int count = static_cast<int>(gradient.size());
    std::vector<double> lower = matrix, x = gradient;
    const auto at = [&](int a, int b) -> double& { return lower[std::size_t(a) * count + b]; };
    for (int a = 0; a < count; ++a) at(a, a) += damping * (matrix[std::size_t(a) * count + a] + 1e-3);
    for (int a = 0; a < count; ++a) {
      for (int b = 0; b <= a; ++b) {
        double sum = at(a, b);
        for (int i = 0; i < b; ++i) sum -= at(a, i) * at(b, i);
        if (a == b && sum <= 0) return {};
        at(a, b) = a == b ? std::sqrt(sum) : sum / at(b, b);
      }
    }
    for (int a = 0; a < count; ++a) {
      for (int i = 0; i < a; ++i) x[a] -= at(a, i) * x[i];
      x[a] /= at(a, a);
    }
    for (int a = count - 1; a >= 0; --a) {
      for (int i = a + 1; i < count; ++i) x[a] -= at(i, a) * x[i];
      x[a] /= at(a, a);
    }
    return x;
  }
};

Constants fitted(std::vector<Shape>& shapes, const Constants& start) {
  Constants c = start;
  double damping = 1e-2;
  for (int round = 0; round < 60; ++round) {
    for (Shape& shape : shapes)
      for (Plan& plan : shape.plans) plan.modelled = modelled(shape, plan, c);
    const double before = objective(shapes, c, start);
    const Equations equations(shapes, c, start);
    bool better = false;
    for (int tries = 0; tries < 16 && !better; ++tries) {
      const std::vector<double> step = equations.solved(damping);
      Constants next = c;
      for (int i = 0; i < c.count() && !step.empty(); ++i)
        next.at(i) -= Constants::unit(i) * std::clamp(step[i], -2.0, 2.0);
      next.clamp();
      better = !step.empty() && objective(shapes, next, start) < before;
      if (better) c = next;
      damping = better ? std::max(1e-6, damping / 4) : damping * 5;
    }
    if (!better) break;
  }
  return c;
}

void write(const Constants& c) {
  static const char* const forms[] = {"plain",     "swapped",     "streamed",       "pingpong",   "late",
                                      "clustered", "shared_rows", "shared_by_four", "two_blocks", "few_rows"};
  const double* const shared = &c.shared.memory;
  for (int i = 0; i < shared_count; ++i) std::printf("%s%.4g", i > 0 ? ", " : "{", shared[i]);
  std::printf("};\n");
  std::vector<PolicyCost> all = c.policies;
  std::sort(all.begin(), all.end(), [](const PolicyCost& a, const PolicyCost& b) {
    return std::tie(a.rows, a.columns, a.waves_rows, a.form) < std::tie(b.rows, b.columns, b.waves_rows, b.form);
  });
  for (const PolicyCost& p : all)
    std::printf("    {%d, %d, %d, GemmForm::%s, %.2f, %.4f, %.2f, %.2f, %.3f, %.3f, %.3f},\n", p.rows, p.columns,
                p.waves_rows, forms[static_cast<int>(p.form)], p.start, p.stage, p.tile, p.merge, p.split, p.memory,
                p.crowd);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> paths, held_out;
  for (int i = 2; i < argc; ++i)
    (std::find(argv, argv + i, std::string("--")) != argv + i ? held_out : paths).push_back(argv[i]);
  if (paths.empty()) return std::fprintf(stderr, "usage: fit_choice SPEC[,SPEC...] ROWS.csv... [-- ROWS.csv...]\n"), 1;
  const Specs specs(argv[1]);
  std::vector<Shape> shapes = specs.read(paths);
  const std::vector<Shape> others = specs.read(held_out);
  report("before", shapes, specs.start, false), report("held out", others, specs.start, false);
  const Constants c = fitted(shapes, specs.start);
  report("fitted", shapes, c, true), report("held out", others, c, true);
  write(c);
}
