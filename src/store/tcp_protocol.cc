// SPDX-License-Identifier: Apache-2.0
#include "store/tcp_protocol.h"

#include <limits>

#include "base/check.h"
#include "base/wire.h"
#include "os/random.h"

namespace onehop::store {
namespace {

constexpr std::uint32_t kMagic = 0x5354'484f;  // "OHTS" on the wire
constexpr std::size_t kMaxMessageBytes = 32 << 10;

void expect_magic(wire::Reader& in, std::string_view what) {
  if (in.get<std::uint32_t>() != kMagic) fail(ErrorCode::protocol, "{}: wrong magic number", what);
}

}  // namespace

std::string fresh_nonce() {
  const os::Id id = os::random_id();
  static_assert(sizeof id == kNonceBytes);
  return std::string(id.begin(), id.end());
}

std::string proof(Side side, std::string_view secret, std::string_view client_nonce,
                  std::string_view server_nonce) {
  std::string message = side == Side::client ? "onehop tcp store 1 client" : "onehop tcp store 1 server";
  message.append(client_nonce).append(server_nonce);
  return hmac_sha256(secret, message);
}

std::string encode_hello(const ClientHello& hello) {
  return wire::Writer().put(kMagic).put(hello.version).put_raw(hello.nonce).str();
}

std::string encode_hello(const ServerHello& hello) {
  return wire::Writer()
      .put(kMagic)
      .put(hello.version)
      .put(static_cast<std::uint8_t>(hello.secret_required))
      .put(hello.instance)
      .put_raw(hello.nonce)
      .str();
}

ClientHello parse_client_hello(std::string_view bytes) {
  constexpr std::string_view kWhat = "tcp store client hello";
  wire::Reader in(bytes, kWhat);
  expect_magic(in, kWhat);
  ClientHello hello;
  hello.version = in.get<std::uint16_t>();
  if (hello.version != kProtocolVersion) return hello;
  hello.nonce = in.get_raw(kNonceBytes);
  in.finish();
  return hello;
}

ServerHello parse_server_hello(std::string_view bytes) {
  constexpr std::string_view kWhat = "tcp store server hello";
  wire::Reader in(bytes, kWhat);
  expect_magic(in, kWhat);
  ServerHello hello;
  hello.version = in.get<std::uint16_t>();
  if (hello.version != kProtocolVersion) return hello;
  const auto required = in.get<std::uint8_t>();
  if (required > 1) fail(ErrorCode::protocol, "{}: {} is not a boolean", kWhat, required);
  hello.secret_required = required == 1;
  hello.instance = in.get<std::uint64_t>();
  hello.nonce = in.get_raw(kNonceBytes);
  in.finish();
  return hello;
}

std::size_t max_request_bytes(std::uint8_t op) {
  constexpr std::size_t kHead = 1 + 4 + kMaxKeyBytes;
  switch (static_cast<Op>(op)) {
    case Op::set:
      return kHead + 4 + kMaxValueBytes;
    case Op::get:
    case Op::add:
      return kHead + 8;
    case Op::compare_set:
      return kMaxFrameBytes;
    case Op::erase:
      return kHead;
  }
  return 0;
}

std::string encode_request(const Request& request) {
  wire::Writer out;
  out.put(static_cast<std::uint8_t>(request.op)).put_bytes(request.key);
  switch (request.op) {
    case Op::set:
      out.put_bytes(request.value);
      break;
    case Op::get:
      out.put(static_cast<std::uint64_t>(request.timeout.count()));
      break;
    case Op::add:
      out.put(request.delta);
      break;
    case Op::compare_set:
      out.put_bytes(request.expected).put_bytes(request.value);
      break;
    case Op::erase:
      break;
  }
  return std::move(out).str();
}

Request parse_request(std::string_view bytes) {
  wire::Reader in(bytes, "tcp store request");
  Request request;
  const auto op = in.get<std::uint8_t>();
  request.op = static_cast<Op>(op);
  request.key = in.get_bytes(kMaxKeyBytes);
  switch (request.op) {
    case Op::set:
      request.value = in.get_bytes(kMaxValueBytes);
      break;
    case Op::get: {
      const auto timeout = in.get<std::uint64_t>();
      if (timeout > static_cast<std::uint64_t>(std::numeric_limits<Duration::rep>::max())) {
        fail(ErrorCode::protocol, "tcp store request: a timeout of {} ms", timeout);
      }
      request.timeout = Duration{static_cast<Duration::rep>(timeout)};
      break;
    }
    case Op::add:
      request.delta = in.get<std::int64_t>();
      break;
    case Op::compare_set:
      request.expected = in.get_bytes(kMaxValueBytes);
      request.value = in.get_bytes(kMaxValueBytes);
      break;
    case Op::erase:
      break;
    default:
      fail(ErrorCode::protocol, "tcp store request: unknown operation {}", op);
  }
  in.finish();
  return request;
}

std::string encode_reply(const Reply& reply) {
  wire::Writer out;
  out.put(static_cast<std::uint8_t>(reply.kind));
  switch (reply.kind) {
    case ReplyKind::done:
    case ReplyKind::missing:
      break;
    case ReplyKind::value:
      out.put_bytes(reply.bytes);
      break;
    case ReplyKind::number:
      out.put(reply.number);
      break;
    case ReplyKind::error:
      out.put(static_cast<std::uint32_t>(reply.code)).put_bytes(reply.bytes.substr(0, kMaxMessageBytes));
      break;
  }
  return std::move(out).str();
}

std::string encode_value_head(std::size_t size) {
  constexpr std::size_t kHead = 1 + 4;
  return wire::Writer()
      .put(static_cast<std::uint32_t>(kHead + size))
      .put(static_cast<std::uint8_t>(ReplyKind::value))
      .put(static_cast<std::uint32_t>(size))
      .str();
}

Reply parse_reply(std::string_view bytes) {
  wire::Reader in(bytes, "tcp store reply");
  Reply reply;
  const auto kind = in.get<std::uint8_t>();
  reply.kind = static_cast<ReplyKind>(kind);
  switch (reply.kind) {
    case ReplyKind::done:
    case ReplyKind::missing:
      break;
    case ReplyKind::value:
      reply.bytes = in.get_bytes(kMaxValueBytes);
      break;
    case ReplyKind::number:
      reply.number = in.get<std::int64_t>();
      break;
    case ReplyKind::error: {
      const auto code = in.get<std::uint32_t>();
      if (code < static_cast<std::uint32_t>(ErrorCode::invalid_argument) ||
          code > static_cast<std::uint32_t>(ErrorCode::driver)) {
        fail(ErrorCode::protocol, "tcp store reply: unknown error code {}", code);
      }
      reply.code = static_cast<ErrorCode>(code);
      reply.bytes = in.get_bytes(kMaxMessageBytes);
      break;
    }
    default:
      fail(ErrorCode::protocol, "tcp store reply: unknown kind {}", kind);
  }
  in.finish();
  return reply;
}

std::string encode_frame_header(std::size_t size) {
  return wire::Writer().put(static_cast<std::uint32_t>(size)).str();
}

std::size_t parse_frame_header(std::string_view bytes) {
  wire::Reader in(bytes, "tcp store frame header");
  const auto size = in.get<std::uint32_t>();
  in.finish();
  return size;
}

}  // namespace onehop::store
