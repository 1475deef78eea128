// SPDX-License-Identifier: MIT
// The engine behind a thread: requests come from any thread, and each one's events go to its own callback.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "engine.hpp"

namespace engine {

class Service {
 public:
  /// Called on the engine's thread, with the last event of a request last. An event without an id's tokens and with
  /// finish_reason "error" says that the engine itself failed.
  using Callback = std::function<void(const Event&)>;

  explicit Service(Engine& engine) : engine_(engine), thread_([this] { loop(); }) {}
  ~Service() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  /// As Engine::submit. The id is the service's own, unlike any other.
  std::optional<std::string> submit(Request request, Callback callback) {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return failure_;
    const std::string id = request.id;
    if (std::optional<std::string> error = engine_.submit(std::move(request))) return error;
    callbacks_[id] = std::move(callback);
    wake_.notify_all();
    return std::nullopt;
  }
  void cancel(const std::string& id) {
    const std::lock_guard lock(mutex_);
    engine_.cancel(id);
    callbacks_.erase(id);
  }
  /// Waits until no request is left.
  void drain() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return engine_.idle() || !failure_.empty(); });
  }
  std::uint64_t tokens() const { return tokens_; }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || (!engine_.idle() && failure_.empty()); });
      if (stopping_) return;
      std::vector<std::pair<Callback, Event>> calls;
      try {
        for (Event& event : engine_.step()) {
          tokens_ += event.tokens.size();
          const auto found = callbacks_.find(event.id);
          if (found == callbacks_.end()) continue;
          calls.emplace_back(found->second, event);
          if (!event.finish_reason.empty()) callbacks_.erase(found);
        }
      } catch (const std::exception& error) {
        failure_ = std::string("the engine failed: ") + error.what();
        for (auto& [id, callback] : callbacks_) calls.emplace_back(callback, Event{.id = id, .finish_reason = "error"});
        callbacks_.clear();
      }
      lock.unlock();  // callbacks may write to slow clients
      for (auto& [callback, event] : calls) callback(event);
      lock.lock();
      if (engine_.idle() || !failure_.empty()) idle_.notify_all();
    }
  }

  Engine& engine_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::map<std::string, Callback> callbacks_;
  std::string failure_;
  std::atomic<std::uint64_t> tokens_{0};
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace engine
