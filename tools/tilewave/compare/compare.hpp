// SPDX-License-Identifier: MIT
// Two measurements of the same configs, and which one to keep.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/compare/columns.hpp"

namespace tilewave::tool {

enum class Verdict { keep, discard, tie, split, incorrect };
const char* word_of(Verdict verdict);
Exit exit_of(Verdict verdict);

enum class Repeats { refuse, median, best };

struct CompareOptions {
  ColumnMap map;
  std::vector<std::string> by;  // empty: class_columns() that exist
  double tie_pct = 1;           // a class that changes by less is a tie, unless it did so twice
  double row_loss_pct = 5;      // a class with a row that loses more does not gain
  Repeats repeats = Repeats::refuse;
  std::string target;  // "block_size=16,mtp=1": the class that a keep needs to gain
  // From the comparison before, if it kept nothing: the ratio by class of those that tied, and of the kernel time.
  std::map<std::string, double> previous;
  std::optional<double> previous_kernel;
};

/// One config in both files.
struct PairedRow {
  std::string config;  // "batch_size=3 context_length=1027": what differs between rows
  std::string group;
  double base_us = 0, cand_us = 0;
  double noise = 0;  // standard error of the ratio, relative
  std::string base_entry, cand_entry;
  std::size_t base_row = 0;  // in the baseline's CSV
  Cycles base_cycles{}, cand_cycles{};
  std::optional<double> at_one_clock{};  // the ratio, of modelled rows that are ranked by cycles
  double ratio() const { return at_one_clock.value_or(cand_us / base_us); }
};

struct ClassResult {
  std::string name;
  std::vector<PairedRow> rows;
  double base_us = 0, cand_us = 0;  // geometric means
  double ratio = 1;                 // of them; below 1 is faster
  double noise = 0;                 // two standard errors of it
  double worst = 0;                 // largest ratio of a row
  std::string worst_row;
  Verdict verdict = Verdict::tie;  // keep: it gains
  bool by_cycles = false;          // some row is
  bool twice = false;              // under tie_pct, but the second time in this direction
};

/// GPU time of a call of the benchmark: of all its launches together.
struct KernelSum {
  double us = 0;
  std::int64_t launches = 0;  // in the trace
  double calls = 1;           // in the trace, as far as told
};

struct Comparison {
  Verdict verdict = Verdict::tie;
  std::string reason;
  double score = 1;  // geometric mean over classes of base / candidate; higher is better
  std::vector<std::string> by;
  std::vector<ClassResult> classes;
  std::vector<std::string> wrong;                       // candidate rows with an error
  bool by_cycles = false;                               // some row is ranked so
  std::size_t extra_rows = 0;                           // the candidate's, which no baseline row has
  std::optional<KernelSum> base_kernels, cand_kernels;  // where they decided
};

/// Relative standard error of a row's time, from the quartiles and the number of samples: a median's is 1.25 sigma / sqrt(n). A
/// model says itself. 0 where the CSV says nothing.
double noise_of(const Csv& csv, std::size_t row, double us, bool modelled);

/// Refuses (Exit::refused) what cannot be compared: rows that only the baseline has, other devices, inputs or work,
/// wrong or untimed rows of the baseline. A wrong candidate is a verdict, before any time is looked at.
Comparison compare(const Csv& base, const Csv& cand, const CompareOptions& options);

/// Decides the verdict by GPU kernel times. `previous` is their ratio in the comparison before, if that was a tie.
void decide_by_kernels(Comparison& comparison, const KernelSum& base, const KernelSum& cand, double tie_pct,
                       std::optional<double> previous = {});

}  // namespace tilewave::tool
