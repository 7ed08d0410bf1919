// SPDX-License-Identifier: Apache-2.0
#include "group/messages.h"

#include <algorithm>

#include "onehop/version.h"

#include "base/wire.h"

namespace onehop {
namespace {

// Message types, in the last byte of the magic.
constexpr std::uint32_t kMagic = 0x00484f00;  // "\0OH" plus the type below
enum class Type : std::uint8_t {
  status = 1,
  announce,
  offer,
  ack,
  verdict,
  mesh_hello,
  mesh_message,
  waiting
};

constexpr std::size_t kMaxText = 256;
constexpr std::size_t kMaxPath = 4096;

/// Every message begins with magic, protocol version and library version. No later format may change that, so
/// that ranks of different versions can always report the mismatch.
wire::Writer begin(Type type) {
  wire::Writer out;
  out.put(kMagic | static_cast<std::uint32_t>(type)).put(kProtocolVersion).put_bytes(ONEHOP_VERSION_STRING);
  return out;
}

wire::Reader open(std::string_view bytes, Type type, std::string_view what) {
  wire::Reader in(bytes, what);
  const auto magic = in.get<std::uint32_t>();
  if (magic != (kMagic | static_cast<std::uint32_t>(type))) {
    fail(ErrorCode::protocol, "{}: not a onehop message of this kind (magic {:#010x})", what, magic);
  }
  const auto protocol = in.get<std::uint16_t>();
  const std::string_view version = in.get_bytes(kMaxText);
  if (protocol != kProtocolVersion) {
    fail(ErrorCode::refused,
         "{}: the other rank runs onehop {} (protocol {}), this one {} (protocol {}); use one version", what,
         version, protocol, ONEHOP_VERSION_STRING, kProtocolVersion);
  }
  return in;
}

void put_id(wire::Writer& out, const os::Id& id) {
  out.put_raw({reinterpret_cast<const char*>(id.data()), id.size()});
}

os::Id get_id(wire::Reader& in) {
  os::Id id;
  const std::string_view raw = in.get_raw(id.size());
  std::copy(raw.begin(), raw.end(), id.begin());
  return id;
}

void put_status(wire::Writer& out, const Status& status) {
  out.put(static_cast<std::int32_t>(status.code)).put(std::int32_t{status.origin.value});
  out.put_bytes(std::string_view(status.message).substr(0, kMaxErrorText));
}

Status get_status(wire::Reader& in) {
  Status status;
  status.code = static_cast<ErrorCode>(in.get<std::int32_t>());
  status.origin = Rank{in.get<std::int32_t>()};
  status.message = in.get_bytes(kMaxErrorText);
  return status;
}

void put_hello(wire::Writer& out, const Hello& hello) {
  out.put_bytes(hello.version)
      .put(hello.rank)
      .put(hello.size)
      .put_bytes(hello.boot_id)
      .put_bytes(hello.hostname);
  out.put_bytes(hello.device).put(std::uint8_t{hello.overlap});
  out.put(hello.scratch_bytes);
  out.put(static_cast<std::uint8_t>(hello.share_by)).put(hello.share_methods.usable);
  out.put_bytes(hello.share_methods.fabric);
  out.put(std::uint8_t{hello.checks_calls}).put(std::uint8_t{hello.requires_verified});
  out.put(hello.uid).put_bytes(hello.socket);
}

Hello get_hello(wire::Reader& in) {
  Hello hello;
  hello.version = in.get_bytes(kMaxText);
  hello.rank = in.get<std::int32_t>();
  hello.size = in.get<std::int32_t>();
  hello.boot_id = in.get_bytes(kMaxText);
  hello.hostname = in.get_bytes(kMaxText);
  hello.device = in.get_bytes(kMaxText);
  hello.overlap = in.get<std::uint8_t>() != 0;
  hello.scratch_bytes = in.get<std::uint64_t>();
  const auto share_by = in.get<std::uint8_t>();
  if (share_by >= kShareByCount) {
    fail(ErrorCode::protocol, "hello of rank {}: unknown way to share memory {}", hello.rank, share_by);
  }
  hello.share_by = static_cast<ShareBy>(share_by);
  hello.share_methods.usable = in.get<std::uint8_t>();
  hello.share_methods.fabric = in.get_bytes(kMaxText);
  hello.checks_calls = in.get<std::uint8_t>() != 0;
  hello.requires_verified = in.get<std::uint8_t>() != 0;
  hello.uid = in.get<std::uint32_t>();
  hello.socket = in.get_bytes(kMaxPath);
  return hello;
}

std::uint32_t get_count(wire::Reader& in, std::string_view what) {
  const auto count = in.get<std::uint32_t>();
  if (count > static_cast<std::uint32_t>(kMaxHostRanks)) {
    fail(ErrorCode::protocol, "{}: {} ranks exceed the limit of {}", what, count, kMaxHostRanks);
  }
  return count;
}

}  // namespace

Status Status::of(const Error& error, Rank origin) {
  return {.code = error.code(),
          .origin = error.origin().none() ? origin : error.origin(),
          .message = error.message()};
}

Error naming(Rank own, const Error& error) {
  if (!error.origin().none()) return error;
  return {error.code(), fmt::format("rank {}: {}", own.value, error.message()), own};
}

std::string encode(const Status& status) {
  wire::Writer out = begin(Type::status);
  put_status(out, status);
  return std::move(out).str();
}

std::string encode(const Announce& announce) {
  wire::Writer out = begin(Type::announce);
  put_id(out, announce.nonce);
  out.put(announce.size);
  return std::move(out).str();
}

std::string encode(const Offer& offer) {
  wire::Writer out = begin(Type::offer);
  put_id(out, offer.id);
  out.put(static_cast<std::uint32_t>(offer.nonces.size()));
  for (const os::Id& nonce : offer.nonces) put_id(out, nonce);
  return std::move(out).str();
}

std::string encode(const Waiting& waiting) {
  wire::Writer out = begin(Type::waiting);
  put_id(out, waiting.nonce);
  out.put(waiting.beat).put(waiting.size).put(static_cast<std::uint32_t>(waiting.ranks.size()));
  for (const std::int32_t rank : waiting.ranks) out.put(rank);
  return std::move(out).str();
}

std::string encode(const Ack& ack) {
  wire::Writer out = begin(Type::ack);
  put_status(out, ack.status);
  put_hello(out, ack.hello);
  return std::move(out).str();
}

std::string encode(const Verdict& verdict) {
  wire::Writer out = begin(Type::verdict);
  out.put(static_cast<std::uint32_t>(verdict.hellos.size()));
  for (const Hello& hello : verdict.hellos) put_hello(out, hello);
  return std::move(out).str();
}

std::string encode(const MeshHello& hello) {
  wire::Writer out = begin(Type::mesh_hello);
  put_id(out, hello.id);
  out.put(hello.rank);
  return std::move(out).str();
}

std::string encode(const MeshMessage& message) {
  wire::Writer out = begin(Type::mesh_message);
  out.put(static_cast<std::uint8_t>(message.kind)).put(static_cast<std::uint8_t>(message.descriptor));
  out.put(message.sequence).put_bytes(message.payload).put_bytes(message.call);
  return std::move(out).str();
}

std::string encode(const Query& query) {
  return wire::Writer().put(query.number).str();
}

std::string encode(const Answer& answer) {
  return wire::Writer().put(answer.number).put(answer.awaited).str();
}

std::string encode(const SurvivorsMessage& message) {
  wire::Writer out;
  out.put(std::uint8_t{message.decided}).put(message.ranks);
  put_id(out, message.id);
  return std::move(out).str();
}

Status parse_status(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::status, "failure report");
  Status status = get_status(in);
  in.finish();
  return status;
}

Announce parse_announce(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::announce, "announcement");
  Announce announce{.nonce = get_id(in)};
  announce.size = in.get<std::int32_t>();
  in.finish();
  return announce;
}

Offer parse_offer(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::offer, "offer of rank 0");
  Offer offer;
  offer.id = get_id(in);
  const std::uint32_t count = get_count(in, "offer of rank 0");
  for (std::uint32_t i = 0; i < count; ++i) offer.nonces.push_back(get_id(in));
  in.finish();
  return offer;
}

Waiting parse_waiting(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::waiting, "list of rank 0");
  Waiting waiting;
  waiting.nonce = get_id(in);
  waiting.beat = in.get<std::uint64_t>();
  waiting.size = in.get<std::int32_t>();
  const std::uint32_t count = get_count(in, "list of rank 0");
  for (std::uint32_t i = 0; i < count; ++i) waiting.ranks.push_back(in.get<std::int32_t>());
  in.finish();
  return waiting;
}

Ack parse_ack(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::ack, "answer to the offer");
  Ack ack;
  ack.status = get_status(in);
  ack.hello = get_hello(in);
  in.finish();
  return ack;
}

Verdict parse_verdict(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::verdict, "verdict of rank 0");
  Verdict verdict;
  const std::uint32_t count = get_count(in, "verdict of rank 0");
  for (std::uint32_t i = 0; i < count; ++i) verdict.hellos.push_back(get_hello(in));
  in.finish();
  return verdict;
}

MeshHello parse_mesh_hello(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::mesh_hello, "hello on a socket");
  MeshHello hello;
  hello.id = get_id(in);
  hello.rank = in.get<std::int32_t>();
  in.finish();
  return hello;
}

MeshMessage parse_mesh_message(std::string_view bytes) {
  wire::Reader in = open(bytes, Type::mesh_message, "message on a socket");
  MeshMessage message;
  const auto kind = in.get<std::uint8_t>();
  const auto descriptor = in.get<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(MessageKind::bytes) ||
      kind > static_cast<std::uint8_t>(MessageKind::successor) || descriptor > 2) {
    fail(ErrorCode::protocol, "message on a socket: unknown kind {} or descriptor state {}", kind,
         descriptor);
  }
  message.kind = static_cast<MessageKind>(kind);
  message.descriptor = static_cast<DescriptorState>(descriptor);
  message.sequence = in.get<std::uint64_t>();
  message.payload = in.get_bytes(kMaxPayload);
  message.call = in.get_bytes(kMaxText);
  in.finish();
  return message;
}

Query parse_query(std::string_view bytes) {
  wire::Reader in(bytes, "query on a socket");
  const Query query{.number = in.get<std::uint64_t>()};
  in.finish();
  return query;
}

Answer parse_answer(std::string_view bytes) {
  wire::Reader in(bytes, "answer on a socket");
  Answer answer{.number = in.get<std::uint64_t>()};
  answer.awaited = in.get<RankSet>();
  in.finish();
  return answer;
}

SurvivorsMessage parse_survivors(std::string_view bytes) {
  wire::Reader in(bytes, "survivors on a socket");
  SurvivorsMessage message{.decided = in.get<std::uint8_t>() != 0};
  message.ranks = in.get<RankSet>();
  message.id = get_id(in);
  in.finish();
  return message;
}

}  // namespace onehop
