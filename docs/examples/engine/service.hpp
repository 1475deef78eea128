// SPDX-License-Identifier: MIT
// The engine behind a thread, part 4 of the tutorial: requests come from any thread, and events go into queues, so the next step is computed while
// clients read.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "engine.hpp"

namespace engine {

/// Events on their way from the engine's thread to one that answers.
class Events {
 public:
  void put(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  /// No more events come.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  /// The next event; none if no more come, or none came for so long.
  std::optional<Event> get(std::chrono::seconds most = std::chrono::hours(24 * 365)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, most, [this] { return closed_ || !events_.empty(); });
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool closed_ = false;
};

class Service {
 public:
  explicit Service(Engine& engine) : engine_(engine), stepper_([this](const std::stop_token& stop) { step(stop); }) {}

  /// As Engine::submit, from any thread: requests wait in front of the engine until its step is over. The last event of a
  /// request has a finish_reason, which is "error" if the engine itself failed.
  std::optional<std::string> submit(Request request, std::shared_ptr<Events> events) {
    if (std::optional<std::string> error = engine_.refusal(request)) return error;
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return failure_;
    if (!clients_.emplace(request.id, std::move(events)).second) return "the id is in use";
    arrived_.push_back(std::move(request));
    wake_.notify_all();
    return std::nullopt;
  }
  void cancel(const std::string& id) {
    const std::lock_guard lock(mutex_);
    if (clients_.erase(id) == 0) return;
    const auto same = [&](const Request& request) { return request.id == id; };
    if (std::erase_if(arrived_, same) == 0) gone_.push_back(id);
    wake_.notify_all();
  }
  /// Waits until no request is left.
  void drain() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return clients_.empty(); });
  }
  std::uint64_t tokens() const { return tokens_; }
  /// Requests that are not finished, as of the last step.
  std::int32_t unfinished() const { return unfinished_; }

 private:
  void step(const std::stop_token& stop) {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (!wake_.wait(lock, stop, [this] { return !arrived_.empty() || !gone_.empty() || !engine_.idle(); })) return;
        if (stop.stop_requested()) return;
        for (const std::string& id : std::exchange(gone_, {})) engine_.cancel(id);
        for (Request& request : std::exchange(arrived_, {})) static_cast<void>(engine_.submit(std::move(request)));
      }
      try {
        std::vector<Event> events = engine_.step();
        unfinished_ = engine_.unfinished();
        const std::lock_guard lock(mutex_);
        for (Event& event : events) deliver(std::move(event));
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        failure_ = std::string("the engine failed: ") + error.what();
        for (const auto& [id, events] : std::exchange(clients_, {})) events->put({id, {}, {}, "error"});
      }
      wake_.notify_all();  // drain()
      if (!failure_.empty()) return;
    }
  }
  void deliver(Event event) {
    tokens_ += event.tokens.size();
    const auto client = clients_.find(event.id);
    if (client == clients_.end()) return;  // it went away meanwhile
    const std::shared_ptr<Events> events = client->second;
    if (!event.finish_reason.empty()) clients_.erase(client);
    events->put(std::move(event));
  }

  Engine& engine_;    // the stepping thread's, but for what it checks requests by
  std::mutex mutex_;  // of what is shared with those who submit
  std::condition_variable_any wake_;
  std::vector<Request> arrived_;
  std::vector<std::string> gone_;
  std::map<std::string, std::shared_ptr<Events>> clients_;  // of requests that are not finished
  std::string failure_;
  std::atomic<std::uint64_t> tokens_{0};
  std::atomic<std::int32_t> unfinished_{0};
  std::jthread stepper_;  // last: it uses all the others
};

}  // namespace engine
