// SPDX-License-Identifier: Apache-2.0
// Data that passes between two ranks, whatever others do: what moves among ranks as it is (exchange), and
// what is combined on arrival (combine).
//
// Every ordered pair of ranks is a queue. A message goes
//   by packets, if it is short: words that carry their flag (flagged.cuh), in a slot that two messages use in
//   turn; the flag is the message's number.
//   by bundles, if it is not so short: words of which eight carry seven of data (bundle.cuh), in another such
//   slot, which the receiver empties.
//   by chunks otherwise, dealt in turn to a number of streams. A stream is one warp of the sender, one of the
//   receiver, and a ring of slots on the receiver. The sender writes a chunk and raises `ready`; the receiver
//   takes it and raises `taken`, which frees the slot.
// Which of them, and how it is cut, follows from the message's length, which both ranks know. The counts go
// on through all launches, so a launch may begin whatever the peer is at. Only a pair that moves bytes takes
// part, and no pair waits for another: what a user may do with sends and receives works.
//
// Packets and bundles are acknowledged a launch later: when a launch receives a message, it says that those
// before it have been taken, which needs no waiting, since the kernels that took them have ended. A sender
// writes message m when m - 2 has been taken. It is behind only if the receiver is, and the receiver says so
// at the latest when it begins to wait for m - 1.
//
// In place works where a rank's input and output are the same block of data: nobody reads what a peer has not
// sent to it.
#pragma once

#include "kernel/cuda/pair_message.cuh"
#include "kernel/cuda/pair_stream.cuh"

namespace onehop::cuda {

/// All of PairParams::pairs at once. Senders have to do with the packets or bundles of both directions, too.
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
