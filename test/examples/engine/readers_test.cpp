// SPDX-License-Identifier: MIT
// Files and requests that are wrong: one clear error each, and no crash for any bytes at all.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "config.hpp"
#include "engine.hpp"
#include "fixtures.hpp"
#include "request_json.hpp"
#include "safetensors.hpp"
#include "test/catch_compat.hpp"

using namespace engine;

namespace {

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A model's folder that a test may damage; it is removed at the end.
struct Folder {
  std::filesystem::path path;
  Folder()
      : path(std::filesystem::temp_directory_path() / ("tilewave_engine_" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path);
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(fixtures() / "llama" / file, path / file);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* file, const std::string& bytes) const {
    std::ofstream(path / file, std::ios::binary) << bytes;
  }
};

bool says(const std::string& error, const char* words) {
  CAPTURE(error);
  return error.find(words) != std::string::npos;
}

template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string config_error(const std::function<void(nlohmann::json&)>& edit) {
  const Folder folder;
  nlohmann::json config = nlohmann::json::parse(bytes_of(folder.path / "config.json"));
  edit(config);
  folder.write("config.json", config.dump());
  return error_of([&] { static_cast<void>(read_config(folder.path)); });
}

}  // namespace

TEST_CASE("a config that is wrong is refused by its field") {
  CHECK(config_error([](nlohmann::json&) {}).empty());
  CHECK(says(config_error([](nlohmann::json& c) { c.erase("hidden_size"); }), "hidden_size is missing"));
  CHECK(says(config_error([](nlohmann::json& c) { c["vocab_size"] = "many"; }), "vocab_size is no integer"));
  CHECK(says(config_error([](nlohmann::json& c) { c["num_hidden_layers"] = 0; }), "num_hidden_layers is 0"));
  CHECK(says(config_error([](nlohmann::json& c) { c["model_type"] = "mamba"; }), "'mamba' is none of"));
  CHECK(says(config_error([](nlohmann::json& c) { c["model_type"] = "llama, mistral"; }), "is none of"));
  CHECK(says(config_error([](nlohmann::json& c) { c["model_type"] = "mixtral"; }), "num_local_experts is missing"));
  CHECK(says(config_error([](nlohmann::json& c) {
               c["model_type"] = "qwen3_moe", c["num_experts"] = 2, c["num_experts_per_tok"] = 3;
             }),
             "more than there are experts"));
  CHECK(says(config_error([](nlohmann::json& c) { c["model_type"] = "gemma2"; }), "head_dim is not 256"));
  CHECK(says(config_error([](nlohmann::json& c) { c["num_key_value_heads"] = 3; }), "no multiple"));
  CHECK(says(config_error([](nlohmann::json& c) { c["head_dim"] = 80; }), "head_dim is neither 64 nor 128"));
  CHECK(says(config_error([](nlohmann::json& c) { c["hidden_act"] = "gelu"; }), "'gelu' is not silu"));
  CHECK(says(config_error([](nlohmann::json& c) { c = nlohmann::json::array(); }), "no JSON object"));
  const Folder folder;
  folder.write("config.json", "{\"vocab_size\": ");
  CHECK(says(error_of([&] { static_cast<void>(read_config(folder.path)); }), "no JSON object"));
  CHECK(says(error_of([] { static_cast<void>(read_config("/no/such/folder")); }), "cannot be read"));
}

TEST_CASE("weights that are wrong are refused by file and tensor") {
  const Folder folder;
  const std::string whole = bytes_of(folder.path / "model.safetensors");
  const auto error = [&](const std::string& bytes) {
    folder.write("model.safetensors", bytes);
    return error_of([&] { Safetensors weights(folder.path); });
  };
  CHECK(error(whole).empty());
  CHECK(says(error(""), "is empty"));
  CHECK(says(error(whole.substr(0, 5)), "is truncated"));
  CHECK(says(error(whole.substr(0, 100)), "longer than the file"));
  CHECK(says(error(whole.substr(0, whole.size() - 2)), "lies outside the file"));
  CHECK(says(error("PK\3\4 a zip archive, not weights"), "longer than the file"));
  folder.write("model.safetensors", whole);
  folder.write("more.safetensors", whole);
  CHECK(says(error_of([&] { Safetensors weights(folder.path); }), "is there twice"));
  std::filesystem::remove(folder.path / "more.safetensors");
  const Safetensors weights(folder.path);
  CHECK(says(error_of([&] { static_cast<void>(weights.get("model.norm.weight", {65})); }), "another shape"));
  CHECK(says(error_of([&] { static_cast<void>(weights.get("lm_body.weight", {1})); }), "lack lm_body.weight"));
}

TEST_CASE("no damage to a file's header makes the reader crash") {
  const Folder folder;
  const std::string whole = bytes_of(folder.path / "model.safetensors");
  std::mt19937 random(36);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      bytes[random() % 1200] = static_cast<char>(random());
    folder.write("model.safetensors", bytes);
    refused += error_of([&] { Safetensors weights(folder.path); }).empty() ? 0 : 1;
  }
  CHECK(refused > 200);
}

TEST_CASE("no damage to a config of any family makes the reader crash") {
  const Folder folder;
  std::mt19937 random(36);
  const nlohmann::json strange[] = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    7,
                                    1e300,
                                    -0.5,
                                    18446744073709551615u,
                                    "",
                                    "yarn",
                                    nlohmann::json::array(),
                                    nlohmann::json::array({-1, "x"}),
                                    nlohmann::json::object(),
                                    {{"rope_type", "yarn"}}};
  int refused = 0, read = 0;
  const auto attempt = [&](const std::string& text) {
    folder.write("config.json", text);
    error_of([&] { static_cast<void>(read_config(folder.path)); }).empty()
        ? ++read
        : ++refused;  // others than Error fail the test
  };
  for (const auto& family : std::filesystem::directory_iterator(fixtures())) {
    const std::string text = bytes_of(family.path() / "config.json");
    const nlohmann::json whole = nlohmann::json::parse(text);
    CAPTURE(family.path());
    attempt(text);
    for (const auto& [name, value] : whole.items()) {  // each field once with something strange, and once missing
      nlohmann::json config = whole;
      config[name] = strange[random() % std::size(strange)];
      attempt(config.dump());
      config.erase(name);
      attempt(config.dump());
    }
    for (int i = 0; i < 40; ++i) {
      std::string bytes = text;
      bytes[random() % bytes.size()] = static_cast<char>(random());
      attempt(i % 4 == 0 ? text.substr(0, random() % text.size()) : bytes);
    }
  }
  CHECK(refused > 200);
  CHECK(read > 50);
}

TEST_CASE("a request's fields are checked one by one") {
  const auto error = [](const std::string& text) { return error_of([&] { static_cast<void>(parse_request(text)); }); };
  CHECK(error(R"({"prompt": [1, 2]})").empty());
  CHECK(error(R"({"prompt": [1], "seed": 18446744073709551615})").empty());
  CHECK(error("[") == "the request is no JSON object");
  CHECK(error("[1]") == "the request is no JSON object");
  CHECK(error("{}") == "prompt is missing");
  CHECK(error(R"({"prompt": "text"})") == "prompt is no list");
  CHECK(error(R"({"prompt": [1.5]})") == "prompt has an entry that is no integer");
  CHECK(error(R"({"prompt": [99999999999]})") == "prompt has an entry that is outside its range");
  CHECK(error(R"({"prompt": [1], "max_tokens": "16"})") == "max_tokens is no integer");
  CHECK(error(R"({"prompt": [1], "max_tokens": 99999999999})") == "max_tokens is outside its range");
  CHECK(error(R"({"prompt": [1], "seed": -1})") == "seed is outside its range");
  CHECK(error(R"({"prompt": [1], "temperature": true})") == "temperature is no number");
  CHECK(error(R"({"prompt": [1], "id": 3})") == "id is no text");
}

TEST_CASE("no bytes at all make the request's reader crash") {
  std::mt19937 random(37);
  const std::string good =
      R"({"id": "a", "prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0.5, "seed": 1, "ignore_eos": true})";
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 5); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 8); break;
        default: text.insert(at, good.substr(random() % good.size(), 1 + random() % 8));
      }
    }
    static_cast<void>(error_of([&] { static_cast<void>(parse_request(text)); }));
  }
  SUCCEED("all of them were read or refused");
}

TEST_CASE("drafts follow the newest occurrence of the longest match") {
  CHECK(draft_tokens({1, 2, 3, 4, 1, 2, 3}, 2) == std::vector{4, 1});
  CHECK(draft_tokens({5, 1, 9, 1}, 3) == std::vector{9, 1});
  CHECK(draft_tokens({1, 7, 1, 8, 1}, 1) == std::vector{8});
  CHECK(draft_tokens({1, 2, 3}, 4).empty());
  CHECK(draft_tokens({1}, 4).empty());
  CHECK(draft_tokens({1, 1, 1}, 0).empty());
}
