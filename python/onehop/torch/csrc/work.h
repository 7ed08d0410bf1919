// SPDX-License-Identifier: Apache-2.0
// Handles of calls in progress: c10d's Work and the Future of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "engine.h"

namespace onehop_torch {

using Tensors = std::vector<at::Tensor>;
using Future = c10::ivalue::Future;

inline c10::intrusive_ptr<Future> make_future(std::vector<c10::Device> devices) {
  return c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

/// A call on host tensors. It consists of one or more parts, which may finish on different threads; the first
/// error of a part is that of the call.
class HostWork final : public c10d::Work {
 public:
  HostWork(int rank, c10d::OpType type, const char* title, Tensors outputs, size_t parts)
      : Work(rank, type, title), outputs_(std::move(outputs)), parts_(parts) {}

  /// For calls that are put together step by step: before any part can finish.
  void set_parts(size_t parts, Tensors outputs) {
    parts_ = parts;
    outputs_ = std::move(outputs);
  }

  /// Called once for each part, on the thread that ran it.
  void finish_part(std::exception_ptr error = nullptr) {
    {
      const std::lock_guard lock(parts_mutex_);
      if (error && !first_error_) first_error_ = error;
      if (--parts_ != 0) return;
    }
    finish(first_error_);  // wakes wait()
    complete_future();
  }

  std::vector<at::Tensor> result() override { return outputs_; }

  /// Completed with the list of output tensors, by the thread that finishes the call.
  c10::intrusive_ptr<Future> getFuture() override {
    c10::intrusive_ptr<Future> future;
    {
      const std::lock_guard lock(parts_mutex_);
      if (!future_) future_ = make_future({});
      future = future_;
    }
    if (isCompleted()) complete_future();
    return future;
  }

 private:
  /// Callbacks run inside, hence without a lock.
  void complete_future() {
    c10::intrusive_ptr<Future> future;
    {
      const std::lock_guard lock(parts_mutex_);
      if (!future_ || future_completed_) return;
      future_completed_ = true;
      future = future_;
    }
    if (const auto error = exception()) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(outputs_));
    }
  }

  Tensors outputs_;
  std::mutex parts_mutex_;  ///< guards what follows
  size_t parts_;
  std::exception_ptr first_error_;
  c10::intrusive_ptr<Future> future_;
  bool future_completed_ = false;
};

/// A call on device tensors, already enqueued on `stream`.
///
/// Synchronous calls (opts.asyncOp false) run on the stream that was current, which orders everything by
/// itself: no event, nothing kept alive. Asynchronous ones run on the backend's own stream; `done` is
/// recorded there behind the call. wait() makes the stream that is then current wait for `done`, never the
/// host (barrier: the host too). Until then this object keeps the tensors alive. If it is dropped unwaited,
/// the caching allocator learns that the tensors are in use on `stream` (record_stream).
class StreamWork final : public c10d::Work {
 public:
  StreamWork(int rank, c10d::OpType type, std::shared_ptr<Engine> engine, c10::Stream stream, bool async,
             Tensors outputs, Tensors in_use, int64_t timeout_ms, bool host_waits)
      : Work(rank, type),
        engine_(std::move(engine)),
        stream_(stream),
        outputs_(std::move(outputs)),
        in_use_(std::move(in_use)),
        timeout_ms_(timeout_ms),
        host_waits_(host_waits) {
    if (async) record();
  }

  ~StreamWork() override {
    for (const at::Tensor& tensor : in_use_) {
      try {
        tensor.record_stream(stream_);
      } catch (const std::exception&) {
        // Memory that torch did not allocate: its owner must wait for the call.
      }
    }
  }

  bool isCompleted() override {
    const std::lock_guard lock(event_mutex_);
    if (!done_) record();  // a synchronous call: later than its end, never earlier
    return done_->query() || failure() != nullptr;
  }
  bool isSuccess() const override { return failure() == nullptr; }
  std::exception_ptr exception() const override { return failure(); }
  std::vector<at::Tensor> result() override { return outputs_; }

  bool wait(std::chrono::milliseconds timeout) override {
    synchronize();
    if (host_waits_ || timeout != kNoTimeout) {
      const bool own = timeout == kNoTimeout;
      engine_->synchronize(stream_.native_handle(), own ? timeout_ms_ : timeout.count());
    }
    engine_->check();
    return true;
  }

  void synchronize() override {
    const std::lock_guard lock(event_mutex_);
    if (done_) {
      const c10::impl::VirtualGuardImpl streams(stream_.device_type());
      const c10::Stream current = streams.getStream(stream_.device());
      if (current != stream_) done_->block(current);
    }
    in_use_.clear();
  }

  void blockCurrentStream() override { synchronize(); }

  /// Complete at once: the Future records its own event on the stream that is current here, and makes the
  /// streams of its callbacks and waiters wait for it.
  c10::intrusive_ptr<Future> getFuture() override {
    const std::lock_guard lock(event_mutex_);
    if (!future_) {
      future_ = make_future({stream_.device()});
      const c10::StreamGuard guard(stream_);
      future_->markCompleted(c10::IValue(outputs_));
    }
    return future_;
  }

 private:
  void record() {
    done_.emplace(stream_.device_type());
    done_->record(stream_);
  }

  std::exception_ptr failure() const {
    try {
      engine_->check();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  std::shared_ptr<Engine> engine_;
  c10::Stream stream_;
  Tensors outputs_;
  Tensors in_use_;
  int64_t timeout_ms_;
  bool host_waits_;
  std::mutex event_mutex_;  ///< guards done_, in_use_ and future_
  std::optional<c10::Event> done_;
  c10::intrusive_ptr<Future> future_;
};

/// Several calls under one handle, for engines that cannot make a batch of them.
class BatchWork final : public c10d::Work {
 public:
  BatchWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_) {
      if (auto error = work->exception()) return error;
    }
    return nullptr;
  }
  std::vector<at::Tensor> result() override {
    Tensors all;
    for (const auto& work : works_) {
      const Tensors part = work->result();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  bool wait(std::chrono::milliseconds timeout) override {
    bool completed = true;
    for (const auto& work : works_) completed = work->wait(timeout) && completed;
    return completed;
  }
  void synchronize() override {
    for (const auto& work : works_) work->synchronize();
  }
  void blockCurrentStream() override {
    for (const auto& work : works_) work->blockCurrentStream();
  }
  void abort() override {
    for (const auto& work : works_) work->abort();
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace onehop_torch
