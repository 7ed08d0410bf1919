// SPDX-License-Identifier: Apache-2.0
#include "store/tcp_protocol.h"

#include "store/store_test_util.h"

namespace onehop::store {
namespace {

using namespace std::chrono_literals;

const std::string kNonce(kNonceBytes, 'n');

TEST(TcpProtocol, ParsesEveryRequestItEncodes) {
  for (const Request& request :
       {Request{.op = Op::set, .key = "k", .value = "v"},
        Request{.op = Op::get, .key = "k", .timeout = 1234ms},
        Request{.op = Op::add, .key = "k", .delta = -5},
        Request{.op = Op::compare_set, .key = "k", .value = "new", .expected = "old"},
        Request{.op = Op::erase, .key = ""}}) {
    const std::string bytes = encode_request(request);
    const Request parsed = parse_request(bytes);
    EXPECT_EQ(parsed.op, request.op);
    EXPECT_EQ(parsed.key, request.key);
    EXPECT_EQ(parsed.value, request.value);
    EXPECT_EQ(parsed.expected, request.expected);
    EXPECT_EQ(parsed.delta, request.delta);
    EXPECT_EQ(parsed.timeout, request.timeout);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      (void)message_of([&] { (void)parse_request(std::string_view(bytes).substr(0, size)); },
                       ErrorCode::protocol);
    }
    (void)message_of([&] { (void)parse_request(bytes + 'x'); }, ErrorCode::protocol);
  }
}

TEST(TcpProtocol, ParsesEveryReplyItEncodes) {
  for (const Reply& reply :
       {Reply{.kind = ReplyKind::done}, Reply{.kind = ReplyKind::value, .bytes = "bytes"},
        Reply{.kind = ReplyKind::missing}, Reply{.kind = ReplyKind::number, .number = -1},
        Reply{.kind = ReplyKind::error, .bytes = "why", .code = ErrorCode::out_of_resources}}) {
    const std::string bytes = encode_reply(reply);
    const Reply parsed = parse_reply(bytes);
    EXPECT_EQ(parsed.kind, reply.kind);
    EXPECT_EQ(parsed.bytes, reply.bytes);
    EXPECT_EQ(parsed.number, reply.number);
    EXPECT_EQ(parsed.code, reply.code);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      (void)message_of([&] { (void)parse_reply(std::string_view(bytes).substr(0, size)); },
                       ErrorCode::protocol);
    }
    (void)message_of([&] { (void)parse_reply(bytes + 'x'); }, ErrorCode::protocol);
  }
}

TEST(TcpProtocol, AValueSentInTwoPartsIsTheSameReply) {
  const std::string whole = encode_reply({.kind = ReplyKind::value, .bytes = "value"});
  EXPECT_EQ(encode_value_head(5) + "value", encode_frame_header(whole.size()) + whole);
}

TEST(TcpProtocol, RefusesLengthsBeyondTheCapsBeforeAllocating) {
  // A set whose key claims 4 GiB.
  (void)message_of([] { (void)parse_request(std::string("\x01\xff\xff\xff\xff", 5)); }, ErrorCode::protocol);
  const std::string long_key = encode_request({.op = Op::get, .key = std::string(kMaxKeyBytes + 1, 'k')});
  (void)message_of([&] { (void)parse_request(long_key); }, ErrorCode::protocol);
}

TEST(TcpProtocol, RefusesUnknownOperationsKindsAndCodes) {
  for (const char op : {'\0', '\x06', '\xff'}) {
    (void)message_of([&] { (void)parse_request(std::string(1, op) + std::string(4, '\0')); },
                     ErrorCode::protocol);
  }
  (void)message_of([] { (void)parse_reply("\x05"); }, ErrorCode::protocol);
  (void)message_of([] { (void)parse_reply(std::string("\x04\x63\0\0\0\0\0\0\0", 9)); }, ErrorCode::protocol);
}

TEST(TcpProtocol, HellosTellTheVersionEvenWhenItIsAnother) {
  EXPECT_EQ(parse_client_hello(encode_hello(ClientHello{.nonce = kNonce})).nonce, kNonce);
  const std::string server =
      encode_hello(ServerHello{.secret_required = true, .instance = 7, .nonce = kNonce});
  EXPECT_EQ(parse_server_hello(server).instance, 7u);
  EXPECT_TRUE(parse_server_hello(server).secret_required);
  EXPECT_EQ(parse_client_hello(encode_hello(ClientHello{.version = 2, .nonce = "other"})).version, 2);
  EXPECT_EQ(parse_server_hello(encode_hello(ServerHello{.version = 3, .nonce = "other"})).version, 3);
  (void)message_of([] { (void)parse_client_hello("GET / HTTP/1.1"); }, ErrorCode::protocol);
  (void)message_of([] { (void)parse_server_hello("SSH-2.0-OpenSSH"); }, ErrorCode::protocol);
}

TEST(TcpProtocol, AProofIsBoundToSecretSideAndBothNonces) {
  const std::string good = proof(Side::client, "secret", kNonce, std::string(kNonceBytes, 'm'));
  EXPECT_EQ(good.size(), kDigestBytes);
  EXPECT_NE(good, proof(Side::server, "secret", kNonce, std::string(kNonceBytes, 'm')));
  EXPECT_NE(good, proof(Side::client, "Secret", kNonce, std::string(kNonceBytes, 'm')));
  EXPECT_NE(good, proof(Side::client, "secret", std::string(kNonceBytes, 'm'), kNonce));
  EXPECT_NE(good, proof(Side::client, "secret", kNonce, kNonce));
}

}  // namespace
}  // namespace onehop::store
