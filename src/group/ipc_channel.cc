#include <optional>

#include "onehop/ipc.h"

#include "base/check.h"
#include "group/connect_mesh.h"
#include "os/host_id.h"
#include "os/private_dir.h"
#include "os/socket.h"

namespace onehop {

IpcChannel::IpcChannel(std::shared_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}
IpcChannel::IpcChannel(IpcChannel&&) noexcept = default;
IpcChannel& IpcChannel::operator=(IpcChannel&&) noexcept = default;
IpcChannel::~IpcChannel() = default;

IpcChannel IpcChannel::connect(const std::shared_ptr<Store>& store, const std::string& prefix, Rank rank,
                               int size, Duration timeout) {
  require(store != nullptr, "IpcChannel::connect needs a store");
  require(size >= 2 && size <= kMaxHostRanks && rank.value >= 0 && rank.value < size,
          "rank {} of a channel of {}: a channel has 2 to {} ranks", rank.value, size, kMaxHostRanks);
  const Deadline deadline = Deadline::after(timeout);

  // A failure of this rank alone travels to everyone with its address.
  std::optional<os::PrivateDir> directory;
  os::UniqueFd listener;
  Ack own;
  own.hello.rank = rank.value;
  own.hello.hostname = os::hostname();
  try {
    own.hello.boot_id = os::boot_id();
    directory = os::PrivateDir::create("channel");
    own.hello.socket = directory->path() + "/socket";
    listener = os::listen_unix(own.hello.socket);
  } catch (const Error& error) {
    own.status = Status::of(error, rank);
  }

  StoreExchange exchange(store, prefix, rank, size);
  // Rank 0's random number tells this channel's connections from strays.
  MeshPlan plan{.id = exchange.broadcast(os::random_id(), Rank{0}, deadline.left()),
                .rank = rank,
                .paths = {},
                .listener = listener.get()};
  for (const std::string& raw : exchange.all_gather(encode(own), deadline.left())) {
    const Ack ack = parse_ack(raw);
    ack.status.throw_if_failed();
    if (plan.paths.empty()) own.hello.boot_id = ack.hello.boot_id;  // rank 0's, which all compare with
    if (ack.hello.boot_id != own.hello.boot_id) {
      fail_from(Rank{ack.hello.rank}, ErrorCode::refused,
                "ranks 0 and {} are on different machines; a channel needs one", ack.hello.rank);
    }
    plan.paths.push_back(ack.hello.socket);
  }
  std::shared_ptr<Mesh> mesh = connect_mesh(plan, deadline);
  (void)mesh->all_gather("", deadline, "connecting");  // listeners stay until everyone is connected
  return IpcChannel(std::move(mesh));
}

Rank IpcChannel::rank() const {
  return mesh_->rank();
}
int IpcChannel::size() const {
  return mesh_->size();
}

void IpcChannel::send_fd(Rank to, int fd, Duration timeout) {
  mesh_->send_fd(to, fd, Deadline::after(timeout));
}

int IpcChannel::recv_fd(Rank from, Duration timeout) {
  return mesh_->recv_fd(from, Deadline::after(timeout)).release();
}

std::vector<int> IpcChannel::all_gather_fds(int fd, Duration timeout) {
  std::vector<os::UniqueFd> owned = mesh_->all_gather_fds(fd, Deadline::after(timeout));
  std::vector<int> all;
  all.reserve(owned.size());  // before anything is released
  for (os::UniqueFd& each : owned) all.push_back(each.release());
  all[static_cast<std::size_t>(rank().value)] = fd;
  return all;
}

int IpcChannel::broadcast_fds(int fd, Rank root, Duration timeout) {
  os::UniqueFd received = mesh_->broadcast_fds(fd, root, Deadline::after(timeout));
  return rank() == root ? fd : received.release();
}

std::vector<std::string> IpcChannel::all_gather(std::string_view payload, Duration timeout) {
  return mesh_->all_gather(payload, Deadline::after(timeout), "all_gather");
}

void IpcChannel::barrier(Duration timeout) {
  (void)mesh_->all_gather("", Deadline::after(timeout), "barrier");
}

}  // namespace onehop
