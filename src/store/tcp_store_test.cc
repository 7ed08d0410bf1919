// SPDX-License-Identifier: Apache-2.0
// Tests of what is specific to the TCP store: authentication, misbehaving clients, and the loss of either
// side. store_conformance_test.cc tests what all stores have in common.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <optional>

#include "base/sha256.h"
#include "store/store_test_util.h"
#include "store/tcp_test_util.h"
#include "support/sanitizers.h"

namespace onehop {
namespace {

using namespace std::chrono_literals;
using store::Op;
using store::ReplyKind;
using ::testing::HasSubstr;

// --- authentication

TEST(TcpStore, TheRightSecretIsLetIn) {
  const auto server = TcpStoreServer::start({.secret = "open sesame"});
  const auto store = tcp_store({.port = server->port(), .secret = "open sesame"});
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
}

TEST(TcpStore, AWrongSecretIsRefusedWithTheReason) {
  const auto server = TcpStoreServer::start({.secret = "open sesame"});
  EXPECT_THAT(message_of([&] { (void)tcp_store({.port = server->port(), .secret = "open barley"}); },
                         ErrorCode::invalid_argument),
              HasSubstr("the secret does not match"));
  EXPECT_THAT(message_of([&] { (void)tcp_store(at_port(server->port())); }, ErrorCode::invalid_argument),
              HasSubstr("asks for a secret"));
}

TEST(TcpStore, ASecretIsNotShownToAServerThatHasNone) {
  const auto server = TcpStoreServer::start({});
  EXPECT_THAT(message_of([&] { (void)tcp_store({.port = server->port(), .secret = "open sesame"}); },
                         ErrorCode::invalid_argument),
              HasSubstr("has none"));
}

TEST(TcpStore, ARecordedProofDoesNotServeAgain) {
  const auto server = TcpStoreServer::start({.secret = "open sesame"});
  const std::string nonce(store::kNonceBytes, 'c');
  const auto hello_of = [&](RawClient& client) {
    client.send_frame(encode_hello(store::ClientHello{.nonce = nonce}));
    const std::string answer = client.read_frame().value();
    return std::string(store::parse_server_hello(store::parse_reply(answer).bytes).nonce);
  };
  RawClient first(server->port());
  const std::string recorded = proof(store::Side::client, "open sesame", nonce, hello_of(first));
  first.send_frame(recorded);
  EXPECT_EQ(store::parse_reply(first.read_frame().value()).kind, ReplyKind::value);
  RawClient second(server->port());
  (void)hello_of(second);
  second.send_frame(recorded);
  EXPECT_EQ(store::parse_reply(second.read_frame().value()).kind, ReplyKind::error);
  EXPECT_EQ(second.read_frame(), std::nullopt);
}

TEST(TcpStore, AServerThatDoesNotKnowTheSecretIsRefused) {
  const store::TcpAddress any = store::resolve("127.0.0.1", 0).front();
  const os::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), any.get(), any.size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  std::thread impostor([&] {
    const os::UniqueFd client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto reply = [&](std::string_view bytes) {
      char request[256];
      (void)!::recv(client.get(), request, sizeof request, 0);
      const std::string frame = store::encode_value_head(bytes.size()).append(bytes);
      (void)!::send(client.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    };
    reply(encode_hello(
        store::ServerHello{.secret_required = true, .nonce = std::string(store::kNonceBytes, 's')}));
    reply(std::string(kDigestBytes, 'p'));
  });
  EXPECT_THAT(
      message_of(
          [&] {
            (void)tcp_store({.port = store::local_address(listener.get()).port(), .secret = "open sesame"});
          },
          ErrorCode::invalid_argument),
      HasSubstr("the server does not know the secret"));
  impostor.join();
}

TEST(TcpStore, WithoutASecretAServerListensOnLoopbackOnly) {
  for (const char* host : {"0.0.0.0", "::"}) {
    EXPECT_THAT(message_of([&] { (void)TcpStoreServer::start({.host = host}); }, ErrorCode::invalid_argument),
                HasSubstr("give it a secret"));
  }
  const auto server = TcpStoreServer::start({.host = "0.0.0.0", .secret = "open sesame"});
  EXPECT_NO_THROW((void)tcp_store({.port = server->port(), .secret = "open sesame"}));
}

// --- addresses and connecting

TEST(TcpStore, APortInUseIsNamedWithTheRemedy) {
  const auto server = TcpStoreServer::start({});
  const std::string message =
      message_of([&] { (void)TcpStoreServer::start(at_port(server->port())); }, ErrorCode::system);
  EXPECT_THAT(message, HasSubstr("127.0.0.1:" + std::to_string(server->port())));
  EXPECT_THAT(message, HasSubstr("in use; choose another"));
}

TEST(TcpStore, AClientWithoutAPortIsRefusedAtOnce) {
  EXPECT_THAT(message_of([] { (void)tcp_store({.port = 0}); }, ErrorCode::invalid_argument),
              HasSubstr("needs the port of its server"));
}

TEST(TcpStore, AHostThatDoesNotResolveIsNamed) {
  for (const char* host : {"", "no such host", "300.0.0.1"}) {
    EXPECT_THAT(message_of([&] { (void)TcpStoreServer::start({.host = host}); }, ErrorCode::invalid_argument),
                HasSubstr(std::string("'") + host + "'"));
  }
}

TEST(TcpStore, AClientWaitsUntilTheServerIsUp) {
  const ReservedPort reserved;
  std::shared_ptr<Store> store;
  std::thread client([&] { store = tcp_store(at_port(reserved.port())); });
  const auto server = TcpStoreServer::start(at_port(reserved.port()));
  client.join();
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
}

TEST(TcpStore, AClientGivesUpAtItsDeadline) {
  const ReservedPort reserved;
  const Stopwatch watch;
  const std::string message =
      message_of([&] { (void)tcp_store(at_port(reserved.port(), 200ms)); }, ErrorCode::timeout);
  EXPECT_LE(watch.elapsed(), 200ms + kPromise + kBusyMachine);
  EXPECT_THAT(message, HasSubstr("127.0.0.1:" + std::to_string(reserved.port())));
  EXPECT_THAT(message, HasSubstr("200 ms (Connection refused"));
}

TEST(TcpStore, AForkedChildConnectsAnew) {
  const auto server = TcpStoreServer::start({});
  const auto store = tcp_store(at_port(server->port()));
  store->set("from parent", "1");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      for (int i = 0; i < 200; ++i) (void)store->add("count", 1);
      if (store->get("from parent") != "1") ::_exit(2);
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  for (int i = 0; i < 200; ++i) (void)store->add("count", 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(store->get("count"), "400");
}

TEST(TcpStore, AForkedChildMayDropItsCopyOfTheServer) {
  auto server = TcpStoreServer::start({});
  const auto store = tcp_store(at_port(server->port()));
  EXPECT_EQ(run_in_child([&] { server.reset(); }), 0);
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
}

TEST(TcpStore, AllDescriptorsAreCloseOnExecAndNoneIsLeftBehind) {
  const auto descriptors = [] {
    std::vector<int> out;
    for (int fd = 0; fd < 256; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) out.push_back(fd);
    }
    return out;
  };
  const std::vector<int> before = descriptors();
  for (int cycle = 0; cycle < 20; ++cycle) {
    const auto server = TcpStoreServer::start({});
    const auto store = tcp_store(at_port(server->port()));
    store->set("key", "value");
    for (const int fd : descriptors()) {
      if (std::find(before.begin(), before.end(), fd) == before.end()) {
        EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC) << "descriptor " << fd;
      }
    }
  }
  EXPECT_EQ(descriptors(), before);
}

// --- misbehaving clients

TEST(TcpStore, ASilentClientIsDroppedAfterFiveSecondsAndHoldsUpNobody) {
  const auto server = TcpStoreServer::start({});
  RawClient silent(server->port());
  RawClient dribbling(server->port());
  dribbling.send(std::string("\x16\x00", 2));
  const Stopwatch watch;
  const auto store = tcp_store(at_port(server->port()));
  for (int i = 0; i < 10; ++i) (void)store->add("count", 1);
  EXPECT_LT(watch.elapsed(), 4s);
  EXPECT_EQ(silent.read_frame(), std::nullopt);
  EXPECT_EQ(dribbling.read_frame(), std::nullopt);
  EXPECT_GE(watch.elapsed(), 4s);
  EXPECT_LE(watch.elapsed(), 5s + kBusyMachine);
}

TEST(TcpStore, AClientThatStopsInMidRequestHoldsUpNobody) {
  const auto server = TcpStoreServer::start({});
  const auto store = tcp_store(at_port(server->port()));
  RawClient slow(server->port());
  slow.shake_hands("");
  slow.send(store::encode_frame_header(1 << 20) + "only the beginning");
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
}

TEST(TcpStore, GarbageEndsOnlyTheConnectionItCameOn) {
  const auto server = TcpStoreServer::start({});
  const auto store = tcp_store(at_port(server->port()));
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(10'000, '\xff'), std::string(4, '\0'),
        store::encode_frame_header(store::kMaxHandshakeBytes + 1), store::encode_frame_header(3) + "abc"}) {
    RawClient client(server->port());
    client.send(garbage);
    EXPECT_EQ(client.read_frame(), std::nullopt);
  }
  for (const std::string& garbage :
       {std::string(4, '\0'), store::encode_frame_header(5) + "\xff????", std::string(4, '\xff'),
        store::encode_frame_header(store::kMaxFrameBytes + 1)}) {
    RawClient client(server->port());
    client.shake_hands("");
    client.send(garbage);
    EXPECT_EQ(client.read_frame(), std::nullopt);
  }
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
}

TEST(TcpStore, AnotherVersionIsToldOurs) {
  const auto server = TcpStoreServer::start({});
  RawClient client(server->port());
  client.send_frame(encode_hello(store::ClientHello{.version = 99, .nonce = "whatever comes then"}));
  const std::string answer = client.read_frame().value();
  EXPECT_EQ(store::parse_server_hello(store::parse_reply(answer).bytes).version, store::kProtocolVersion);
  EXPECT_EQ(client.read_frame(), std::nullopt);
}

TEST(TcpStore, AHalfClosedClientGetsTheReplyToWhatItAsked) {
  const auto server = TcpStoreServer::start({});
  tcp_store(at_port(server->port()))->set("key", "value");
  RawClient client(server->port());
  client.shake_hands("");
  client.send_frame(store::encode_request({.op = Op::get, .key = "key"}));
  client.end_sending();
  EXPECT_EQ(store::parse_reply(client.read_frame().value()).bytes, "value");
  EXPECT_EQ(client.read_frame(), std::nullopt);
}

TEST(TcpStore, AWaitingClientThatLeavesIsForgotten) {
  const auto server = TcpStoreServer::start({});
  const auto store = tcp_store(at_port(server->port()));
  RawClient half_closed(server->port());
  half_closed.shake_hands("");
  half_closed.send_frame(store::encode_request({.op = Op::get, .key = "key", .timeout = 20s}));
  half_closed.end_sending();
  EXPECT_EQ(half_closed.read_frame(), std::nullopt);
  {
    RawClient gone(server->port());
    gone.shake_hands("");
    gone.send_frame(store::encode_request({.op = Op::get, .key = "key", .timeout = 20s}));
  }
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
}

TEST(TcpStore, RequestsSentAheadAreAnsweredInOrder) {
  const auto server = TcpStoreServer::start({});
  RawClient client(server->port());
  client.shake_hands("");
  client.send_frame(store::encode_request({.op = Op::get, .key = "key", .timeout = 50ms}));
  for (int i = 0; i < 3; ++i)
    client.send_frame(store::encode_request({.op = Op::add, .key = "key", .delta = 1}));
  EXPECT_EQ(store::parse_reply(client.read_frame().value()).kind, ReplyKind::missing);
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(store::parse_reply(client.read_frame().value()).number, i);
}

TEST(TcpStore, TheClientBeyondTheLimitAsksAgainUntilItsDeadline) {
  constexpr int kLimit = 1024;
  rlimit files = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit before = files;
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 2 * kLimit + 100) GTEST_SKIP() << "only " << files.rlim_max << " descriptors allowed";
  {
    const auto server = TcpStoreServer::start({});
    const auto store = tcp_store(at_port(server->port()));
    std::vector<RawClient> clients;
    for (int i = 1; i < kLimit; ++i) {
      clients.emplace_back(server->port());
      clients.back().shake_hands("");  // otherwise it would be dropped after five seconds
    }
    const Stopwatch watch;
    EXPECT_THAT(
        message_of([&] { (void)tcp_store(at_port(server->port(), 200ms)); }, ErrorCode::out_of_resources),
        HasSubstr("1024 clients already"));
    EXPECT_GE(watch.elapsed(), 200ms) << "it asks again until its deadline";
    EXPECT_LE(watch.elapsed(), 200ms + kPromise + kBusyMachine);
    store->set("key", "value");
    // When the server detects that they have left, a waiting client is admitted again.
    std::thread leaving([&] { clients.clear(); });
    EXPECT_EQ(tcp_store(at_port(server->port(), 20s))->get("key"), "value");
    leaving.join();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(TcpStore, AServerWithoutDescriptorsWarnsOnceUntilItAcceptsAgain) {
#if ONEHOP_ADDRESS_SANITIZED
  GTEST_SKIP() << "UBSan needs descriptors itself: it looks at memory through a pipe";
#endif
  const int next = ::dup(STDERR_FILENO);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {.rlim_cur = static_cast<rlim_t>(next) + 16, .rlim_max = before.rlim_max};
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    const ServerProcess server;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    std::vector<std::shared_ptr<Store>> clients;
    const auto fill = [&] {
      try {
        for (int i = 0; i < 16; ++i) clients.push_back(tcp_store(at_port(server.port(), 500ms)));
      } catch (const Error& error) {
        EXPECT_THAT(error.message(), HasSubstr("cannot accept another client"));
        return;
      }
      ADD_FAILURE() << "all were accepted";
    };
    fill();
    fill();
    ASSERT_FALSE(clients.empty());
    clients.pop_back();
    clients.push_back(tcp_store(at_port(server.port(), 20s)));
    fill();
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  std::size_t warnings = 0;
  for (std::size_t at = 0; (at = said.find("cannot accept a client", at)) != std::string::npos; ++at)
    ++warnings;
  EXPECT_EQ(warnings, 2u) << said;
}

// --- loss of the server

TEST(TcpStore, StoppingTheServerEndsEveryWaitAtOnce) {
  auto server = TcpStoreServer::start({});
  const auto store = tcp_store(at_port(server->port()));
  std::atomic<int> ended = 0;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back([&] {
      (void)store->add("waiting", 1);
      EXPECT_THAT(message_of([&] { (void)store->get("never", 60s); }, ErrorCode::peer_lost),
                  HasSubstr("server"));
      ++ended;
    });
  }
  while (store->get_for("waiting", 0ms) != "3") std::this_thread::yield();
  const Stopwatch watch;
  server.reset();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(ended, 3);
  EXPECT_LT(watch.elapsed(), 10s);
  (void)message_of([&] { store->set("key", "value"); }, ErrorCode::peer_lost);
}

TEST(TcpStore, AKilledServerEndsAWaitAtOnceAndEveryLaterCall) {
  ServerProcess server;
  const auto store = tcp_store(at_port(server.port()));
  std::thread waiting([&] {
    (void)store->add("waiting", 1);
    (void)message_of([&] { (void)store->get("never", 60s); }, ErrorCode::peer_lost);
  });
  (void)store->get("waiting");
  const Stopwatch watch;
  server.kill();
  waiting.join();
  EXPECT_LT(watch.elapsed(), 10s);
  for (int i = 0; i < 3; ++i) (void)message_of([&] { store->set("key", "value"); }, ErrorCode::peer_lost);
}

TEST(TcpStore, ARestartedServerIsNotTakenForTheOldOne) {
  auto server = TcpStoreServer::start({});
  const std::uint16_t port = server->port();
  const auto store = tcp_store(at_port(port));
  store->set("key", "value");
  server.reset();
  server = TcpStoreServer::start(at_port(port));
  (void)message_of([&] { (void)store->get("key"); },
                   ErrorCode::peer_lost);  // over the closed connection
  EXPECT_THAT(message_of([&] { (void)store->get("key"); }, ErrorCode::peer_lost), HasSubstr("restarted"));
}

}  // namespace
}  // namespace onehop
