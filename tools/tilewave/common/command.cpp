// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "tilewave/version.hpp"
#include "tools/tilewave/common/error.hpp"

namespace tilewave::tool {

namespace {
int exit_status = 0;  // of the command that ran; CLI11's callbacks return nothing
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Option& Option::range(double least, double most) {
  option_->check([=](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);  // CLI::Range lets NaN pass
    return value >= least && value <= most ? "" : fmt::format("{} is not from {} to {}", text, least, most);
  });
  return *this;
}

Option& Option::count(int values) {
  option_->expected(values);
  return *this;
}

Option& Option::each() {
  option_->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false)->delimiter(',');
  return *this;
}

Command Command::add(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}
void Command::needs_subcommand() { app_->require_subcommand(1); }
Option Command::option(const std::string& name, std::string& to, const std::string& help) {
  return Option(app_->add_option(name, to, help));
}
Option Command::option(const std::string& name, double& to, const std::string& help) {
  return Option(app_->add_option(name, to, help));
}
Option Command::option(const std::string& name, int& to, const std::string& help) {
  return Option(app_->add_option(name, to, help));
}
Option Command::option(const std::string& name, std::vector<std::string>& to, const std::string& help) {
  return Option(app_->add_option(name, to, help));
}
void Command::flag(const std::string& name, bool& to, const std::string& help) { app_->add_flag(name, to, help); }
void Command::example(const std::string& text) { app_->footer("Example:\n" + text); }
void Command::run(std::function<int()> body) {
  app_->callback([body = std::move(body)] { exit_status = body(); });
}

void Command::run_alone(std::function<int()> body) {
  app_->callback([app = app_, body = std::move(body)] {
    if (app->get_subcommands().empty()) exit_status = body();
  });
}

int run_commands(int argc, char** argv, const std::function<void(Command&)>& add) {
  CLI::App app("Compares, profiles and campaigns around the benchmarks of tilewave.", "tilewave");
  app.footer(
      "Exit statuses: 0 done (compare: keep), 1 failed, 2 bad usage or file, 3 an UNKNOWN hardware number,\n"
      "10 discard, 11 tie, 12 split, 13 incorrect, 14 not comparable, 15 compiled code\n"
      "breaks a rule, 20 no idle GPU, 30 stop rule, 31 wrong state.");
  app.set_version_flag("--version", fmt::format("tilewave {}.{}.{}", TILEWAVE_VERSION_MAJOR, TILEWAVE_VERSION_MINOR,
                                                TILEWAVE_VERSION_PATCH));
  Command command(&app);
  command.needs_subcommand();
  add(command);
  const auto fail = [](const char* what, int status) {
    std::string line(what);
    for (char& c : line) c = c == '\n' ? ' ' : c;
    fmt::print(stderr, "tilewave: {}\n", line);
    return status;
  };
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  if (argc > 1 && argv[1][0] != '-' && std::none_of(subcommands.begin(), subcommands.end(), [&](const CLI::App* a) {
        return a->get_name() == argv[1];
      })) {
    return fail(fmt::format("there is no subcommand '{}' (--help lists them)", argv[1]).c_str(),
                static_cast<int>(Exit::usage));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(fmt::format("{} (--help tells the usage)", error.what()).c_str(), static_cast<int>(Exit::usage));
  } catch (const Error& error) {
    return fail(error.what(), static_cast<int>(error.exit));
  } catch (const std::exception& error) {
    return fail(error.what(), static_cast<int>(Exit::failed));
  }
  // If output could not be written, the command has failed, whatever the verdict.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return fail(fmt::format("cannot write to stdout: {}", std::strerror(errno)).c_str(),
                static_cast<int>(Exit::failed));
  return exit_status;
}

}  // namespace tilewave::tool
