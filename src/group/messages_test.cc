// SPDX-License-Identifier: Apache-2.0
#include "group/messages.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "onehop/version.h"

namespace onehop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

os::Id id_of(std::uint8_t first) {
  os::Id id{};
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::uint8_t>(first + i);
  return id;
}

Hello some_hello(int rank) {
  return {.version = "1.2.3",
          .rank = rank,
          .size = 4,
          .boot_id = "8c6f6c6e-6f70",
          .hostname = "host",
          .device = "GPU-123",
          .overlap = true,
          .scratch_bytes = 0x123456789abcdef0,
          .share_by = ShareBy::ipc,
          .share_methods = {.usable = 6, .fabric = "clique 7 of cluster 1234"},
          .checks_calls = true,
          .requires_verified = true,
          .uid = 4000000000,
          .socket = "/run/user/1000/onehop/socket"};
}

const Status kFailure{.code = ErrorCode::peer_lost, .origin = Rank{3}, .message = "rank 3 died"};

/// Every kind of message: an example, and its parser followed by its encoder.
struct Kind {
  const char* name;
  std::string example;
  std::function<std::string(std::string_view)> recode;
};

std::vector<Kind> kinds() {
  return {
      {"status", encode(kFailure), [](auto raw) { return encode(parse_status(raw)); }},
      {"announce", encode(Announce{.nonce = id_of(1), .size = 4}),
       [](auto raw) { return encode(parse_announce(raw)); }},
      {"offer", encode(Offer{.id = id_of(9), .nonces = {id_of(0), id_of(50), id_of(100)}}),
       [](auto raw) { return encode(parse_offer(raw)); }},
      {"waiting", encode(Waiting{.nonce = id_of(3), .beat = 7, .size = 4, .ranks = {1, 3}}),
       [](auto raw) { return encode(parse_waiting(raw)); }},
      {"ack", encode(Ack{.status = kFailure, .hello = some_hello(2)}),
       [](auto raw) { return encode(parse_ack(raw)); }},
      {"verdict", encode(Verdict{.hellos = {some_hello(0), some_hello(1)}}),
       [](auto raw) { return encode(parse_verdict(raw)); }},
      {"mesh hello", encode(MeshHello{.id = id_of(7), .rank = 5}),
       [](auto raw) { return encode(parse_mesh_hello(raw)); }},
      {"mesh message",
       encode(MeshMessage{.kind = MessageKind::descriptor,
                          .descriptor = DescriptorState::attached,
                          .sequence = 99,
                          .payload = "x"}),
       [](auto raw) { return encode(parse_mesh_message(raw)); }},
  };
}

std::string protocol_error_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::protocol) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(GroupMessages, SurviveTheTrip) {
  for (const Kind& kind : kinds()) EXPECT_EQ(kind.recode(kind.example), kind.example) << kind.name;

  const Ack ack = parse_ack(encode(Ack{.status = kFailure, .hello = some_hello(2)}));
  EXPECT_EQ(ack.status.code, ErrorCode::peer_lost);
  EXPECT_EQ(ack.status.origin, Rank{3});
  EXPECT_EQ(ack.status.message, "rank 3 died");
  const Hello sent = some_hello(2);
  EXPECT_EQ(ack.hello.version, sent.version);
  EXPECT_EQ(ack.hello.rank, 2);
  EXPECT_EQ(ack.hello.size, 4);
  EXPECT_EQ(ack.hello.boot_id, sent.boot_id);
  EXPECT_EQ(ack.hello.hostname, sent.hostname);
  EXPECT_EQ(ack.hello.device, sent.device);
  EXPECT_TRUE(ack.hello.overlap);
  EXPECT_EQ(ack.hello.scratch_bytes, sent.scratch_bytes);
  EXPECT_EQ(ack.hello.share_by, ShareBy::ipc);
  EXPECT_EQ(ack.hello.share_methods, sent.share_methods);
  EXPECT_EQ(ack.hello.uid, sent.uid);
  EXPECT_EQ(ack.hello.socket, sent.socket);

  const Offer offer = parse_offer(encode(Offer{.id = id_of(9), .nonces = {id_of(0), id_of(50)}}));
  EXPECT_EQ(offer.id, id_of(9));
  EXPECT_THAT(offer.nonces, ::testing::ElementsAre(id_of(0), id_of(50)));

  const MeshMessage message = parse_mesh_message(encode(
      MeshMessage{.kind = MessageKind::bytes, .sequence = 1ull << 40, .payload = std::string("a\0b", 3)}));
  EXPECT_EQ(message.kind, MessageKind::bytes);
  EXPECT_EQ(message.sequence, 1ull << 40);
  EXPECT_EQ(message.payload, std::string("a\0b", 3));
}

TEST(GroupMessages, AreRefusedWhenTruncatedAtAnyByteOrFollowedByMore) {
  for (const Kind& kind : kinds()) {
    for (std::size_t length = 0; length < kind.example.size(); ++length) {
      protocol_error_of([&] { (void)kind.recode(std::string_view(kind.example).substr(0, length)); });
    }
    EXPECT_THAT(protocol_error_of([&] { (void)kind.recode(kind.example + "x"); }),
                HasSubstr("1 unexpected bytes"));
  }
}

TEST(GroupMessages, AreRefusedByTheParsersOfOtherKinds) {
  for (const Kind& kind : kinds()) {
    for (const Kind& other : kinds()) {
      if (&kind.name[0] == &other.name[0]) continue;
      EXPECT_THAT(protocol_error_of([&] { (void)kind.recode(other.example); }), HasSubstr("magic"));
    }
  }
}

TEST(GroupMessages, OfAnotherProtocolAreRefusedNamingBothVersions) {
  for (const Kind& kind : kinds()) {
    std::string other = kind.example;
    other[4] = 77;  // the protocol's low byte follows the magic
    try {
      (void)kind.recode(other);
      ADD_FAILURE() << kind.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::refused);
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr("protocol 77"), HasSubstr(fmt::format("protocol {}", kProtocolVersion)),
                        HasSubstr(ONEHOP_VERSION_STRING)));
    }
    // A newer format may change anything after the version.
    other.resize(4 + 2 + 4 + std::string_view(ONEHOP_VERSION_STRING).size());
    EXPECT_THROW((void)kind.recode(other + "whatever comes"), Error);
  }
}

TEST(GroupMessages, CapWhatTheyHold) {
  const Verdict many{.hellos = std::vector<Hello>(kMaxHostRanks + 1, some_hello(0))};
  EXPECT_THAT(protocol_error_of([&] { (void)parse_verdict(encode(many)); }),
              HasSubstr("65 ranks exceed the limit of 64"));
  EXPECT_THAT(protocol_error_of(
                  [&] { (void)parse_offer(encode(Offer{.id = {}, .nonces = std::vector<os::Id>(65)})); }),
              HasSubstr("65 ranks exceed"));
  Ack ack{.status = Status{}, .hello = some_hello(0)};
  ack.hello.hostname.assign(300, 'h');
  protocol_error_of([&] { (void)parse_ack(encode(ack)); });
  MeshMessage message{.kind = MessageKind::bytes, .payload = std::string(kMaxPayload, 'x')};
  EXPECT_EQ(parse_mesh_message(encode(message)).payload.size(), kMaxPayload);
  message.payload += 'x';
  protocol_error_of([&] { (void)parse_mesh_message(encode(message)); });
}

TEST(GroupMessages, CutLongErrorTextsInsteadOfLosingThem) {
  const Status status = parse_status(
      encode(Status{.code = ErrorCode::system, .origin = Rank{1}, .message = std::string(9999, 'e')}));
  EXPECT_EQ(status.message, std::string(kMaxErrorText, 'e'));
  EXPECT_EQ(status.code, ErrorCode::system);
}

TEST(GroupMessages, OfUnknownKindAreRefused) {
  Ack ack{.status = Status{}, .hello = some_hello(0)};
  ack.hello.share_by = static_cast<ShareBy>(kShareByCount);
  EXPECT_THAT(protocol_error_of([&] { (void)parse_ack(encode(ack)); }),
              HasSubstr("unknown way to share memory 4"));
  for (const int kind : {0, 10, 255}) {
    protocol_error_of([&] {
      (void)parse_mesh_message(encode(MeshMessage{.kind = static_cast<MessageKind>(kind), .payload = {}}));
    });
  }
  protocol_error_of([&] {
    (void)parse_mesh_message(encode(MeshMessage{
        .kind = MessageKind::bytes, .descriptor = static_cast<DescriptorState>(3), .payload = {}}));
  });
}

TEST(Status, NamesTheReportingRankUnlessTheErrorNamesOne) {
  EXPECT_EQ(Status::of(Error(ErrorCode::timeout, "x"), Rank{2}).origin, Rank{2});
  EXPECT_EQ(Status::of(Error(ErrorCode::timeout, "x", Rank{5}), Rank{2}).origin, Rank{5});
  EXPECT_TRUE(Status{}.ok());
  EXPECT_NO_THROW(Status{}.throw_if_failed());
  try {
    kFailure.throw_if_failed();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost);
    EXPECT_EQ(error.origin(), Rank{3});
    EXPECT_EQ(error.message(), "rank 3 died");
  }
}

}  // namespace
}  // namespace onehop
