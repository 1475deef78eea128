// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

constexpr const char* schema = "tilewave.campaign/1";
const std::vector<std::string> stages{"idle", "proposing", "measuring", "closing"};
const std::vector<std::string> statuses{"",      "baseline",  "keep",   "discard", "tie",
                                        "split", "incorrect", "failed", "rejected"};

Json json_of(const std::vector<std::string>& list) { return Json(list); }

/// Reads a member that states of earlier versions do not have.
std::vector<std::string> words_member(const Json& json, const char* key, const std::string& source) {
  std::vector<std::string> words;
  if (!json.is_object() || !json.contains(key)) return words;
  for (const Json& word : list_member(json, key, source)) {
    if (!word.is_string()) refuse(fmt::format("{}: '{}' is no list of words", source, key));
    words.push_back(word.get<std::string>());
  }
  return words;
}
std::string word_member(const Json& json, const char* key, const std::string& source) {
  return json.is_object() && json.contains(key) ? text_member(json, key, source) : "";
}
std::map<std::string, double> numbers_member(const Json& json, const char* key, const std::string& source) {
  std::map<std::string, double> numbers;
  const Json& object = member(json, key, source);
  if (!object.is_object()) refuse(fmt::format("{}: '{}' is no object", source, key));
  for (const auto& [name, value] : object.items()) {
    if (!value.is_number()) refuse(fmt::format("{}: '{}' holds what is no number", source, key));
    numbers[name] = value.get<double>();
  }
  return numbers;
}

/// Refuses what an int cannot hold, which would be read as another number.
int count_member(const Json& json, const char* key, const std::string& source) {
  const std::int64_t count = integer_member(json, key, source);
  if (count < 0 || count > 1 << 30) refuse(fmt::format("{}: '{}' is no count: {}", source, key, count));
  return static_cast<int>(count);
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::optional<double> optional_member(const Json& json, const char* key, const std::string& source) {
  if (member(json, key, source).is_null()) return std::nullopt;
  return number_member(json, key, source);
}

Json to_json(const Round& r) {
  const Proposal& p = r.proposal;
  Json classes = Json::object();
  for (const auto& [name, us] : r.classes) classes[name] = us;
  return {{"round", r.number},
          {"date", r.date},
          {"status", r.status},
          {"commit", r.commit},
          {"reason", r.reason},
          {"hypothesis", p.hypothesis},
          {"bucket", p.bucket},
          {"target", p.target},
          {"direction", p.direction},
          {"tip", p.tip},
          {"lesson", p.lesson},
          {"proposed_pitfalls", json_of(p.pitfalls)},
          {"real_gain_pct", optional_json(p.real_gain_pct)},
          {"hit_rate", optional_json(p.hit_rate)},
          {"fix_attempts", r.fix_attempts},
          {"score", r.score},
          {"total", r.total},
          {"us", r.us},
          {"gpu_us", r.gpu_us},
          {"best_us", r.best_us},
          {"best_gpu_us", r.best_gpu_us},
          {"kernel", r.kernel},
          {"files", r.files},
          {"classes", classes},
          {"launch", Json(r.launch)},
          {"bottlenecks", json_of(r.bottlenecks)},
          {"routing", json_of(r.routing)},
          {"pitfalls", json_of(r.pitfalls)},
          {"skew", r.skew}};
}

Round round_of(const Json& json, const std::string& source) {
  Round r;
  r.number = count_member(json, "round", source);
  r.date = text_member(json, "date", source), r.status = text_member(json, "status", source);
  if (!contains(statuses, r.status))
    refuse(fmt::format("{}: '{}' is no status of a round", source, printable(r.status)));
  r.commit = text_member(json, "commit", source), r.reason = text_member(json, "reason", source);
  Proposal& p = r.proposal;
  p.hypothesis = text_member(json, "hypothesis", source), p.bucket = text_member(json, "bucket", source);
  p.target = text_member(json, "target", source), p.direction = text_member(json, "direction", source);
  p.tip = text_member(json, "tip", source), p.lesson = word_member(json, "lesson", source);
  p.pitfalls = words_member(json, "proposed_pitfalls", source);
  p.real_gain_pct = optional_member(json, "real_gain_pct", source),
  p.hit_rate = optional_member(json, "hit_rate", source);
  r.fix_attempts = count_member(json, "fix_attempts", source);
  r.score = number_member(json, "score", source), r.total = number_member(json, "total", source);
  r.us = number_member(json, "us", source), r.gpu_us = number_member(json, "gpu_us", source);
  r.best_us = number_member(json, "best_us", source), r.best_gpu_us = number_member(json, "best_gpu_us", source);
  r.kernel = text_member(json, "kernel", source);
  member(json, "files", source);
  r.files = words_member(json, "files", source);
  r.classes = numbers_member(json, "classes", source);
  if (json.contains("launch")) r.launch = numbers_member(json, "launch", source);
  r.bottlenecks = words_member(json, "bottlenecks", source), r.routing = words_member(json, "routing", source);
  r.pitfalls = words_member(json, "pitfalls", source), r.skew = word_member(json, "skew", source);
  return r;
}

std::vector<Round> rounds_of(const Json& json, const char* key, const std::string& source) {
  std::vector<Round> rounds;
  for (const Json& item : list_member(json, key, source)) rounds.push_back(round_of(item, source));
  return rounds;
}

}  // namespace

void check(const Proposal& p) {
  static const std::vector<std::string> good{"K1", "K2", "K3", "K4", "W1"};
  if (trim(p.hypothesis).empty()) refuse("a round needs a hypothesis, in one sentence");
  if (p.bucket == "W2" || p.bucket == "W3") refuse(p.bucket + " gains in the benchmark's loop alone: it is not tried");
  if (!contains(good, p.bucket)) refuse(fmt::format("bucket '{}' is none of K1, K2, K3, K4, W1", printable(p.bucket)));
  if (p.bucket == "W1" && !p.hit_rate) refuse("a cache (W1) needs its hit rate over four real steps");
  if (p.hit_rate && !(*p.hit_rate >= 0.5 && *p.hit_rate <= 1))
    refuse("a cache that less than every second real step hits is not tried");
  if (p.real_gain_pct && !(*p.real_gain_pct >= 0))
    refuse(
        fmt::format("a real gain of {} % is a loss by the proposal's own estimate: it is not tried", *p.real_gain_pct));
}

std::string json_of(const State& s) {
  Json rounds = Json::array(), recent = Json::array();
  for (const Round& r : s.rounds) rounds.push_back(to_json(r));
  for (const Round& r : s.recent_regressions) recent.push_back(to_json(r));
  return dump({{"schema", schema},
               {"BEST_COMMIT", s.best_commit},
               {"best_round", s.best_round},
               {"CONSECUTIVE_REGRESSIONS", s.consecutive_regressions},
               {"consecutive_rollbacks", s.consecutive_rollbacks},
               {"RECENT_REGRESSIONS", recent},
               {"stopped", s.stopped},
               {"stopped_at", s.stopped_at},
               {"history", json_of(s.history)},
               {"stage", stages[static_cast<std::size_t>(s.stage)]},
               {"current", s.stage == Stage::idle ? Json() : to_json(s.current)},
               {"rounds", rounds},
               {"fixed", s.fixed}});
}

State parse_state(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  if (text_member(json, "schema", source) != schema) refuse(source + " is no state of a campaign");
  State s;
  s.fixed = text_member(json, "fixed", source), s.best_commit = text_member(json, "BEST_COMMIT", source);
  s.best_round = count_member(json, "best_round", source);
  s.consecutive_regressions = count_member(json, "CONSECUTIVE_REGRESSIONS", source);
  s.consecutive_rollbacks = count_member(json, "consecutive_rollbacks", source);
  s.recent_regressions = rounds_of(json, "RECENT_REGRESSIONS", source), s.rounds = rounds_of(json, "rounds", source);
  s.stopped = text_member(json, "stopped", source), s.stopped_at = word_member(json, "stopped_at", source);
  s.history = words_member(json, "history", source);
  const auto stage = std::find(stages.begin(), stages.end(), text_member(json, "stage", source));
  if (stage == stages.end()) refuse(source + ": no such stage");
  s.stage = static_cast<Stage>(stage - stages.begin());
  if (s.stage != Stage::idle) s.current = round_of(member(json, "current", source), source);
  for (std::size_t i = 0; i < s.rounds.size(); ++i) {
    if (s.rounds[i].number != static_cast<int>(i) + 1)
      refuse(fmt::format("{}: round {} stands where {} should", source, s.rounds[i].number, i + 1));
  }
  if (s.best_round < 0 || s.best_round > static_cast<int>(s.rounds.size()))
    refuse(source + ": the best round is none of its rounds");
  if ((s.best_round == 0) != s.rounds.empty()) refuse(source + ": rounds without a baseline");
  if (s.stage != Stage::idle && s.current.number != static_cast<int>(s.rounds.size()) + 1)
    refuse(source + ": the current round is not the next");
  return s;
}

}  // namespace tilewave::tool
