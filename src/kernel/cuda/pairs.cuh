// SPDX-License-Identifier: Apache-2.0
// Point-to-point data between two ranks, independent of all others: data that is moved unchanged (exchange),
// and data that is combined on arrival (combine).
//
// Every ordered pair of ranks is a queue. The length of a message decides how it travels:
//   - Short messages use packets, words that carry their flag (flagged.cuh). They share two slots in turn;
//     the flag is the message's number.
//   - Medium messages use bundles, where eight words carry seven words of data (bundle.cuh). They have two
//     slots of their own, which the receiver clears.
//   - Longer messages use chunks, dealt in turn to a number of streams. A stream is one warp of the sender,
//     one of the receiver, and a ring of slots on the receiver. The sender writes a chunk and raises `ready`;
//     the receiver takes the chunk and raises `taken`, which frees the slot.
// Both ranks know the length, and so both derive the same protocol and the same chunks. The counts continue
// through all launches, so a launch may begin whatever state the peer is in. Only pairs that move bytes take
// part, and no pair waits for another. So any pattern of sends and receives that users may issue works.
// part, and no pair waits for another: what a user may do with sends and receives works.
//
// Packets and bundles are acknowledged one launch later. A launch that receives a message reports that the
// earlier messages have been taken. It need not wait for that, since the kernels that took them have ended. A
// sender writes message m once m - 2 has been taken. The sender has to wait only if the receiver is behind.
// The receiver reports at the latest when it begins to wait for m - 1.
//
// In-place calls work where a rank's input and output are the same block of data: no rank reads what a peer
// has not sent to it.
#pragma once

#include "kernel/cuda/pair_message.cuh"
#include "kernel/cuda/pair_stream.cuh"

namespace onehop::cuda {

/// Handles all entries of PairParams::pairs at once. Sender rows also handle the packets or bundles of both
/// directions.
__device__ __forceinline__ void exchange(const PairParams& p) {
  unsigned row = blockIdx.y;
  const unsigned stream = stream_of_warp();
  if (row < p.senders) {
    const PairParams::Pair& pair = p.pairs[row];
    PairMessage message(p, pair, pair_peer(p, row));
    wait_for_previous();
    if (!message.idle() && !message.send()) return;
    let_next_start(p.early);
    if (!message.idle()) message.settle();
    if (pair.to.shape.streams != 0) PairStream(p, pair.to, pair_peer(p, row), stream).send();
    message.receive();
    return;
  }
  wait_for_previous();
  let_next_start(p.early);
  row -= p.senders;
  if (row < p.receivers) return PairStream(p, p.pairs[row].from, pair_peer(p, row), stream).receive();
  if (row == p.receivers) keep_own<2>(p);
}

}  // namespace onehop::cuda
