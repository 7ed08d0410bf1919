// SPDX-License-Identifier: Apache-2.0
// Point-to-point channels between two ranks, independent of all others. Here data is moved unchanged; in
// reduce_from_peers.cuh it is reduced on arrival.
//
// Every ordered pair of ranks is a queue. The length of a message decides how it travels:
//   - Short messages use LL packets, words that carry their flag (wire/ll.cuh). They share two slots in turn;
//     the flag is the message's number.
//   - Medium messages use packed LL, where eight words carry seven words of data (wire/ll_packed.cuh). They
//     have two slots of their own, which the receiver clears.
//   - Longer messages use chunks, dealt in turn to a number of rings. A ring is one warp of the sender, one of
//     the receiver, and a ring buffer of slots on the receiver. The sender writes a chunk and raises `ready`;
//     the receiver takes the chunk and raises `taken`, which frees the slot.
// Both ranks know the length, and so both derive the same protocol and the same chunks. The counts continue
// through all launches, so a launch may begin whatever state the peer is in. Only pairs that move bytes take
// part, and no pair waits for another. So any pattern of sends and receives that users may issue works.
//
// Messages in LL packets, packed or not, are acknowledged one launch later. A launch that receives a message reports that the
// earlier messages have been taken. It need not wait for that, since the kernels that took them have ended. A
// sender writes message m once m - 2 has been taken. The sender has to wait only if the receiver is behind.
// The receiver reports at the latest when it begins to wait for m - 1.
//
// In-place calls work where a rank's input and output are the same block of data: no rank reads what a peer
// has not sent to it.
#pragma once

#include "backend/cuda/algorithms/point_to_point/message.cuh"
#include "backend/cuda/algorithms/point_to_point/ring.cuh"

namespace onehop::cuda {

/// Handles all entries of `pairs` at once. Sender rows also handle the LL packets of both directions.
/// Params: ChannelParams or ChannelPairParams.
template <class Params>
__device__ __forceinline__ void exchange(const Params& p) {
  unsigned row = blockIdx.y;
  const unsigned ring = ring_of_warp();
  if (row < p.senders) {
    const ChannelPair& pair = p.pairs[row];
    MessageChannel message(p, pair, peer_of_entry(p, row));
    wait_for_previous();
    if (!message.idle()) message.send();
    let_next_start(p.early);
    if (!message.idle()) message.settle();
    if (pair.to.shape.route == Route::ring) RingChannel(p, pair.to, peer_of_entry(p, row), ring).send();
    message.receive();
    return;
  }
  wait_for_previous();
  let_next_start(p.early);
  row -= p.senders;
  if (row < p.receivers) return RingChannel(p, p.pairs[row].from, peer_of_entry(p, row), ring).receive();
  if (row == p.receivers) copy_own<2>(p);
}

}  // namespace onehop::cuda
