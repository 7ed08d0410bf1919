// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/wire.h"
#include "fuzz.h"
#include "group/messages.h"
#include "group/survivors.h"

namespace {

using namespace onehop;

/// Accepted input encodes to bytes that are accepted again and encode to themselves. The first encoding may
/// differ from the input only in the sender's library version and in flags with several representations.
template <auto parser>
void check(std::string_view bytes) {
  const std::string once = encode(parser(bytes));
  fuzz::expect_same(once, encode(parser(once)));
}

/// With the payload, as the receiver parses it.
void check_mesh_message(std::string_view bytes) {
  check<parse_mesh_message>(bytes);
  const MeshMessage message = parse_mesh_message(bytes);
  switch (message.kind) {
    case MessageKind::failure:
    case MessageKind::refusal:
      return check<parse_status>(message.payload);
    case MessageKind::query:
      return check<parse_query>(message.payload);
    case MessageKind::answer:
      return check<parse_answer>(message.payload);
    case MessageKind::survivors:
      return check<parse_survivors>(message.payload);
    case MessageKind::bytes:
    case MessageKind::descriptor:
    case MessageKind::bye:
    case MessageKind::successor:
      return;
  }
}

/// What a rank does with the messages of survivors: a size, its own rank, then events. An event is a rank, and either
/// its message or (128 added to the rank) nothing more: its channel has ended.
constexpr std::uint8_t kGone = 128;

void check_survivors(std::string_view bytes) {
  wire::Reader in(bytes, "events");
  const auto size = in.get<std::uint8_t>();
  const auto own = in.get<std::uint8_t>();
  if (size < 1 || size > kMaxHostRanks || own >= size) fail(ErrorCode::protocol, "no such rank");
  Survivors survivors(Rank{own}, size);
  RankSet gone = 0;
  const auto advance = [&] {
    // It tells at most as many rounds as others have told, and its decision.
    for (int told = 0; survivors.next(gone); ++told) {
      if (told > 3 * kMaxHostRanks) fuzz::finding("a rank that tells for ever");
    }
    if (!survivors.decision() && survivors.awaited(gone) == 0) fuzz::finding("no decision, and none awaited");
    if (survivors.decision() && (survivors.decision()->ranks & set_of(Rank{own})) == 0)
      fuzz::finding("a rank decides that it has not survived");
  };
  advance();
  while (in.remaining() > 0) {
    const auto event = in.get<std::uint8_t>();
    const Rank from{event & ~kGone};
    if (from.value >= size || from.value == own || (gone & set_of(from)) != 0)
      fail(ErrorCode::protocol, "no such channel");
    const std::optional<SurvivorsMessage> before = survivors.decision();
    if ((event & kGone) != 0) {
      gone |= set_of(from);
    } else {
      survivors.hear(from, parse_survivors(in.get_raw(encode(SurvivorsMessage{}).size())));
    }
    advance();
    if (before && encode(*before) != encode(*survivors.decision())) fuzz::finding("a decision that changes");
  }
}

os::Id id_of(int first) {
  os::Id id{};
  for (std::uint8_t& byte : id) byte = static_cast<std::uint8_t>(first++);
  return id;
}

Hello some_hello(int rank) {
  return {.version = "0.1.0",
          .rank = rank,
          .size = 2,
          .boot_id = "boot",
          .hostname = "host",
          .device = rank == 0 ? "host" : "GPU-1",
          .overlap = rank != 0,
          .scratch_bytes = 1 << 20,
          .share_by = ShareBy::ipc,
          .share_methods = {.usable = 6, .fabric = "clique 0"},
          .checks_calls = true,
          .requires_verified = true,
          .uid = 1000,
          .socket = "/tmp/s"};
}

const Status kFailure{.code = ErrorCode::peer_lost, .origin = Rank{1}, .message = "rank 1 died"};

/// -Wswitch names a kind that is missing here.
MeshMessage some_mesh_message(MessageKind kind) {
  MeshMessage message{.kind = kind, .payload = {}};
  switch (kind) {
    case MessageKind::bytes:
      message.sequence = 3;
      message.payload = "payload";
      message.call = "all_gather";
      break;
    case MessageKind::descriptor:
      message.descriptor = DescriptorState::attached;
      message.call = "all_gather_fds";
      break;
    case MessageKind::failure:
      message.payload = encode(kFailure);
      break;
    case MessageKind::refusal:
      message.sequence = 4;
      message.payload = encode(kFailure);
      message.call = "all_reduce";
      break;
    case MessageKind::query:
      message.payload = encode(Query{.number = 5});
      break;
    case MessageKind::answer:
      message.payload = encode(Answer{.number = 5, .awaited = 0b101});
      break;
    case MessageKind::survivors:
      message.payload = encode(SurvivorsMessage{.decided = true, .ranks = 0b11, .id = id_of(3)});
      break;
    case MessageKind::successor:
      message.descriptor = DescriptorState::attached;
      break;
    case MessageKind::bye:
      break;
  }
  return message;
}

std::vector<fuzz::Seed> mesh_messages() {
  std::vector<fuzz::Seed> all;
  for (int kind = 1; kind <= static_cast<int>(MessageKind::successor); ++kind) {
    all.push_back({fmt::format("mesh_{}", kind), encode(some_mesh_message(static_cast<MessageKind>(kind)))});
  }
  MeshMessage lost = some_mesh_message(MessageKind::successor);
  lost.descriptor = DescriptorState::lost;
  all.push_back({"mesh_lost", encode(lost)});
  // The next kind: when it has a meaning, this fails, and the loop above must go on to it.
  lost.kind = static_cast<MessageKind>(static_cast<int>(MessageKind::successor) + 1);
  all.push_back({"mesh_unknown_kind", encode(lost), false});
  return all;
}

/// Rank 0 of 3: ranks 0 and 1 find that rank 2 is gone, at different times.
std::vector<fuzz::Seed> survivors() {
  const auto says = [](int from, bool decided, RankSet ranks) {
    return fuzz::behind(static_cast<char>(from),
                        encode(SurvivorsMessage{.decided = decided, .ranks = ranks, .id = id_of(from)}));
  };
  const std::string start("\3\0", 2);
  const std::string gone(1, static_cast<char>(kGone + 2));
  return {{"survivors_all", start + says(1, false, 0b111) + says(2, false, 0b111)},
          {"survivors_two", start + says(1, false, 0b111) + gone + says(1, false, 0b011)},
          {"survivors_told", start + gone + says(1, true, 0b011)},
          {"survivors_without_own", start + says(1, false, 0b110), false}};
}

/// All kinds of messages: the letter that chooses the parser, the parser, and examples.
struct Kind {
  char letter;
  void (*check)(std::string_view);
  std::vector<fuzz::Seed> examples;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = [] {
    const std::string announce = encode(Announce{.nonce = id_of(0), .size = 2});
    Ack unknown_sharing{.status = Status{}, .hello = some_hello(1)};
    unknown_sharing.hello.share_by = static_cast<ShareBy>(kShareByCount);
    return std::vector<Kind>{
        {'s', check<parse_status>, {{"status", encode(kFailure)}}},
        {'n',
         check<parse_announce>,
         {{"announce", announce}, {"other_protocol", fuzz::changed(announce, 4, 0xff), false}}},
        {'o',
         check<parse_offer>,
         {{"offer", encode(Offer{.id = id_of(0), .nonces = {id_of(1), id_of(2)}})},
          {"offer_to_too_many", encode(Offer{.id = {}, .nonces = std::vector<os::Id>(kMaxHostRanks + 1)}),
           false}}},
        {'w',
         check<parse_waiting>,
         {{"waiting", encode(Waiting{.nonce = id_of(0), .beat = 7, .size = 4, .ranks = {1, 3}})}}},
        {'a',
         check<parse_ack>,
         {{"ack", encode(Ack{.status = Status{}, .hello = some_hello(1)})},
          {"ack_failed", encode(Ack{.status = kFailure, .hello = some_hello(0)})},
          {"ack_unknown_sharing", encode(unknown_sharing), false}}},
        {'v', check<parse_verdict>, {{"verdict", encode(Verdict{.hellos = {some_hello(0), some_hello(1)}})}}},
        {'h', check<parse_mesh_hello>, {{"mesh_hello", encode(MeshHello{.id = id_of(0), .rank = 1})}}},
        {'m', check_mesh_message, mesh_messages()},
        {'S', check_survivors, survivors()},
    };
  }();
  return all;
}

}  // namespace

std::vector<fuzz::Seed> fuzz::seeds() {
  std::vector<Seed> all;
  for (const Kind& kind : kinds()) {
    for (const Seed& example : kind.examples)
      all.push_back({example.name, behind(kind.letter, example.bytes), example.accepted});
  }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto kind = std::find_if(kinds().begin(), kinds().end(),
                                 [&](const Kind& each) { return each.letter == static_cast<char>(data[0]); });
  if (kind == kinds().end()) return 0;
  fuzz::parse([&] {
    try {
      kind->check(fuzz::view(data, size).substr(1));
    } catch (const Error& error) {
      // `refused` is for another protocol version.
      if (error.code() != ErrorCode::refused) throw;
      fail(ErrorCode::protocol, "{}", error.message());
    }
  });
  return 0;
}
