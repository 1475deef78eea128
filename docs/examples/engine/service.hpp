// SPDX-License-Identifier: MIT
// The engine behind a thread: requests come from any thread, and each one's events go to its own callback. Callbacks have
// a thread of their own, so the next step is computed while they write.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "engine.hpp"

namespace engine {

class Service {
 public:
  /// Called on one thread, with the last event of a request last. An event without an id's tokens and with
  /// finish_reason "error" says that the engine itself failed.
  using Callback = std::function<void(const Event&)>;

  explicit Service(Engine& engine) : engine_(engine), caller_([this] { call_back(); }), stepper_([this] { step(); }) {}
  ~Service() {
    {
      const std::scoped_lock both(mutex_, calls_mutex_);
      stopping_ = true;
    }
    wake_.notify_all(), called_.notify_all();
    stepper_.join(), caller_.join();
  }

  /// As Engine::submit, from any thread: requests wait in front of the engine until its step is over.
  std::optional<std::string> submit(Request request, Callback callback) {
    if (std::optional<std::string> error = engine_.refusal(request)) return error;
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return failure_;
    if (!callbacks_.emplace(request.id, std::move(callback)).second) return "the id is in use";
    arrived_.push_back(std::move(request));
    wake_.notify_all();
    return std::nullopt;
  }
  void cancel(const std::string& id) {
    const std::lock_guard lock(mutex_);
    if (callbacks_.erase(id) == 0) return;
    const auto same = [&](const Request& request) { return request.id == id; };
    if (std::erase_if(arrived_, same) == 0) gone_.push_back(id);
    wake_.notify_all();
  }
  /// Waits until no request is left and all callbacks have returned.
  void drain() {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return callbacks_.empty(); });
    }
    std::unique_lock lock(calls_mutex_);
    called_.wait(lock, [this] { return calls_.empty() && !calling_; });
  }
  std::uint64_t tokens() const { return tokens_; }
  /// Requests that are not finished, as of the last step.
  std::int32_t unfinished() const { return unfinished_; }

 private:
  using Calls = std::vector<std::pair<Callback, Event>>;

  void step() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !arrived_.empty() || !gone_.empty() || !engine_.idle(); });
        if (stopping_) return;
        for (const std::string& id : std::exchange(gone_, {})) engine_.cancel(id);
        for (Request& request : std::exchange(arrived_, {})) static_cast<void>(engine_.submit(std::move(request)));
      }
      std::vector<Event> events;
      std::string failure;
      try {
        events = engine_.step();
      } catch (const std::exception& error) {
        failure = std::string("the engine failed: ") + error.what();
      }
      Calls calls = take_calls(events, failure);
      unfinished_ = engine_.unfinished();
      {
        const std::lock_guard lock(calls_mutex_);
        std::move(calls.begin(), calls.end(), std::back_inserter(calls_));
      }
      called_.notify_all();
      wake_.notify_all();  // drain()
      if (!failure.empty()) return;
    }
  }
  /// Each event with its request's callback. If the engine failed, everyone is told.
  Calls take_calls(std::vector<Event>& events, const std::string& failure) {
    const std::lock_guard lock(mutex_);
    Calls calls;
    for (Event& event : events) {
      tokens_ += event.tokens.size();
      const auto found = callbacks_.find(event.id);
      if (found == callbacks_.end()) continue;  // it was cancelled meanwhile
      const bool last = !event.finish_reason.empty();
      calls.emplace_back(found->second, std::move(event));
      if (last) callbacks_.erase(found);
    }
    if (failure.empty()) return calls;
    failure_ = failure;
    for (auto& [id, callback] : std::exchange(callbacks_, {})) calls.emplace_back(callback, Event{id, {}, {}, "error"});
    return calls;
  }

  void call_back() {
    std::unique_lock lock(calls_mutex_);
    while (true) {
      called_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      if (calls_.empty()) return;
      const auto calls = std::exchange(calls_, {});
      calling_ = true;
      lock.unlock();  // clients may be slow
      for (const auto& [callback, event] : calls) callback(event);
      lock.lock();
      calling_ = false;
      called_.notify_all();
    }
  }

  Engine& engine_;    // the stepping thread's, but for what it checks requests by
  std::mutex mutex_;  // of what is shared with those who submit
  std::condition_variable wake_;
  std::vector<Request> arrived_;
  std::vector<std::string> gone_;
  std::map<std::string, Callback> callbacks_;  // of the requests that are not finished
  std::string failure_;
  bool stopping_ = false;
  std::atomic<std::uint64_t> tokens_{0};
  std::atomic<std::int32_t> unfinished_{0};
  std::mutex calls_mutex_;  // of what is to be called back
  std::condition_variable called_;
  std::deque<std::pair<Callback, Event>> calls_;
  bool calling_ = false;
  std::thread caller_, stepper_;  // last: they use all the others
};

}  // namespace engine
