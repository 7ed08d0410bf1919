// SPDX-License-Identifier: Apache-2.0
// How ranks that share nothing but a store become a group.
//
// All keys live under `onehop/<name>/`. A store may hold keys of an earlier, crashed run. So a rank believes
// only values that refer to the random numbers of this run:
//
// 1. Every rank r sets `announce/<r>` to a fresh nonce and the size of the group that it was told.
//
// 2. Rank 0 reads all announcements and sets `offer` to a fresh group id and the nonces it read.
//
// 3. A rank that finds its own nonce in the offer sets `<id>/ack/<r>`: its Hello, or why it cannot take part.
// A rank that finds another nonce instead of its own waits for the next offer. Rank 0 makes one when an
// announcement changes while acks are missing, since it had read a stale one.
//
// 4. With all acks, rank 0 decides for everyone and sets `<id>/verdict`: all Hellos. If there is to be no
// group, it sets `refusal/<nonce>` to the reason, for every rank it has heard of.
//
// Announcements do not tell which ranks are missing: one may be stale, and a missing one may belong to a rank
// that came and gave up. Only rank 0 knows. While ranks are missing, it sets `waiting` to them, repeatedly
// and with a new beat. A rank that gives up without a refusal names those ranks if the beat changed recently.
// Otherwise it names rank 0, which is dead, stopped, or was never there.
//
// A fresh id cannot have stale acks or a stale verdict. A failed attempt may be followed at once by another
// one over the same store with other ranks, while some rank has not noticed the failure yet. Neither attempt
// may use the other's values. So a refusal is addressed to a nonce, every rank deletes its own announcement
// only, and rank 0 deletes the rest once all ranks are connected.
//
// To ranks that announced another group size than its own, rank 0 makes an offer at once: a rank that answers
// is there, while another announcement is stale. The rank may merely be late. It gets some time to find out
// before that is called a mismatch. Other ranks do not belong to that offer, and wait for the next one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onehop/group.h"
#include "onehop/store.h"

#include "backend/peer_record.h"
#include "base/deadline.h"
#include "group/mesh.h"
#include "group/messages.h"

namespace onehop {

struct Rendezvous {
  os::Id id{};
  std::shared_ptr<IpcChannel::Mesh> mesh;
  ShareBy share_by = ShareBy::automatic;  ///< as all ranks decided: never automatic
  bool checks_calls = false;              ///< ONEHOP_CHECK of ranks on GPUs; the same on all ranks
};

/// The properties of its device that a rank determines before the rendezvous.
struct Prepared {
  std::string device;  ///< its identity, see Hello
  ShareMethods share_methods{};
};

/// Collective. `prepare` checks this rank's options; an error that it throws reaches all ranks.
/// `read_outcomes` is called on rank 0, when a rank requires verified peers. Throws the same Error on all
/// ranks when there is to be no group.
[[nodiscard]] Rendezvous rendezvous(
    Store& store, const JoinOptions& options, const std::function<Prepared()>& prepare,
    const Deadline& deadline,
    const std::function<peer_check::Outcomes()>& read_outcomes = peer_check::recorded_outcomes);

/// Why these ranks cannot form a group, or nullopt. Pure.
[[nodiscard]] std::optional<std::string> reason_to_refuse(const std::vector<Hello>& hellos);

/// Why the GPUs of these ranks are not known to reach each other, or nullopt. Pure.
[[nodiscard]] std::optional<std::string> reason_unverified(const std::vector<Hello>& hellos,
                                                           const peer_check::Outcomes& outcomes);

}  // namespace onehop
