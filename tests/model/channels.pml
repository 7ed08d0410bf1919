/* SPDX-License-Identifier: Apache-2.0 */
// Point-to-point channels between two ranks: src/backend/cuda/algorithms/point_to_point. Both ranks send
// messages to each other, or with ONE_WAY only the first one sends. Message m of a direction consists of LL
// packets (with PACKED: of packed LL, with a flag byte in every 8 bytes) or of a given number of chunks, as
// both ranks know. A rank may send and receive in one launch or in two.
//
// A launch sends and receives at the same time, with different warps. The next launch starts when the
// previous one has ended and its stores have been performed. Stores are performed late and in any order,
// except where a release waits for them. Packed LL differs from LL packets in that the receiver waits for a
// flag that is set, whatever the message number, and writes zeros back, which are also performed late. The
// model has one stream, and one packet per message, because several of them do not interact.
//
// Properties: a receiver takes what was sent; no store overwrites data that is still to be read; no process
// waits for ever (an invalid end state), although a message of packets is acknowledged in a later launch than
// the one that takes it.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef MESSAGES
#define MESSAGES 4
#endif
#ifndef CHUNKS
#define CHUNKS 3  // of a message that does not consist of packets
#endif
#define DEPTH 2
#define NONE 255

// Indexed by direction, which is its sender's number. Messages of packets, and chunks, are numbered from 1
// on.
byte chunks[2 * MESSAGES];  // of each message; 0: LL packets, packed or not
#define KIND(d, m) chunks[(d) * MESSAGES + (m)]

// State that receivers and senders poll. A cell has the number stored in it, and the number of the store in
// flight.
typedef Cell {
  byte number;
  byte flying = NONE;
  bool unread
};
#ifdef MUTATION_ONE_PARITY
#define SIDE(n) 0
#else
#define SIDE(n) ((n) % 2)
#endif
#define PACKET(d, n) packets[(d) * 2 + SIDE(n)]
#define CHUNK(d, n) ring[(d) * DEPTH + (n) % DEPTH]
Cell packets[2 * 2];
bool clearing[2 * 2];  // zeros are in flight
Cell ring[2 * DEPTH];
byte taken[2];  // messages of packets, as known to their sender
byte taken_flying[2] = NONE;
byte ready[2];
byte freed[2];

// Counts that ranks keep from launch to launch.
byte sent[2];
byte received[2];
byte chunks_sent[2];
byte chunks_received[2];

// A launch sets these for the rank's sender and receiver.
bool sending[2];
bool receiving[2];

inline issue(cell, value) {
  assert(cell.flying == NONE);
  cell.flying = value
}
inline land(cell) {
  assert(!cell.unread);  // still to be read
  cell.number = cell.flying;
  cell.flying = NONE;
  cell.unread = true
}

// These processes perform the stores in flight, independently of each other.
proctype Packets(byte i) {
end:
  do
  :: d_step { packets[i].flying != NONE -> land(packets[i]) }
  :: d_step { clearing[i] -> packets[i].number = 0; clearing[i] = false }
  od
}
proctype Slot(byte i) {
end:
  do
  :: d_step { ring[i].flying != NONE -> land(ring[i]) }
  od
}
proctype Acknowledgements(byte d) {
end:
  do
  :: d_step { taken_flying[d] != NONE -> taken[d] = taken_flying[d]; taken_flying[d] = NONE }
  od
}

proctype Sender(byte d) {
  byte m;  // message
  byte n;  // packets or chunks
  byte i;
  byte first;
end:
  do
  :: atomic { sending[d] -> n = sent[d] + 1; i = 0 };
     if
     :: KIND(d, m) == 0 ->
        // The slot is free once n - 2 has been taken.
#ifndef MUTATION_NO_TAKEN
        taken[d] + 2 >= n;
#endif
        atomic { issue(PACKET(d, n), n); sent[d] = n }
     :: else ->
#ifdef MUTATION_COUNTS_RESTART
        first = 0;
#else
        first = chunks_sent[d];
#endif
        do
        :: i < KIND(d, m) ->
           n = first + i + 1;
#ifndef MUTATION_NO_FREED
           freed[d] + DEPTH >= n;
#endif
           issue(CHUNK(d, n), n);
#ifndef MUTATION_RELAXED_READY
           CHUNK(d, n).flying == NONE;  // release.sys
#endif
           ready[d] = n;
           i++
        :: else -> chunks_sent[d] = first + i; break
        od
     fi;
     atomic { m++; n = 0; i = 0; first = 0; sending[d] = false }
  od
}

proctype Receiver(byte d) {
  byte m;
  byte n;
  byte i;
  byte first;
end:
  do
  :: atomic { receiving[d] -> i = 0 };
     if
     :: KIND(d, m) == 0 ->
        d_step {
          n = received[d] + 1;
          // The messages before it have been taken, by kernels that have ended.
#ifdef MUTATION_TAKEN_EARLY
          taken_flying[d] = n
#else
          taken_flying[d] = n - 1
#endif
        };
        d_step {
#ifdef PACKED
          PACKET(d, n).number != 0 ->
          assert(PACKET(d, n).number == n);  // not the remains of an earlier message
#ifndef MUTATION_NO_CLEAR
          clearing[d * 2 + SIDE(n)] = true;
#endif
#else
          PACKET(d, n).number == n ->
#endif
          assert(PACKET(d, n).unread);
          PACKET(d, n).unread = false;
          received[d] = n
        }
     :: else ->
        first = chunks_received[d];
        do
        :: i < KIND(d, m) ->
           n = first + i + 1;
           ready[d] >= n;
#ifdef MUTATION_FREED_EARLY
           freed[d] = n;
#endif
           d_step {
             assert(CHUNK(d, n).number == n);
             assert(CHUNK(d, n).unread);
             CHUNK(d, n).unread = false
           };
           freed[d] = n;
           i++
        :: else -> chunks_received[d] = first + i; break
        od
     fi;
     atomic { m++; n = 0; i = 0; first = 0; receiving[d] = false }
  od
}

// Whether all stores of the rank have been performed: its packets to the other rank, its acknowledgement, and
// the zeros that it wrote over the other rank's packed LL.
#define PERFORMED(me) (packets[(me) * 2].flying == NONE && packets[(me) * 2 + 1].flying == NONE && \
                       taken_flying[1 - (me)] == NONE && CLEARED(me))
#ifdef MUTATION_LATE_CLEAR
#define CLEARED(me) true
#else
#define CLEARED(me) (!clearing[(1 - (me)) * 2] && !clearing[(1 - (me)) * 2 + 1])
#endif

proctype Rank(byte me) {
  byte m;
  do
  :: m < MESSAGES ->
     if
#ifdef ONE_WAY
     :: me == 0 -> sending[0] = true; !sending[0] && PERFORMED(0)
     :: me == 1 -> receiving[0] = true; !receiving[0] && PERFORMED(1)
#else
     :: atomic { true -> sending[me] = true; receiving[1 - me] = true };  // one launch
        !sending[me] && !receiving[1 - me] && PERFORMED(me)
     :: me == 0 ->
        // If both ranks did this, each could wait for the other to receive; and below, to send.
        sending[0] = true;
        !sending[0] && PERFORMED(me);
        receiving[1] = true;
        !receiving[1] && PERFORMED(me)
     :: me == 1 ->
        receiving[0] = true;
        !receiving[0] && PERFORMED(me);
        sending[1] = true;
        !sending[1] && PERFORMED(me)
#endif
     fi;
     m++
  :: else -> break
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. 2 * MESSAGES - 1) {
      if
      :: chunks[i] = 0
#if CHUNKS > 0
      :: chunks[i] = CHUNKS
#endif
      fi
    }
    for (i : 0 .. 3) { run Packets(i) }
    for (i : 0 .. 2 * DEPTH - 1) { run Slot(i) }
    for (i : 0 .. 1) { run Acknowledgements(i) }
    run Sender(0);
    run Sender(1);
    run Receiver(0);
    run Receiver(1);
    run Rank(0);
    run Rank(1)
  }
}
