/* SPDX-License-Identifier: Apache-2.0 */
// The streaming one-shot all-reduce: src/backend/cuda/algorithms/streaming, over the Lamport buffers
// of lamport.pml. device.pml models the sequence of calls and the delayed stores. The model has one block of
// every rank, since a block never waits for other blocks of its rank. The warps of the block are processes,
// by role. One word stands for what a warp of movers sends to a peer in one chunk.
//
// A call is drawn with one of these shapes, over the same memory. It is whole (kind 0): each chunk has its own
// slot, so the ring is as deep as the message is long, and there are no credits. Or it reuses the slots of a
// ring of DEPTH (kind 1) or, if there are two DEPTHS, DEPTH + 1 chunks (kind 2). The shapes can differ in their
// numbers of movers, so a word can belong to another warp in the next call.
//
// A receiver writes EMPTY back to words that it has taken. This store is delayed like others. It is performed
// at the latest when its kernel ends, or when a release has acquired it. The release also waits for data that
// the movers have sent. Nothing relies on this, so the model leaves it out. A receiver may poll a word again
// before its own EMPTY is performed, and then sees EMPTY.
//
// A warp takes a chunk from all peers in one step, and gives a credit to all peers in one step. Other processes
// may notice this at any later time, so this loses no interleaving. Failures are not modelled, nor programmatic
// launch. With PARTIAL, the second warp has no part of the last chunk.
//
// Properties: data is stored only to EMPTY words; no store is issued to a word that has another store in
// flight; data that is taken belongs to the call, the sender, the chunk and the warp; a rank that waits for a
// credit is owed it, that is, all movers of the peer have cleared the chunks; no process waits for ever (an
// invalid end state).
//
// Two reductions make larger searches possible. PROMPT_DATA: data is performed when it is issued. An error with
// delayed data is one with prompt data too: the word is not EMPTY then, or a store to it is in flight.
// ONE_RING: only stores to the ring of rank 1 on rank 0 are delayed. An error concerns one word, stores to
// other words only make processes wait, and the ranks differ only in their numbers.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
// A whole call has up to WHOLE_CHUNKS chunks, one that reuses slots up to CHUNKS (at least DEPTH + 2 if there
// are two depths).
#ifndef WHOLE_CHUNKS
#define WHOLE_CHUNKS 1
#endif
#ifndef CHUNKS
#define CHUNKS 6
#endif
// Warps of movers.
#ifndef WHOLE_WARPS
#define WHOLE_WARPS 1
#endif
#ifndef REUSED_WARPS
#define REUSED_WARPS 1
#endif
#if WHOLE_WARPS > REUSED_WARPS
#define WARPS WHOLE_WARPS
#else
#define WARPS REUSED_WARPS
#endif
#ifndef DEPTH
#define DEPTH 4
#endif
#ifndef DEPTHS
#define DEPTHS 1
#endif
#ifndef PER_CREDIT
#define PER_CREDIT 1  // chunks; at most DEPTH - 3
#endif

#define WORKERS 1  // the block
#define KINDS (1 + DEPTHS)
#define WHOLE 0
#define MOST_WORDS(k) ((k) == WHOLE -> WHOLE_CHUNKS : CHUNKS - DEPTH + 1 - (k))
#define EPOCHS 4

// Words of a source's ring.
#define REUSED_WORDS ((DEPTH + DEPTHS - 1) * REUSED_WARPS)
#if WHOLE_CHUNKS * WHOLE_WARPS > REUSED_WORDS
#define RING (WHOLE_CHUNKS * WHOLE_WARPS)
#else
#define RING REUSED_WORDS
#endif
#define CELLS (N * 2 * (N - 1) * RING)

#define EMPTY 253  // the data of the model includes zero, so another value stands for the sentinel
#define LAND(at) assert(cell[at] == EMPTY || flight[at] == EMPTY)

#include "device.pml"

#define SELF (me * WORKERS)
#define EPOCH now[me]
#define REUSES (kind[me] != WHOLE)
#define SLOTS (REUSES -> DEPTH - 1 + kind[me] : words[me])
#define LENGTH (REUSES -> SLOTS + words[me] : words[me])  // chunks of the call
#define MOVERS (REUSES -> REUSED_WARPS : WHOLE_WARPS)
#ifdef PARTIAL
#define HAS(t) (id == 0 || (t) != LENGTH - 1)
#else
#define HAS(t) true
#endif
#define MOST_CREDIT words[me]  // of a call that reuses slots: LENGTH - SLOTS

#ifdef MUTATION_STRIDE_OF_CALL
#define HALF ((N - 1) * SLOTS * MOVERS)
#else
#define HALF ((N - 1) * RING)
#endif
// The word of warp w in chunk t that src sends to dst.
#define AT(src, dst, t, w) ((dst) * 2 * (N - 1) * RING + PARITY(EPOCH) * HALF + \
                            ((src) - ((src) > (dst))) * RING + ((t) % SLOTS) * MOVERS + (w))
#define DATA(src, t, w) ((((src) * CHUNKS + (t)) * WARPS + (w)) * EPOCHS + EPOCH)

#ifdef ONE_RING
#define DELAYED(src, dst) ((src) == 1 && (dst) == 0)
#define DELAYED_WORD(at) ((at) < 2 * (N - 1) * RING && (at) / RING % (N - 1) == 0)
#else
#define DELAYED(src, dst) true
#define DELAYED_WORD(at) true
#endif
#ifdef PROMPT_DATA
#define DATA_DELAYED(src, dst) false
#else
#define DATA_DELAYED(src, dst) DELAYED(src, dst)
#endif

#ifdef MUTATION_SILENT_RANK
// Rank 0 has nothing to send in calls of one chunk.
#define SENDS(src) (REUSES || words[me] != 1 || (src) != 0)
#else
#define SENDS(src) true
#endif

// Processes of a block: the movers, the returning and the awaiting warp.
#define ROLES (WARPS + 2)
#define RETURNER WARPS
#define AWAITER (WARPS + 1)
bool over[N * ROLES];      // has done its part of the call
byte left[N];              // number of processes that have
#define STARTS(role) (stride[me] != 0 && !over[me * ROLES + (role)])

// Counts of chunks in shared memory.
byte cleared[N * WARPS];
byte credited[N];

// Credits that src gave to dst: the epoch and a count. When dst ends its call, the credits of this call become
// OLD. The program's epochs only increase.
#define CREDIT(src, dst) ((dst) * N + (src))
byte credit_epoch[N * N] = OLD;
byte credit_count[N * N];

inline perform(at, value) {
  assert(flight[at] == NONE);
  cell[at] = value
}

inline send(t) {
  r = 0;
  do
  :: r < N && r != me && SENDS(me) && HAS(t) ->
    if
    :: DATA_DELAYED(me, r) -> issue(me, AT(me, r, t, id), DATA(me, t, id))
    :: else ->
      assert(cell[AT(me, r, t, id)] == EMPTY);
      perform(AT(me, r, t, id), DATA(me, t, id))
    fi;
    r++
  :: r < N && (r == me || !SENDS(me) || !HAS(t)) -> r++
  :: else -> break
  od;
  r = 0
}

#define THERE(src) (src == me || !SENDS(src) || !HAS(taken) || \
                    (cell[AT(src, me, taken, id)] != EMPTY && flight[AT(src, me, taken, id)] == NONE))
#if N == 2
#define ALL_THERE (THERE(0) && THERE(1))
#else
#define ALL_THERE (THERE(0) && THERE(1) && THERE(2))
#endif

inline take() {
  r = 0;
  do
  :: r < N && r != me && SENDS(r) && HAS(taken) ->
    assert(cell[AT(r, me, taken, id)] == DATA(r, taken, id));
    if
    :: DELAYED(r, me) -> issue(me, AT(r, me, taken, id), EMPTY)
    :: else -> perform(AT(r, me, taken, id), EMPTY)
    fi;
    r++
  :: r < N && (r == me || !SENDS(r) || !HAS(taken)) -> r++
  :: else -> break
  od;
  r = 0;
  taken++;
  cleared[me * WARPS + id] = taken
}

// The last process of the block ends the call.
inline end_part(role) {
  over[me * ROLES + role] = true;
  left[me] = left[me] + 1;
  if
  :: left[me] == MOVERS + (REUSES -> 2 : 0) ->
    r = 0;
    do
    :: r < ROLES -> over[me * ROLES + r] = false; r++
    :: else -> break
    od;
    r = 0;
    do
    :: r < WARPS -> cleared[me * WARPS + r] = 0; r++
    :: else -> break
    od;
    r = 0;
    do
    :: r < N ->
      if
      :: credit_epoch[CREDIT(r, me)] == EPOCH ->
        credit_epoch[CREDIT(r, me)] = OLD;
#ifndef MUTATION_NO_EPOCH
        credit_count[CREDIT(r, me)] = 0
#endif
      :: else
      fi;
      r++
    :: else -> break
    od;
    r = 0;
    left[me] = 0;
    credited[me] = 0;
    finished(me, SELF)
  :: else
  fi
}

#ifdef MUTATION_NO_CREDITS
#define MAY_SEND true
#else
#define MAY_SEND (sent < SLOTS || credited[me] >= sent + 1 - SLOTS)
#endif

#if REUSED_WARPS == 1
#define ALL_CLEARED(r, c) (cleared[(r) * WARPS] >= (c))
#else
#define ALL_CLEARED(r, c) (cleared[(r) * WARPS] >= (c) && cleared[(r) * WARPS + 1] >= (c))
#endif
// Once its own movers have cleared c + AHEAD chunks, a rank may wait for credits for c.
#ifdef MUTATION_AWAITS_EARLY
#define AHEAD 1
#else
#define AHEAD 2
#endif
inline check_what_is_owed() {
  if
  :: REUSES && taken > AHEAD && taken - AHEAD <= MOST_CREDIT && ALL_CLEARED(me, taken) ->
    do
    :: r < N -> assert(now[r] == now[me] && ALL_CLEARED(r, taken - AHEAD)); r++
    :: else -> break
    od;
    r = 0
  :: else
  fi
}

// The last step of each of these processes also ends its part of the call. The stream may notice this at any
// later time.
proctype Mover(byte me; byte id) {
  byte sent;
  byte taken;
  byte r;
  do
  :: d_step { sent == 0 && STARTS(id) && id < MOVERS -> send(0); sent = 1 }
  :: d_step { sent > 0 && sent == taken + 1 && sent < LENGTH && MAY_SEND -> send(sent); sent++ }
  :: d_step {
       sent > 0 && (sent == taken + 2 || sent == LENGTH) && ALL_THERE ->
       take();
       check_what_is_owed();
       if
       :: taken == LENGTH -> end_part(id); sent = 0; taken = 0
       :: else
       fi
     }
  od
}

#ifdef MUTATION_RETURNS_FOR_ONE_WARP
#define RETURNS(c) (cleared[me * WARPS] >= (c))
#else
#define RETURNS(c) ALL_CLEARED(me, c)
#endif

// The zeros of chunk c - 1 are in place.
#ifdef MUTATION_RELAXED_CREDIT
#define LANDED(c) true
#else
#define LANDED_FROM(src, c, w) (src == me || flight[AT(src, me, (c) - 1, w)] == NONE)
#if N == 2
#define LANDED_OF(c, w) (LANDED_FROM(0, c, w) && LANDED_FROM(1, c, w))
#else
#define LANDED_OF(c, w) \
  (LANDED_FROM(0, c, w) && LANDED_FROM(1, c, w) && LANDED_FROM(2, c, w))
#endif
#if REUSED_WARPS == 1 || defined(MUTATION_RETURNS_FOR_ONE_WARP)
#define LANDED(c) LANDED_OF(c, 0)
#else
#define LANDED(c) (LANDED_OF(c, 0) && LANDED_OF(c, 1))
#endif
#endif
// Those that this credit adds, from count on; the earlier ones have been waited for.
#if PER_CREDIT == 1
#define ALL_LANDED LANDED(NEXT)
#else
#define ALL_LANDED (LANDED(count + 1) && LANDED(NEXT))
#endif

#define NEXT (MOST_CREDIT - count < PER_CREDIT -> MOST_CREDIT : count + PER_CREDIT)

proctype Returner(byte me) {
  byte count;
  byte r;
  do
  :: d_step {
       STARTS(RETURNER) && REUSES && RETURNS(NEXT) && ALL_LANDED ->
       count = NEXT;
       do
       :: r < N && r != me ->
         credit_epoch[CREDIT(me, r)] = EPOCH;
         credit_count[CREDIT(me, r)] = count;
         r++
       :: r < N && r == me -> r++
       :: else -> break
       od;
       r = 0;
       if
       :: count == MOST_CREDIT -> end_part(RETURNER); count = 0
       :: else
       fi
     }
  od
}

#ifdef MUTATION_NO_EPOCH
#define CAME(src) (src == me || credit_count[CREDIT(src, me)] >= NEXT)
#else
#define CAME(src) (src == me || credit_epoch[CREDIT(src, me)] == (EPOCH + 1) % EPOCHS || \
                   (credit_epoch[CREDIT(src, me)] == EPOCH && credit_count[CREDIT(src, me)] >= NEXT))
#endif
#if N == 2
#define ALL_CAME (CAME(0) && CAME(1))
#elif defined(MUTATION_WAIT_FOR_ONE)
#define ALL_CAME ((me != 0 && CAME(0)) || (me != 1 && CAME(1)) || (me != 2 && CAME(2)))
#else
#define ALL_CAME (CAME(0) && CAME(1) && CAME(2))
#endif

proctype Awaiter(byte me) {
  byte count;
  byte r;
  do
  :: d_step {
       STARTS(AWAITER) && REUSES && ALL_CLEARED(me, NEXT + AHEAD) && ALL_CAME ->
       count = NEXT;
       credited[me] = count;
       if
       :: count == MOST_CREDIT -> end_part(AWAITER); count = 0
       :: else
       fi
     }
  od
}

init {
  byte i;
  byte j;
  atomic {
    start_streams();
    for (i : 0 .. CELLS - 1) { cell[i] = EMPTY }
    for (i : 0 .. CELLS - 1) {
      if
      :: DELAYED_WORD(i) -> run Word(i)
      :: else
      fi
    }
    for (i : 0 .. N - 1) {
      for (j : 0 .. WARPS - 1) { run Mover(i, j) }
      run Returner(i);
      run Awaiter(i)
    }
  }
}
