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

  /// As Engine::submit. The id is the service's own, unlike any other.
  std::optional<std::string> submit(Request request, Callback callback) {
    const Visit visit(*this);
    if (!failure_.empty()) return failure_;
    const std::string id = request.id;
    if (std::optional<std::string> error = engine_.submit(std::move(request))) return error;
    callbacks_[id] = std::move(callback);
    wake_.notify_all();
    return std::nullopt;
  }
  void cancel(const std::string& id) {
    const Visit visit(*this);
    engine_.cancel(id);
    callbacks_.erase(id);
  }
  /// Waits until no request is left and all callbacks have returned.
  void drain() {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return engine_.idle() || !failure_.empty(); });
    }
    std::unique_lock lock(calls_mutex_);
    called_.wait(lock, [this] { return calls_.empty() && !calling_; });
  }
  std::uint64_t tokens() const { return tokens_; }
  /// Requests that are not finished, as of the last step.
  std::int32_t unfinished() const { return unfinished_; }

 private:
  /// Whoever comes in between two steps. A mutex is not fair: the engine's thread would have it again at once.
  struct Visit {
    explicit Visit(Service& service) {
      ++service.at_door_;
      lock = std::unique_lock(service.mutex_);
      --service.at_door_;
    }
    std::unique_lock<std::mutex> lock;
  };

  void step() {
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
          const bool last = !event.finish_reason.empty();
          calls.emplace_back(found->second, std::move(event));
          if (last) callbacks_.erase(found);
        }
      } catch (const std::exception& error) {
        failure_ = std::string("the engine failed: ") + error.what();
        for (auto& [id, callback] : callbacks_) calls.emplace_back(callback, Event{id, {}, {}, "error"});
        callbacks_.clear();
      }
      {
        const std::lock_guard to_caller(calls_mutex_);
        std::move(calls.begin(), calls.end(), std::back_inserter(calls_));
      }
      called_.notify_all();
      unfinished_ = engine_.unfinished();
      if (engine_.idle() || !failure_.empty()) wake_.notify_all();  // drain()
      lock.unlock();
      while (at_door_ > 0) std::this_thread::yield();
      lock.lock();
    }
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

  Engine& engine_;
  std::mutex mutex_;  // of the engine
  std::condition_variable wake_;
  std::atomic<int> at_door_{0};
  std::map<std::string, Callback> callbacks_;
  std::string failure_;
  std::atomic<std::uint64_t> tokens_{0};
  std::atomic<std::int32_t> unfinished_{0};
  bool stopping_ = false;
  std::mutex calls_mutex_;  // of what is to be called back
  std::condition_variable called_;
  std::deque<std::pair<Callback, Event>> calls_;
  bool calling_ = false;
  std::thread caller_, stepper_;  // last: they use all the others
};

}  // namespace engine
