// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda_implementations.h"

#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "base/check.h"
#include "bench/cuda_handles.h"
#include "bench/nccl.h"
#include "bench/shape.h"
#include "bench/verify.h"

namespace onehop::cli {
namespace {

// Shorter than the timeout of the group, in which the other ranks wait for this rank.
constexpr std::chrono::seconds kNcclTimeout{25};

class OnehopImplementation final : public Implementation {
 public:
  OnehopImplementation(Group& group, const BenchOptions& options, std::size_t bytes)
      : Implementation("onehop", /*ours=*/true), group_(group), options_(options) {
    call_options_.algorithm = options.algorithm;
    call_options_.factor = options.factor;
    call_options_.symmetric = options.buffers != Buffers::ordinary && has_symmetric_output(options);
    if (options.buffers == Buffers::symmetric) {
      shared_ = group.allocate(bytes);
    } else {
      own_ = GpuMemory(bytes);
    }
    if (options.buffers == Buffers::registered) shared_ = group.register_buffer(own_.get(), bytes);
  }
  ~OnehopImplementation() override {
    if (options_.buffers != Buffers::registered) return;
    // The memory may be freed once no peer has it mapped.
    shared_ = {};
    try {
      group_.barrier();
    } catch (const std::exception&) {
      // The group has failed, and its processes are about to end.
    }
  }
  OnehopImplementation(const OnehopImplementation&) = delete;
  OnehopImplementation& operator=(const OnehopImplementation&) = delete;
  [[nodiscard]] std::byte* memory() const override {
    return options_.buffers == Buffers::symmetric ? shared_.local() : own_.get();
  }
  Algorithm call(const BenchCall& call, cudaStream_t stream) override {
    BenchCall made = call;
    made.stream = Stream{stream};
    made.options = call_options_;
    return call_onehop(group_, made);
  }

 private:
  Group& group_;
  const BenchOptions& options_;
  CallOptions call_options_;
  SymmetricBuffer shared_;
  GpuMemory own_;
};

/// Runs a call that waits for other ranks without a deadline on a thread, which is abandoned at the deadline.
/// `call` must own its captures.
int with_deadline(int device, const char* what, std::function<int()> call) {
  auto result = std::make_shared<std::promise<int>>();
  std::future<int> answer = result->get_future();
  std::thread([device, result, call = std::move(call)] {
    (void)cudaSetDevice(device);
    result->set_value(call());
  }).detach();
  if (answer.wait_for(kNcclTimeout) != std::future_status::ready) {
    fail(ErrorCode::timeout, "{} did not end within {} s; leave --peer nccl out", what, kNcclTimeout.count());
  }
  return answer.get();
}

}  // namespace

/// One communicator of this rank.
class NcclSession {
 public:
  NcclSession(const Nccl& library, int device) : nccl(library), device_(device) {}
  ~NcclSession() { abort(); }
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  void init(int ranks, const NcclUniqueId& id, int rank) {
    auto made = std::make_shared<NcclComm>(nullptr);
    const auto initialize = nccl.comm_init_rank;
    const int result =
        with_deadline(device_, "ncclCommInitRank", [=] { return initialize(made.get(), ranks, id, rank); });
    if (result == 0) member_ = {*made, rank, ranks};
    check_nccl(result, "ncclCommInitRank");
  }
  NcclWindow register_window(void* memory, std::size_t bytes) {
    auto made = std::make_shared<NcclWindow>(nullptr);
    const auto enter = nccl.window_register;
    NcclComm comm = member_.comm;
    const int result = with_deadline(device_, "ncclCommWindowRegister", [=] {
      return enter(comm, memory, bytes, made.get(), kNcclSymmetricWindow);
    });
    check_nccl(result, "ncclCommWindowRegister");
    return *made;
  }
  void deregister_window(NcclWindow window) {
    const auto exit = nccl.window_deregister;
    NcclComm comm = member_.comm;
    check_nccl(with_deadline(device_, "ncclCommWindowDeregister", [=] { return exit(comm, window); }),
               "ncclCommWindowDeregister");
  }
  void close() {
    if (member_.comm == nullptr) return;
    const auto destroy = nccl.comm_destroy;
    NcclComm comm = std::exchange(member_.comm, nullptr);
    (void)with_deadline(device_, "ncclCommDestroy", [=] { return destroy(comm); });
  }
  void abort() noexcept {
    if (member_.comm != nullptr) (void)nccl.comm_abort(std::exchange(member_.comm, nullptr));
  }
  void check_nccl(int result, const char* what) const {
    if (result != 0) fail(ErrorCode::system, "{}: {}", what, nccl.explain(result, member_.comm));
  }
  [[nodiscard]] const NcclMember& member() const { return member_; }

  const Nccl& nccl;

 private:
  const int device_;
  NcclMember member_;
};

namespace {

class NcclImplementation : public Implementation {
 public:
  NcclImplementation(std::string name, std::shared_ptr<NcclSession> session, const BenchOptions& options)
      : Implementation(std::move(name)), session_(std::move(session)), collective_(*options.collective) {}
  Algorithm call(const BenchCall& call, cudaStream_t stream) override {
    session_->check_nccl(collective_.nccl(session_->nccl, session_->member(), call, stream),
                         "queuing NCCL's call");
    return Algorithm::none;
  }

 protected:
  const std::shared_ptr<NcclSession> session_;

 private:
  const Benchmark& collective_;
};

class NcclPlain final : public NcclImplementation {
 public:
  NcclPlain(const std::string& name, std::shared_ptr<NcclSession> session, const BenchOptions& options,
            std::size_t bytes)
      : NcclImplementation(name, std::move(session), options), memory_(bytes) {}
  [[nodiscard]] std::byte* memory() const override { return memory_.get(); }

 private:
  GpuMemory memory_;
};

/// Memory in a symmetric window.
class NcclSymmetric final : public NcclImplementation {
 public:
  NcclSymmetric(std::string name, std::shared_ptr<NcclSession> session, const BenchOptions& options,
                std::size_t bytes)
      : NcclImplementation(std::move(name), std::move(session), options), bytes_(bytes) {
    session_->check_nccl(session_->nccl.mem_alloc(&memory_, bytes), "ncclMemAlloc");
  }
  ~NcclSymmetric() override {
    // Aborting the communicator has removed its window, and freeing could wait forever.
    if (session_->member().comm == nullptr) return;
    try {
      leave();
    } catch (const Error&) {
      // The reason for giving up this implementation was already reported.
    }
  }
  /// Collective.
  void enter() {
    window_ = session_->register_window(memory_, bytes_);
    if (window_ == nullptr) fail(ErrorCode::unsupported, "NCCL has no symmetric windows on this machine");
  }
  void leave() override {
    if (window_ != nullptr) session_->deregister_window(std::exchange(window_, nullptr));
    if (memory_ != nullptr) (void)session_->nccl.mem_free(std::exchange(memory_, nullptr));
  }
  [[nodiscard]] std::byte* memory() const override { return static_cast<std::byte*>(memory_); }

 private:
  const std::size_t bytes_;
  void* memory_ = nullptr;
  NcclWindow window_ = nullptr;
};

/// The message of the error of a step; empty without error.
template <class Step>
std::string complaint_of(const Step& step) {
  try {
    step();
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

}  // namespace

Implementations::Implementations(Group& group, const BenchOptions& options, std::size_t bytes) {
  all_.push_back(std::make_unique<OnehopImplementation>(group, options, bytes));
  for (const NcclPeer& peer : options.nccl) add_nccl(group, options, peer, bytes);
}

Implementations::~Implementations() {
  abort();
}

void Implementations::abort() noexcept {
  for (const auto& session : sessions_) session->abort();
}

void Implementations::close() {
  for (const auto& implementation : all_) implementation->leave();
  // Before the memory that NCCL may have mapped is freed.
  for (const auto& session : sessions_) session->close();
  all_.clear();
}

void Implementations::add_nccl(Group& group, const BenchOptions& options, const NcclPeer& peer,
                               std::size_t bytes) {
  // After every step that can fail on one rank, all ranks exchange the outcome, before a step that waits.
  const auto failed = [&](const std::string& what, const std::string& own) {
    const std::string first = first_complaint(group, own);
    if (!first.empty()) notes_.push_back(fmt::format("no {}: {}", what, first));
    return !first.empty();
  };

  std::string why;
  const Nccl* const nccl = find_nccl(peer.path, why);
  if (failed(peer.name, why)) return;
  NcclUniqueId id{};
  std::string own;
  if (group.rank() == Rank{0} && nccl->get_unique_id(&id) != 0) own = "ncclGetUniqueId failed";
  if (failed(peer.name, own)) return;
  const std::string first = group.all_gather({id.bytes, sizeof id.bytes}).at(0);
  if (first.size() != sizeof id.bytes) fail(ErrorCode::protocol, "rank 0 sent no NCCL id");
  std::memcpy(id.bytes, first.data(), sizeof id.bytes);

  auto session = std::make_shared<NcclSession>(*nccl, group.device().value);
  std::unique_ptr<Implementation> plain;
  own = complaint_of([&] {
    session->init(group.size(), id, group.rank().value);
    plain = std::make_unique<NcclPlain>(peer.name, session, options, bytes);
  });
  if (failed(peer.name, own)) return;
  sessions_.push_back(session);
  const std::string version = nccl->version();
  if (!nccl_versions_.empty()) nccl_versions_ += ", ";
  nccl_versions_ += options.nccl.size() == 1 ? version : fmt::format("{} ({})", version, peer.name);
  all_.push_back(std::move(plain));

  if (!options.collective->nccl_has_symmetric) return;
  if (!nccl->has_windows()) own = fmt::format("NCCL {} has no symmetric windows (2.27 has)", version);
  if (failed(peer.name_with_windows(), own)) return;
  std::unique_ptr<NcclSymmetric> symmetric;
  own = complaint_of([&] {
    symmetric = std::make_unique<NcclSymmetric>(peer.name_with_windows(), session, options, bytes);
  });
  if (failed(peer.name_with_windows(), own)) return;
  own = complaint_of([&] { symmetric->enter(); });
  if (failed(peer.name_with_windows(), own)) return;
  all_.push_back(std::move(symmetric));
}

}  // namespace onehop::cli
