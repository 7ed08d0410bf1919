// SPDX-License-Identifier: Apache-2.0
// All messages that ranks exchange while they form and run a group, as bytes (docs/wire-formats.md). Parsers
// are pure functions that throw Error{protocol} on anything malformed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onehop/error.h"
#include "onehop/group.h"
#include "onehop/types.h"

#include "memory/share_methods.h"
#include "os/random.h"

namespace onehop {

/// Incremented with every change of a message below or of the shared-memory layout.
inline constexpr std::uint16_t kProtocolVersion = 9;
/// The call of a failure message: a rank ended the group to form one of the ranks that are left.
inline constexpr const char* kSuccession = "succession";
/// Longest error text that is sent.
inline constexpr std::size_t kMaxErrorText = 2048;
/// Payload of one mesh message.
inline constexpr std::size_t kMaxPayload = 64 << 10;

/// A result to be sent: no error, or one.
struct Status {
  ErrorCode code{};  ///< 0: success
  Rank origin;
  std::string message;

  [[nodiscard]] bool ok() const { return code == ErrorCode{}; }
  void throw_if_failed() const {
    if (!ok()) throw Error(code, message, origin);
  }
  /// `origin` unless the error names one itself.
  static Status of(const Error& error, Rank origin);
};

/// An error of rank `own` in words that fit every rank. One that names a rank stays as it is.
[[nodiscard]] Error naming(Rank own, const Error& error);

// Joining, through the store: announce -> offer -> ack -> verdict, and waiting meanwhile (see rendezvous.h).

/// "I am here". The nonce proves that what follows belongs to this run and not to an earlier one.
struct Announce {
  os::Id nonce{};
  std::int32_t size = 0;  ///< of the group, as this rank was told
};

/// Rank 0's proposal: this group, of the ranks with these nonces.
struct Offer {
  os::Id id{};
  std::vector<os::Id> nonces;
};

/// Rank 0 is alive and waits for these ranks. It repeats this with a new beat for as long as it waits.
struct Waiting {
  os::Id nonce{};          ///< as rank 0 announced it
  std::uint64_t beat = 0;  ///< counts up
  std::int32_t size = 0;   ///< of the group, as rank 0 was told
  std::vector<std::int32_t> ranks;
};

/// A rank's description of itself, which the others need before the group exists.
struct Hello {
  std::string version;  ///< of the library
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::string boot_id;
  std::string hostname;
  std::string device;    ///< "host", or the UUID of the GPU
  bool overlap = false;  ///< allow_overlapping_devices
  std::uint64_t scratch_bytes = 0;
  ShareBy share_by = ShareBy::automatic;  ///< as requested
  ShareMethods share_methods{};           ///< what this rank supports
  bool checks_calls = false;              ///< ONEHOP_CHECK of a rank on a GPU
  bool requires_verified = false;         ///< require_verified_peers
  std::uint32_t uid = 0;
  std::string socket;  ///< path of the listening socket
};

/// "I accept the offer, and this is who I am", or why not.
struct Ack {
  Status status;
  Hello hello;
};

/// Rank 0's decision for all ranks: the members. If there is no group, the reason goes to each nonce as a
/// Status.
struct Verdict {
  std::vector<Hello> hellos;
};

// On the sockets between ranks.

/// First message of a connection.
struct MeshHello {
  os::Id id{};
  std::int32_t rank = 0;
};

enum class MessageKind : std::uint8_t {
  bytes = 1,
  descriptor = 2,
  failure = 3,  ///< the group has failed; the payload is a Status, the call kSuccession or empty
  bye = 4,
  refusal = 5,    ///< instead of `bytes`: this rank refuses the call, for the Status in the payload
  query = 6,      ///< "which rank do you wait for?"; the payload is a Query
  answer = 7,     ///< the payload is an Answer
  survivors = 8,  ///< the payload is a SurvivorsMessage
  successor = 9,  ///< descriptor of a socket of the group that the survivors form
};
enum class DescriptorState : std::uint8_t { none = 0, attached = 1, lost = 2 };

struct MeshMessage {
  MessageKind kind{};
  DescriptorState descriptor = DescriptorState::none;
  std::uint64_t sequence = 0;  ///< counts bytes, descriptors and refusals per direction
  std::string payload;
  std::string call{};  ///< the collective it is part of; empty: none
};

/// A set of ranks: rank r is bit r.
using RankSet = std::uint64_t;
static_assert(kMaxHostRanks <= 64 && kMaxDevices <= 64);
[[nodiscard]] inline RankSet set_of(Rank r) {
  return RankSet{1} << r.value;
}

/// The ranks of a group of this size.
[[nodiscard]] inline RankSet all_ranks(int size) {
  return size == 64 ? ~RankSet{0} : (RankSet{1} << size) - 1;
}

/// Asks a rank which rank it waits for. Query numbers count up per rank.
struct Query {
  std::uint64_t number = 0;
};
struct Answer {
  std::uint64_t number = 0;  ///< of the query
  RankSet awaited = 0;       ///< empty: it waits for no rank
};

/// After a failure: the ranks that the sender finds alive, or has decided for (survivors.h).
struct SurvivorsMessage {
  bool decided = false;
  RankSet ranks = 0;
  os::Id id{};  ///< of the new group: a proposal, or the one decided for
};

[[nodiscard]] std::string encode(const Status& status);
[[nodiscard]] std::string encode(const Announce& announce);
[[nodiscard]] std::string encode(const Offer& offer);
[[nodiscard]] std::string encode(const Waiting& waiting);
[[nodiscard]] std::string encode(const Ack& ack);
[[nodiscard]] std::string encode(const Verdict& verdict);
[[nodiscard]] std::string encode(const MeshHello& hello);
[[nodiscard]] std::string encode(const MeshMessage& message);
[[nodiscard]] std::string encode(const Query& query);
[[nodiscard]] std::string encode(const Answer& answer);
[[nodiscard]] std::string encode(const SurvivorsMessage& message);

[[nodiscard]] Status parse_status(std::string_view bytes);
[[nodiscard]] Announce parse_announce(std::string_view bytes);
[[nodiscard]] Offer parse_offer(std::string_view bytes);
[[nodiscard]] Waiting parse_waiting(std::string_view bytes);
[[nodiscard]] Ack parse_ack(std::string_view bytes);
[[nodiscard]] Verdict parse_verdict(std::string_view bytes);
[[nodiscard]] MeshHello parse_mesh_hello(std::string_view bytes);
[[nodiscard]] MeshMessage parse_mesh_message(std::string_view bytes);
[[nodiscard]] Query parse_query(std::string_view bytes);
[[nodiscard]] Answer parse_answer(std::string_view bytes);
[[nodiscard]] SurvivorsMessage parse_survivors(std::string_view bytes);

}  // namespace onehop
