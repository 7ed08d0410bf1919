// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "onehop/ipc.h"

#include "base/check.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "group/connect_mesh.h"
#include "os/host_id.h"
#include "os/private_dir.h"
#include "os/socket.h"

namespace onehop {
namespace {

/// Used by calls that can tell the other ranks of a bad timeout only by ending the channel.
Deadline deadline_of(IpcChannel::Mesh& mesh, Duration timeout, const char* phase) {
  try {
    return Deadline::after(timeout);
  } catch (const Error& error) {
    mesh.fail_call(error, phase);
  }
}

/// Used by calls that all ranks take part in to the end, including ranks that refuse.
Deadline usable_deadline(Duration timeout) {
  return Deadline::after(timeout.count() < 0 ? kDefaultTimeout : timeout);
}

/// Why a rank could not connect, left for the ranks that it has no connection to.
class LastWords {
 public:
  LastWords(Store& store, std::string key) : store_(store), key_(std::move(key)) {}

  /// Leaves the reason; the first rank to leave one wins.
  void leave(const Status& status, const Deadline& deadline) const noexcept {
    try {
      const Duration brief = within_clean_up(deadline.at_most(Duration{1000})).left();
      (void)store_.compare_set(key_, "", encode(status), brief);
    } catch (const std::exception& e) {
      log::warn("telling why a channel could not be connected: {}", e.what());
    }
  }
  void throw_if_there() const {
    if (const std::optional<std::string> raw = store_.get_for(key_, Duration{0}))
      parse_status(*raw).throw_if_failed();
  }

 private:
  Store& store_;
  std::string key_;
};

IpcChannel::Mesh& in_use(const std::shared_ptr<IpcChannel::Mesh>& mesh) {
  require(mesh != nullptr, "this channel was moved from");
  return *mesh;
}

Status refusal_of(Rank rank, Duration timeout, const char* phase) {
  if (timeout.count() >= 0) return {};
  return {.code = ErrorCode::invalid_argument,
          .origin = rank,
          .message = fmt::format("{}: the timeout of rank {} must not be negative, got {} ms", phase,
                                 rank.value, timeout.count())};
}

}  // namespace

IpcChannel::IpcChannel(std::shared_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}
IpcChannel::IpcChannel(IpcChannel&&) noexcept = default;
IpcChannel& IpcChannel::operator=(IpcChannel&&) noexcept = default;
IpcChannel::~IpcChannel() = default;

IpcChannel IpcChannel::connect(const std::shared_ptr<Store>& store, const std::string& prefix, Rank rank,
                               int size, Duration timeout) {
  require(store != nullptr, "IpcChannel::connect needs a store");
  require(size >= 1 && size <= kMaxHostRanks && rank.value >= 0 && rank.value < size,
          "rank {} of a channel of {}: a channel has 1 to {} ranks", rank.value, size, kMaxHostRanks);
  const Deadline deadline = usable_deadline(timeout);

  // A failure of this rank alone reaches all ranks, sent with its address.
  std::optional<os::PrivateDir> directory;
  os::UniqueFd listener;
  Ack own;
  own.hello.rank = rank.value;
  own.hello.hostname = os::hostname();
  try {
    refusal_of(rank, timeout, "connecting").throw_if_failed();
    own.hello.boot_id = os::boot_id();
    directory = os::PrivateDir::create("channel");
    own.hello.socket = directory->path() + "/socket";
    listener = os::listen_unix(own.hello.socket);
  } catch (const Error& error) {
    own.status = Status::of(naming(rank, error), rank);
  }

  StoreExchange exchange(store, prefix, rank, size);
  // Rank 0's random number distinguishes this channel's connections from foreign ones.
  MeshPlan plan{.id = exchange.broadcast(os::random_id(), Rank{0}, deadline.left()),
                .rank = rank,
                .paths = {},
                .listener = listener.get()};
  for (const std::string& raw : exchange.all_gather(encode(own), deadline.left())) {
    const Ack ack = parse_ack(raw);
    ack.status.throw_if_failed();
    if (plan.paths.empty()) own.hello.boot_id = ack.hello.boot_id;  // rank 0's; all ranks compare with it
    if (ack.hello.boot_id != own.hello.boot_id) {
      fail_from(Rank{ack.hello.rank}, ErrorCode::refused,
                "ranks 0 and {} are on different machines; a channel needs one", ack.hello.rank);
    }
    plan.paths.push_back(ack.hello.socket);
  }
  const LastWords last_words(*store, fmt::format("{}/{}/failed", prefix, os::to_hex(plan.id)));
  plan.poll_failure = [&](bool) { last_words.throw_if_there(); };
  std::shared_ptr<Mesh> mesh;
  try {
    mesh = connect_mesh(plan, deadline);
  } catch (const Error& error) {
    // The others may still wait for this rank's connection.
    std::optional<CleanUpTime> clean_up;
    if (error.code() == ErrorCode::aborted) clean_up.emplace();
    const Status status = Status::of(error, rank);
    last_words.leave(status, deadline);
    status.throw_if_failed();
  }
  try {
    (void)mesh->all_gather("", deadline, "connecting");  // listeners stay until all are connected
  } catch (const Error&) {
    // A rank that gave up before it accepted this one's connection looks as if it had died.
    last_words.throw_if_there();
    throw;
  }
  return IpcChannel(std::move(mesh));
}

Rank IpcChannel::rank() const {
  return in_use(mesh_).rank();
}
int IpcChannel::size() const {
  return in_use(mesh_).size();
}

void IpcChannel::send_fd(Rank to, int fd, Duration timeout) {
  Mesh& mesh = in_use(mesh_);
  try {
    mesh.send_fd(to, fd, Deadline::after(timeout));
  } catch (const Error& error) {
    // The receiver must not take the next descriptor for this one.
    if (error.code() == ErrorCode::timeout) throw;
    mesh.fail_call(error, "send_fd");
  }
}

int IpcChannel::recv_fd(Rank from, Duration timeout) {
  return in_use(mesh_).recv_fd(from, Deadline::after(timeout)).release();
}

std::vector<int> IpcChannel::all_gather_fds(int fd, Duration timeout) {
  Mesh& mesh = in_use(mesh_);
  std::vector<os::UniqueFd> owned = mesh.all_gather_fds(fd, deadline_of(mesh, timeout, "all_gather_fds"));
  std::vector<int> all;
  all.reserve(owned.size());  // reserve before releasing anything
  for (os::UniqueFd& each : owned) all.push_back(each.release());
  all[static_cast<std::size_t>(rank().value)] = fd;
  return all;
}

int IpcChannel::broadcast_fds(int fd, Rank root, Duration timeout) {
  Mesh& mesh = in_use(mesh_);
  os::UniqueFd received = mesh.broadcast_fds(fd, root, deadline_of(mesh, timeout, "broadcast_fds"));
  return rank() == root ? fd : received.release();
}

std::vector<std::string> IpcChannel::all_gather(std::string_view payload, Duration timeout) {
  constexpr const char* kPhase = "all_gather";
  return in_use(mesh_).all_gather(payload, usable_deadline(timeout), kPhase,
                                  refusal_of(rank(), timeout, kPhase));
}

void IpcChannel::barrier(Duration timeout) {
  constexpr const char* kPhase = "barrier";
  (void)in_use(mesh_).all_gather("", usable_deadline(timeout), kPhase, refusal_of(rank(), timeout, kPhase));
}

}  // namespace onehop
