// SPDX-License-Identifier: Apache-2.0
// Attacks on the TCP store by processes that do not know its secret, and by some that do, while four honest
// ranks use it for their rendezvous. All attacks run on loopback and are bounded in number and time.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/sha256.h"
#include "store/store_test_util.h"
#include "store/tcp_test_util.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

using namespace std::chrono_literals;
using store::kFrameHeaderBytes;
using store::Op;

constexpr const char* kSecret = "open sesame";
constexpr int kRanks = 4;
constexpr Duration kHonestTime{40000};  // allows for a busy machine and sanitizers

/// Runs an attack: starts the attackers, runs the honest ranks, then ends all.
class Stage {
 public:
  void begun() {
    const std::lock_guard lock(mutex_);
    begun_ = true;
    changed_.notify_all();
  }
  void await_begin() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 20s, [&] { return begun_; })) ADD_FAILURE() << "the attack never began";
  }
  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] bool over() const { return over_; }
  /// Returns false once the attack is over.
  bool pause(Duration time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, time, [&] { return over_.load(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::atomic<bool> over_ = false;
};

/// Idle connections, the oldest of which are replaced by new ones.
class Swarm {
 public:
  Swarm(std::uint16_t port, std::size_t most)
      : address_(store::resolve("127.0.0.1", port).front()), most_(most) {}

  void connect() {
    if (sockets_.size() == most_) sockets_.pop_front();
    os::UniqueFd fd = store::open_socket(address_);
    (void)::connect(fd.get(), address_.get(), address_.size);
    sockets_.push_back(std::move(fd));
  }
  /// Sends to every connection and replaces those that the server has closed.
  void send(std::string_view bytes) {
    for (os::UniqueFd& fd : sockets_) {
      if (::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0 || errno == EAGAIN) continue;
      fd = store::open_socket(address_);
      (void)::connect(fd.get(), address_.get(), address_.size);
    }
  }

 private:
  const store::TcpAddress address_;
  const std::size_t most_;
  std::deque<os::UniqueFd> sockets_;
};

constexpr std::size_t kSwarm = testing::kSanitized ? 600 : 1500;

void silent(std::uint16_t port, Stage& stage) {
  Swarm swarm(port, kSwarm);
  for (std::size_t i = 0; i < kSwarm; ++i) swarm.connect();
  stage.begun();
  while (stage.pause(1000ms)) swarm.send("");
}

void one_byte_a_second(std::uint16_t port, Stage& stage) {
  Swarm swarm(port, kSwarm);
  for (std::size_t i = 0; i < kSwarm; ++i) swarm.connect();
  swarm.send(std::string(1, '\x16'));
  stage.begun();
  while (stage.pause(1000ms)) swarm.send(std::string(1, '\0'));
}

void thousands_of_connections(std::uint16_t port, Stage& stage) {
  constexpr int kMost = 100'000;
  Swarm swarm(port, kSwarm);
  for (int i = 0; i < kMost && !stage.over(); ++i) {
    swarm.connect();
    if (i == 2000) stage.begun();
    if (i % 20 == 0 && !stage.pause(1ms))
      break;  // about 10,000 per second, which leaves a core to the others
  }
}

void half_hellos(std::uint16_t port, Stage& stage) {
  const std::string hello = encode_hello(store::ClientHello{.nonce = std::string(store::kNonceBytes, 'c')});
  const std::string frame = store::encode_frame_header(hello.size()) + hello;
  Swarm swarm(port, kSwarm);
  for (std::size_t i = 0; i < kSwarm; ++i) swarm.connect();
  while (!stage.over()) {
    swarm.send(std::string_view(frame).substr(0, frame.size() / 2));
    stage.begun();
    if (!stage.pause(200ms)) break;
  }
}

/// Everything that it sends instead of a proof is rejected.
void guess(std::uint16_t port, Stage& stage, const std::function<std::string()>& proof) {
  const std::string nonce(store::kNonceBytes, 'c');
  constexpr int kMost = 20'000;
  for (int i = 0; i < kMost && !stage.over(); ++i) {
    RawClient client(port);
    client.send_frame(encode_hello(store::ClientHello{.nonce = nonce}));
    if (const auto answer = client.read_frame()) {
      client.send_frame(proof());
      if (const auto verdict = client.read_frame()) {
        EXPECT_EQ(store::parse_reply(*verdict).kind, store::ReplyKind::error);
      }
    }
    if (i == 20) stage.begun();
  }
}

void wrong_secrets(std::uint16_t port, Stage& stage) {
  guess(port, stage, [] { return store::fresh_nonce() + store::fresh_nonce(); });
}

void a_recorded_handshake(std::uint16_t port, Stage& stage) {
  const std::string nonce(store::kNonceBytes, 'c');
  RawClient recorded(port);
  recorded.send_frame(encode_hello(store::ClientHello{.nonce = nonce}));
  const std::string answer = recorded.read_frame().value();
  const std::string proof = store::proof(store::Side::client, kSecret, nonce,
                                         store::parse_server_hello(store::parse_reply(answer).bytes).nonce);
  recorded.send_frame(proof);
  ASSERT_EQ(store::parse_reply(recorded.read_frame().value()).kind, store::ReplyKind::value);
  guess(port, stage, [&] { return proof; });
}

void announcements_of_4_gigabytes(std::uint16_t port, Stage& stage) {
  constexpr int kMost = 20'000;
  for (int i = 0; i < kMost && !stage.over(); ++i) {
    RawClient client(port);
    client.send("\xff\xff\xff\xff");
    EXPECT_EQ(client.read_frame(), std::nullopt);
    if (i == 20) stage.begun();
  }
}

/// Clients that know the secret. Each sends the first `arrived` bytes of a request of the maximum size.
void long_requests(std::uint16_t port, Stage& stage, std::size_t arrived) {
  const std::string value(kMaxValueBytes, 'v');
  const std::string request =
      store::encode_request({.op = Op::compare_set, .key = "long", .value = value, .expected = value});
  std::string frame = store::encode_frame_header(request.size()) + request;
  frame.resize(arrived);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<std::thread> senders;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(std::make_unique<RawClient>(port));
    clients.back()->shake_hands(kSecret);
  }
  for (const auto& client : clients) senders.emplace_back([&] { client->send(frame); });
  stage.begun();
  while (stage.pause(1000ms)) {
  }
  for (const auto& client : clients) client->end();
  for (std::thread& sender : senders) sender.join();
}

void long_requests_that_are_only_announced(std::uint16_t port, Stage& stage) {
  long_requests(port, stage, kFrameHeaderBytes);
}
void long_requests_that_begin(std::uint16_t port, Stage& stage) {
  long_requests(port, stage, 100'000);
}
void long_requests_that_lack_their_last_byte(std::uint16_t port, Stage& stage) {
  long_requests(port, stage, kFrameHeaderBytes + 1 + 3 * 4 + 4 + 2 * kMaxValueBytes - 1);
}

struct Attack {
  const char* name;
  void (*run)(std::uint16_t port, Stage& stage);
  bool long_requests = false;  ///< whether the honest ranks also make long requests
};
void PrintTo(const Attack& attack, std::ostream* out) {
  *out << attack.name;
}

class TcpStoreUnder : public ::testing::TestWithParam<Attack> {
 protected:
  TcpStoreUnder() {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = more.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &more);
    enough_ = more.rlim_cur > kSwarm + 200;
  }
  ~TcpStoreUnder() override { (void)::setrlimit(RLIMIT_NOFILE, &before_); }

  rlimit before_ = {};
  bool enough_ = false;
};

INSTANTIATE_TEST_SUITE_P(
    Attacks, TcpStoreUnder,
    ::testing::Values(Attack{"SilentConnections", silent}, Attack{"OneByteASecond", one_byte_a_second},
                      Attack{"ThousandsOfConnections", thousands_of_connections},
                      Attack{"HalfHellos", half_hellos}, Attack{"WrongSecrets", wrong_secrets},
                      Attack{"ARecordedHandshake", a_recorded_handshake},
                      Attack{"AnnouncementsOf4Gigabytes", announcements_of_4_gigabytes},
                      Attack{"LongRequestsThatAreOnlyAnnounced", long_requests_that_are_only_announced, true},
                      Attack{"LongRequestsThatBegin", long_requests_that_begin, true},
                      Attack{"LongRequestsThatLackTheirLastByte", long_requests_that_lack_their_last_byte,
                             true}),
    [](const auto& attack) { return std::string(attack.param.name); });

/// A rank's use of the store: several exchanges, and two requests of the maximum size.
void use_store(std::uint16_t port, Rank rank, bool long_requests) {
  const auto store = tcp_store({.port = port, .secret = kSecret, .timeout = kHonestTime});
  StoreExchange exchange(store, "honest", rank, kRanks);
  for (int round = 0; round < 10; ++round) {
    const std::vector<int> all = exchange.all_gather(round * 10 + rank.value, kHonestTime);
    for (int r = 0; r < kRanks; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], round * 10 + r);
  }
  if (!long_requests || rank.value > 1) return;
  const std::string value(kMaxValueBytes, 'h');
  EXPECT_TRUE(store->compare_set("no such key", value, value, kHonestTime) == value);
}

TEST_P(TcpStoreUnder, AttackFourHonestRanksFinish) {
  if (!enough_) GTEST_SKIP() << "the attack needs " << kSwarm + 200 << " descriptors";
  const ServerProcess server({.secret = kSecret});
  Stage stage;
  std::thread attacker([&] { GetParam().run(server.port(), stage); });
  stage.await_begin();
  std::vector<std::thread> ranks;
  for (Rank rank{0}; rank.value < kRanks; ++rank.value) {
    ranks.emplace_back([&, rank] {
      try {
        use_store(server.port(), rank, GetParam().long_requests);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank.value << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  stage.end();
  attacker.join();
}

}  // namespace
}  // namespace onehop
