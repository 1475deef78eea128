// SPDX-License-Identifier: MIT
// An engine on nothing but tilewave, part 4 of the tutorial. Requests are JSON lines on stdin, answers JSON lines on stdout, or HTTP with --serve.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>

#include "request_json.hpp"
#include "service.hpp"
#ifdef ENGINE_HTTP
#include "server.hpp"
#endif

namespace {

using namespace engine;

std::atomic<bool> output_failed{false};

/// One line for each event. Whoever reads stdout may go away, or its disk be full: then no more requests are taken.
void print(const nlohmann::json& object) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  if (!std::cout) output_failed = true;
}

/// Says on stderr every few seconds how fast tokens come, while they do. A disk that is full loses lines and stops nothing.
void report(const std::stop_token& stop, const Service& service, double seconds) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any over;
  const auto stopped = [&] { return stop.stop_requested(); };
  for (std::uint64_t before = 0;; before = service.tokens()) {
    if (over.wait_for(lock, stop, std::chrono::duration<double>(seconds), stopped)) return;
    if (service.tokens() == before) continue;
    std::cerr.clear();
    std::cerr << service.unfinished() << " requests, " << service.tokens() << " tokens, "
              << static_cast<double>(service.tokens() - before) / seconds << " tokens/s\n";
  }
}

void answer_lines(Service& service) {
  const auto events = std::make_shared<Events>();
  const std::jthread printer([&] {
    while (const std::optional<Event> event = events->get()) print(to_json(*event));
  });
  std::string line;
  for (std::uint64_t number = 1; !output_failed && std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::string id = std::to_string(number);
    std::optional<std::string> error;
    try {
      Request request = parse_request(line);
      if (request.id.empty()) request.id = id;
      id = request.id;
      error = service.submit(std::move(request), events);
    } catch (const std::exception& wrong) {
      error = wrong.what();
    }
    if (error) print({{"id", id}, {"error", *error}});
  }
  service.drain();
  events->close();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Serves a model with tilewave's kernels. Requests: JSON lines on stdin with token ids, or HTTP with --serve.");
  std::string folder, host = "127.0.0.1";
  EngineOptions options;
  double progress = 10.0;
  [[maybe_unused]] int port = 0;
  app.add_option("model", folder, "Folder with config.json and *.safetensors")->required();
  app.add_option("--pages", options.pages, "Pages of the cache");
  app.add_option("--page-tokens", options.page_tokens, "Tokens of a page, a multiple of 16");
  app.add_option("--most-tokens", options.most_tokens, "Tokens of a step: longer prompts are cut into chunks");
  app.add_option("--most-sequences", options.most_sequences, "Requests that run at once");
  app.add_option("--drafts", options.drafts, "Tokens that are guessed from the text and verified in one step");
  app.add_flag("!--no-reuse", options.reuse, "Compute every prompt from its beginning");
  app.add_flag("!--no-graphs", options.graphs, "Launch each kernel of a decode step on its own");
  const std::map<std::string, WeightFormat> formats{
      {"bf16", WeightFormat::bf16}, {"fp8", WeightFormat::fp8}, {"int4", WeightFormat::int4}};
  app.add_option("--weights", options.weights,
                 "bf16, or what weights of layers are quantised to while loading: fp8, int4")
      ->transform(CLI::Transformer(formats));
  app.add_flag("--fp8-cache", options.fp8_cache, "Keep K and V in fp8");
  app.add_flag("--batch-invariant", options.batch_invariant,
               "A request has the same bits alone and beside others, in chunks, with drafts and from known pages");
  app.add_flag("--random-weights", options.random_weights, "Read config.json alone: for measurements");
  app.add_option("--progress", progress, "Seconds between two lines on stderr")->check(CLI::PositiveNumber);
#ifdef ENGINE_HTTP
  app.add_option("--serve", port, "HTTP port: POST /v1/completions")->check(CLI::Range(1, 65535));
  app.add_option("--host", host, "Address to listen on");
#endif
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error of a write
  try {
    Engine engine(folder, options);
    Service service(engine);
    const std::jthread lines([&](const std::stop_token& stop) { report(stop, service, progress); });
    const auto begin = std::chrono::steady_clock::now();
#ifdef ENGINE_HTTP
    if (port > 0) serve(service, folder, host, port);
#endif
    answer_lines(service);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cerr << service.tokens() << " tokens in " << seconds
              << " s: " << static_cast<double>(service.tokens()) / seconds << " tokens/s\n";
    if (output_failed) throw Error("stdout cannot be written");
  } catch (const std::exception& error) {
    std::cerr << "engine: " << error.what() << "\n";
    return 1;
  }
}
