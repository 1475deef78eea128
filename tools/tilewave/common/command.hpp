// SPDX-License-Identifier: MIT
// Subcommands and their options. CLI11 stands behind it in one file, since it takes seconds to compile.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tilewave::tool {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  Option& one_of(const std::vector<std::string>& words);
  Option& range(double least, double most);
  Option& count(int values);
  /// Takes a list: one word each time it is given, or several between commas.
  Option& each();

 private:
  CLI::Option* option_;
};

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add(const std::string& name, const std::string& help);
  /// Requires one of the subcommands.
  void needs_subcommand();
  Option option(const std::string& name, std::string& to, const std::string& help);
  Option option(const std::string& name, double& to, const std::string& help);
  Option option(const std::string& name, int& to, const std::string& help);
  Option option(const std::string& name, std::vector<std::string>& to, const std::string& help);
  void flag(const std::string& name, bool& to, const std::string& help);
  /// Adds an example at the end of --help.
  void example(const std::string& text);
  /// Sets the body of the command, which returns the exit status.
  void run(std::function<int()> body);
  /// Sets the body that runs unless one of the subcommands was called.
  void run_alone(std::function<int()> body);

 private:
  CLI::App* app_;
};

// There is one function for each folder.
void add_campaign(Command& tilewave);
void add_compare(Command& tilewave);
void add_gpu(Command& tilewave);
void add_isa(Command& tilewave);
void add_report(Command& tilewave);
void add_roofline(Command& tilewave);
void add_specs(Command& tilewave);
void add_trace(Command& tilewave);
void add_tune(Command& tilewave);

/// The main function: it parses, runs one command, and turns exceptions into one line on stderr.
int run_commands(int argc, char** argv, const std::function<void(Command&)>& add);

}  // namespace tilewave::tool
