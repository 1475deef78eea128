// SPDX-License-Identifier: MIT
#include "bench/harness/google_options.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <stdexcept>
#include <string_view>

namespace tilewave::bench {

namespace {

/// Returns the fault in the value of an option such as `benchmark_format`; it is empty if there is none, or if any text
/// is valid.
std::string fault_of(std::string_view option, const std::string& value) {
  const auto one_of = [&](std::initializer_list<std::string_view> allowed) {
    return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
  };
  if (option == "benchmark_format" || option == "benchmark_out_format") {
    return one_of({"console", "json", "csv"}) ? "" : "expected console, json or csv";
  }
  if (option == "benchmark_time_unit") return one_of({"", "ns", "us", "ms", "s"}) ? "" : "expected ns, us, ms or s";
  if (option == "benchmark_min_time" || option == "benchmark_min_warmup_time") {
    char* end;
    const double seconds = std::strtod(value.c_str(), &end);
    const std::string_view unit = end;  // release 1.8 accepts `0.5s` and `10x`
    const bool number = end != value.c_str() && std::isfinite(seconds) && seconds >= 0;
    return number && (unit.empty() || unit == "s" || unit == "x") ? "" : "expected a number of seconds";
  }
  if (option == "benchmark_repetitions") {
    return value == "1" ? "" : "a config and policy is one row; --max-seconds bounds the samples inside it";
  }
  if (option == "benchmark_context") {
    return value.find('=') != value.npos ? "" : "expected key=value";
  }
  return "";
}

/// Returns the value of `--name=value`, or of its environment variable, or `otherwise` if neither is given. `--name`
/// alone means `true`.
std::string google_option(const std::vector<std::string>& arguments, const std::string& name,
                          const std::string& otherwise) {
  std::string variable = name;
  for (char& c : variable) c = static_cast<char>(std::toupper(c));
  const char* set = std::getenv(variable.c_str());
  std::string value = set != nullptr ? set : otherwise;
  for (const std::string& argument : arguments) {
    if (argument == "--" + name) value = "true";
    if (argument.rfind("--" + name + "=", 0) == 0) value = argument.substr(name.size() + 3);
  }
  return value;
}

}  // namespace

void check_google_options(std::vector<std::string>& arguments) {
  const auto check = [](std::string_view option, const std::string& shown, const std::string& value) {
    if (const std::string fault = fault_of(option, value); !fault.empty()) {
      throw std::invalid_argument(shown + "=" + value + ": " + fault);
    }
  };
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    if (argument.rfind("--benchmark_", 0) != 0) throw std::invalid_argument("unknown option " + argument);
    if (equals == argument.npos) continue;
    check(argument.substr(2, equals - 2), argument.substr(0, equals), argument.substr(equals + 1));
  }
  std::erase_if(arguments, [](const std::string& argument) { return argument.rfind("--benchmark_min_", 0) == 0; });
  for (const std::string option : {"benchmark_format", "benchmark_out_format", "benchmark_time_unit",
                                   "benchmark_min_time", "benchmark_min_warmup_time", "benchmark_repetitions"}) {
    std::string variable = option;
    for (char& c : variable) c = static_cast<char>(std::toupper(c));
    if (const char* value = std::getenv(variable.c_str())) check(option, variable, value);
  }
}

GoogleOptions::GoogleOptions(const std::vector<std::string>& arguments)
    : format(google_option(arguments, "benchmark_format", "console")),
      out(google_option(arguments, "benchmark_out", "")),
      out_format(google_option(arguments, "benchmark_out_format", "json")) {
  const std::string word = google_option(arguments, "benchmark_list_tests", "false");
  list = word != "false" && word != "0" && word != "no" && word != "off" && word != "f" && word != "n";
}

std::function<bool(const std::string&)> row_filter(const std::string& filter) {
  if (filter.empty() || filter == "all") return [](const std::string&) { return true; };
  const bool wanted = filter[0] != '-';
  try {
    const std::regex pattern(filter.substr(wanted ? 0 : 1), std::regex::extended);
    return [=](const std::string& name) { return std::regex_search(name, pattern) == wanted; };
  } catch (const std::regex_error& error) {
    throw std::invalid_argument("--benchmark_filter=" + filter + ": not a regular expression");
  }
}

}  // namespace tilewave::bench
