// SPDX-License-Identifier: Apache-2.0
#include "fault/weak_rank.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace onehop::fault {
namespace {

using std::chrono::seconds;
using testing::footprint;

constexpr Duration kTimeout{kSanitized ? 1000 : 500};

void check(bool right, const char* what) {
  if (!right) throw std::logic_error(fmt::format("{} succeeded with a wrong result", what));
}

/// Forks a child, in which the group must be unusable and say so. True when a call failed in the child.
bool fork_once(const Group& group, const std::function<bool()>& free) {
  constexpr int kRight = 10;
  constexpr int kRightAndStruck = 11;
  const pid_t child = ::fork();
  if (child < 0) return false;  // the program's own call, which may fail
  if (child == 0) {
    (void)::alarm(5);
    int code = 0;
    try {
      group.check();
    } catch (const Error&) {
      code = free() ? kRightAndStruck : kRight;
    }
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  check(WIFEXITED(status) && WEXITSTATUS(status) >= kRight, "check() in the child of a fork");
  return WEXITSTATUS(status) == kRightAndStruck;
}

/// Of private memory that the ranks read in each other's processes.
void check_large_all_gather(Group& group) {
  constexpr std::size_t kBlock = (128 << 10) / sizeof(float);
  const std::vector<float> in(kBlock, static_cast<float>(group.rank().value));
  std::vector<float> out(kBlock * WeakRankJob::kRanks, -1);
  (void)all_gather(group, in.data(), out.data(), kBlock, DType::f32);
  for (std::size_t i = 0; i < out.size(); ++i)
    check(out[i] == static_cast<float>(i / kBlock), "all_gather of large data");
}

}  // namespace

const char* to_text(StoreKind kind) {
  switch (kind) {
    case StoreKind::file:
      return "file";
    case StoreKind::tcp:
      return "TCP";
    case StoreKind::hosted:
      break;
  }
  return "TCP, server in the rank";
}

WeakRankJob::WeakRankJob(int weak, StoreKind kind, const StoreServer* server, std::function<void()> hamper,
                         std::function<bool()> free)
    : weak_(weak),
      kind_(kind),
      port_(server == nullptr ? 0 : server->port()),
      prefix_(dir_.path().substr(dir_.path().rfind('/') + 1)),
      hamper_(std::move(hamper)),
      free_(std::move(free)),
      world_(std::make_unique<World>(kRanks, [this](World& world, Rank rank) { live(world, rank); })) {}

std::shared_ptr<Store> WeakRankJob::open_store(Duration timeout) const {
  if (kind_ == StoreKind::file) return file_store(dir_.path());
  return prefix_store(tcp_store(TcpStoreOptions{.port = port_, .timeout = timeout}), prefix_);
}

/// Uses everything that needs the system, once.
void WeakRankJob::work(World& world, Rank rank, Attempt& attempt) {
  attempt.begin_call();
  Group group = Group::join(open_store(kTimeout),
                            {.rank = rank, .size = kRanks, .timeout = kTimeout, .scratch_bytes = 256 << 10});
  attempt.begin_call();
  std::optional<SymmetricBuffer> buffer = group.allocate(64 << 10);
  attempt.begin_call();
  buffer->barrier(0, kTimeout);
  attempt.begin_call();
  check_all_reduce(group);
  attempt.begin_call();
  check_send_recv(group);
  attempt.begin_call();
  check_large_all_gather(group);
  attempt.begin_call();
  check(group.all_gather(std::to_string(rank.value)).at(1) == "1", "Group::all_gather");
  attempt.begin_call();
  std::vector<int> fds = group.channel().all_gather_fds(STDERR_FILENO, kTimeout);
  for (int& fd : fds) {
    if (fd != STDERR_FILENO) (void)::close(fd);
  }
  attempt.begin_call();
  const int fd = group.channel().broadcast_fds(STDERR_FILENO, Rank{1}, kTimeout);
  if (fd != STDERR_FILENO) (void)::close(fd);
  if (rank.value == weak_ && fork_once(group, free_)) world.card(rank).figures[kStruck] = 1;
  // Ranks in reverse order, so that confusing the two numberings names the wrong rank.
  attempt.begin_call();
  std::optional<Group> part = group.split(0, -rank.value);
  attempt.begin_call();
  double& groups = world.card(rank).figures[kGroups];
  groups = kPart;
  part->barrier();
  groups = kBoth;
  // Two groups at once: one of them on a thread of its own.
  attempt.begin_call();
  std::vector<float> first(1000, 1);
  std::vector<float> second(1000, 2);
  GroupCall scope;
  (void)all_reduce(group, std::span(first));
  (void)all_reduce(*part, std::span(second));
  scope.end();
  check(first[0] == kRanks && second[999] == 2 * kRanks, "all_reduce in a GroupCall");
  attempt.begin_call();
  groups = kWhole;
  part->leave();
  buffer.reset();
  group.barrier();
  group.leave();
}

void WeakRankJob::live(World& world, Rank rank) {
  std::unique_ptr<TcpStoreServer> server;
  if (kind_ == StoreKind::hosted) {
    if (rank.value == 0) {
      server = TcpStoreServer::start({});
      world.card(rank).figures[kPort] = server->port();
      world.raise(kServerUp);
    }
    if (!world.await(kServerUp, 1, seconds{10})) return;
    port_ = static_cast<std::uint16_t>(world.card(Rank{0}).figures[kPort]);
  }
  (void)::setenv("ONEHOP_SINGLE_COPY", "1", 1);  // even if there is no processor for each rank
  Card& card = world.card(rank);
  const int before = footprint().descriptors;
  card.attempts[0].run([&] {
    struct Hampered {
      ~Hampered() {
        if (job != nullptr && job->free_()) card.figures[kStruck] = 1;
      }
      WeakRankJob* job;
      Card& card;
    };
    const Hampered hampered{rank.value == weak_ ? this : nullptr, card};
    if (rank.value == weak_) hamper_();
    work(world, rank, card.attempts[0]);
  });
  world.raise(kEnded);
  (void)world.await(kEnded, kRanks, seconds{10});
  card.attempts[1].run([&] {
    Group group =
        Group::join(open_store(seconds{10}),
                    {.rank = rank, .size = kRanks, .timeout = seconds{10}, .scratch_bytes = 1 << 20});
    check_all_reduce(group);
  });
  // The server's own connections come and go on its thread.
  if (server == nullptr) card.figures[kLeaked] = footprint().descriptors - before;
  world.raise(kEnded);
  (void)world.await(kEnded, 2 * kRanks, seconds{10});
}

bool WeakRankJob::struck() const {
  return world_->card(Rank{weak_}).figures[kStruck] != 0;
}

bool WeakRankJob::names_weak(Rank by) const {
  const Card& card = world_->card(by);
  const int origin = card.attempts[0].origin;
  const auto groups = static_cast<Groups>(card.figures[kGroups]);
  return (origin == weak_ && groups != kPart) || (origin == kRanks - 1 - weak_ && groups != kWhole);
}

bool WeakRankJob::lost_server(Rank by) const {
  if (kind_ != StoreKind::hosted || by.none()) return false;
  const Attempt& attempt = world_->card(by).attempts[0];
  return (attempt.origin < 0 || attempt.origin == by.value) && attempt.text().starts_with("tcp store");
}

std::string WeakRankJob::errors() const {
  std::string line;
  for (Rank r{0}; r.value < kRanks; ++r.value) {
    const Attempt& attempt = world_->card(r).attempts[0];
    line += attempt.state.load() == Attempt::succeeded
                ? fmt::format(" | rank {}: success", r.value)
                : fmt::format(" | rank {}: {}, origin {}: {}", r.value, to_string(attempt.error()),
                              attempt.origin, attempt.text());
  }
  return line;
}

void WeakRankJob::complain(const std::string& what, Cause cause) {
  wrong_ = what + errors();
  cause_ = cause;
}

bool WeakRankJob::is_inconclusive() const {
  constexpr double kBusyMs = 100;
  if (wrong_.empty() || cause_ == Cause::defect || world_->most_late_ms() <= kBusyMs) return false;
  fmt::print("once more, since a rank was {:.0f} ms late: {}\n", world_->most_late_ms(), wrong_);
  return true;
}

Outcome WeakRankJob::finish() {
  if (!world_->finish(seconds{30})) complain("a process hung");
  const double limit = static_cast<double>(kTimeout.count()) + 100 + world_->lateness_ms();
  int failed = 0;
  for (Rank r{0}; r.value < kRanks && wrong_.empty(); ++r.value) {
    const Card& card = world_->card(r);
    const Attempt& first = card.attempts[0];
    if (world_->exit_of(r) != 0)
      complain(fmt::format("rank {} ended with {}", r.value, world_->exit_of(r)));
    else if (first.state.load() == Attempt::broken || first.state.load() == Attempt::running)
      complain(fmt::format("rank {}: {}", r.value, first.text()));
    else if (first.text().find('\n') != std::string::npos)
      complain("more than one line");
    else if (first.call_ms() > limit)
      complain(fmt::format("rank {} took {:.0f} ms", r.value, first.call_ms()), Cause::maybe_lateness);
    else if (card.figures[kLeaked] != 0)
      complain(fmt::format("rank {} leaks {} descriptors", r.value, card.figures[kLeaked]));
    else if (card.attempts[1].state.load() != Attempt::succeeded)
      complain(fmt::format("rank {}, second job: {}", r.value, card.attempts[1].text()),
               Cause::maybe_lateness);
    failed += first.state.load() == Attempt::failed ? 1 : 0;
  }
  if (!wrong_.empty()) return Outcome::wrong;
  if (failed == 0) return Outcome::recovered;
  if (failed < kRanks) {
    complain("some ranks succeeded", Cause::maybe_lateness);
    return Outcome::wrong;
  }
  bool same = true;
  for (Rank r{0}; r.value < kRanks && wrong_.empty(); ++r.value) {
    const Attempt& attempt = world_->card(r).attempts[0];
    const bool own = r.value == weak_;
    same = same && attempt.code == world_->card(Rank{weak_}).attempts[0].code;
    if (!names_weak(r) && !(own && attempt.origin < 0) && !lost_server(r) &&
        !lost_server(Rank{attempt.origin}))
      complain(fmt::format("rank {} names rank {}", r.value, attempt.origin), Cause::maybe_lateness);
    else if (attempt.error() == ErrorCode::mismatch)
      complain("a mismatch");
    else if (attempt.text().find(" died;") != std::string::npos)  // "died, or ..." is a guess
      complain("nobody died");
    else if (!own && attempt.code != world_->card(Rank{weak_}).attempts[0].code &&
             attempt.error() != ErrorCode::timeout && attempt.error() != ErrorCode::peer_lost)
      complain("different errors", Cause::maybe_lateness);
  }
  if (!wrong_.empty()) return Outcome::wrong;
  return same ? Outcome::same_error : Outcome::named;
}

}  // namespace onehop::fault
