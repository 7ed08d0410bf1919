// SPDX-License-Identifier: Apache-2.0
// How ranks that share nothing but a store become a group.
//
// All keys live under `onehop/<name>/`. A store may hold what an earlier, crashed run left there, so nothing
// is believed that does not answer this run's random numbers:
//
// 1. Every rank r sets `announce/<r>` to a fresh nonce.
//
// 2. Rank 0 reads all announcements and sets `offer` to a fresh group id and the nonces it read.
//
// 3. A rank that finds its own nonce in the offer sets `<id>/ack/<r>`: its Hello, or why it cannot take part.
// One that finds another nonce in its place waits for the next offer; rank 0 makes one when an announcement
// changes while acks are missing (it had read a stale one).
//
// 4. With all acks, rank 0 decides for everyone and sets `<id>/verdict`: all Hellos. When there is to be no
// group, it sets `refusal/<nonce>` for every rank it has heard of: the reason.
//
// Whom a rank waits for says only the others' progress, not their announcements: one may be stale, and one
// that is gone may belong to a rank that came and gave up. Rank 0 alone knows, so while ranks are missing it
// sets `waiting` to them, again and again with another beat. A rank that gives up without a refusal names
// those ranks if the beat still changed of late, and else rank 0: dead, stopped, or never there.
//
// A fresh id cannot have stale acks or a stale verdict. A failed attempt may be followed by another one at
// once, over the same store and with other ranks, while some rank has not noticed yet; nothing that belongs
// to one may be taken for the other's. So a refusal goes to a nonce, every rank deletes its own announcement
// and nobody else's, and rank 0 deletes the rest once all ranks are connected. A rank that answers with
// another size of the group gets a while to find out that it is late before that is called a mismatch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/group.h"
#include "onehop/store.h"

#include "base/deadline.h"
#include "group/mesh.h"
#include "group/messages.h"
#include "kernel/peer_record.h"

namespace onehop {

struct Rendezvous {
  os::Id id{};
  std::shared_ptr<IpcChannel::Mesh> mesh;
  ShareBy share_by = ShareBy::automatic;  ///< as all ranks decided: never automatic
  bool checks_calls = false;              ///< ONEHOP_CHECK of ranks on GPUs; the same on all ranks
};

/// What a rank finds out about its device before it meets the others.
struct Prepared {
  std::string device;  ///< its identity, see Hello
  ShareWays share_ways{};
};

/// Collective. `prepare` checks this rank's options; what it throws reaches all ranks. `read_outcomes` is
/// called on rank 0, when a rank requires verified peers. Throws the same Error on all ranks when there is to
/// be no group.
[[nodiscard]] Rendezvous rendezvous(
    Store& store, const JoinOptions& options, const std::function<Prepared()>& prepare,
    const Deadline& deadline,
    const std::function<peer_check::Outcomes()>& read_outcomes = peer_check::recorded_outcomes);

/// Why these ranks cannot be a group, or nullopt. Pure.
[[nodiscard]] std::optional<std::string> reason_to_refuse(const std::vector<Hello>& hellos);

/// Why the GPUs of these ranks are not known to reach each other, or nullopt. Pure.
[[nodiscard]] std::optional<std::string> reason_unverified(const std::vector<Hello>& hellos,
                                                           const peer_check::Outcomes& outcomes);

}  // namespace onehop
