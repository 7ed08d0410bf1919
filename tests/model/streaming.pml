/* SPDX-License-Identifier: Apache-2.0 */
// The streaming algorithms: src/backend/cuda/algorithms/streaming, over the Lamport buffers of lamport.pml.
// device.pml models the sequence of calls and the delayed stores. The model has one block of every rank, since a
// block never waits for other blocks of its rank. The warps of the block are processes, by role. One word stands
// for what a warp of movers sends to a peer in one chunk: data, or (two-shot) the result of the sender's piece.
//
// A call is drawn with one of the algorithms and one of these shapes, over the same memory. It is whole (shape 0):
// each chunk has its own slot, so the ring is as deep as the message is long, and there are no credits. Or it reuses
// the slots of a ring of DEPTH (shape 1) or, if there are two DEPTHS, DEPTH + 1 chunks (shape 2). The shapes can
// differ in their numbers of movers, so a word can belong to another warp in the next call. The algorithms differ in
// their rings, so it can belong to another source and phase.
//
// In a one-way call, one of two ranks only sends and the other one only receives. Where it is whole, the receiver's
// first warp gives a credit for no chunks, which says that its call has begun, and the sender's first warp waits for
// that. Where it reuses slots, the sender waits for all credits, which say so, too.
//
// A receiver writes EMPTY back to words that it has taken. This store is delayed like others. It is performed
// at the latest when its kernel ends, or when a release has acquired it. The release also waits for data that
// the movers have sent. Nothing relies on this, so the model leaves it out. A receiver may poll a word again
// before its own EMPTY is performed, and then sees EMPTY.
//
// A warp takes a chunk from all peers in one step, in which it also sends the results, and gives a credit to all
// peers in one step. Other processes may notice this at any later time, so this loses no interleaving. Failures are
// not modeled, nor programmatic launch. With PARTIAL, the second warp has no part of the last chunk.
//
// Properties: data is stored only to EMPTY words; no store is issued to a word that has another store in
// flight; what is taken belongs to the call, the phase, the sender, the chunk and the warp; a rank that waits for a
// credit is owed it, that is, all movers of the peer have cleared the chunks; no process waits for ever (an
// invalid end state). The sender of a one-way call cannot know what it is owed.
//
// Two reductions make larger searches possible. PROMPT_DATA: data is performed when it is issued. An error with
// delayed data is one with prompt data too: the word is not EMPTY then, or a store to it is in flight.
// ONE_WORD: only stores to one word are delayed, which is drawn once from the words on rank 0 for rank 1 and for calls
// of even epochs. An error concerns one word, and stores to other words only make processes wait. The ranks
// differ only in their numbers and as roots. An error that concerns one rank as the root therefore needs a run with
// another root, or with all. The first call of an odd epoch finds the ranks as the first of an even one does.
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
// Chunks; at most DEPTH - 3, and DEPTH - 4 unless all calls have one phase; DEPTH if all are one-way.
#define PER_CREDIT 1
#endif

// The algorithms are one-way streams to rank 0 and 1 (only with 2 ranks), one-shot and two-shot all-reduces, and
// reduces to rank 0, 1 and 2. A call has any of them, from FIRST to LAST.
#define ONE_WAY 0
#define ONE_SHOT 2
#define TWO_SHOT 3
#define REDUCE 4
#ifndef FIRST
#define FIRST ONE_SHOT
#endif
#ifndef LAST
#define LAST FIRST
#endif

#define WORKERS 1  // the block
#define SHAPES (1 + DEPTHS)
#define KINDS ((LAST - FIRST + 1) * SHAPES)
#define WHOLE 0
#define MOST_WORDS(k) ((k) % SHAPES == WHOLE -> WHOLE_CHUNKS : CHUNKS - DEPTH + 1 - (k) % SHAPES)
#define EPOCHS 4

// Words of a ring.
#define REUSED_WORDS ((DEPTH + DEPTHS - 1) * REUSED_WARPS)
#if WHOLE_CHUNKS * WHOLE_WARPS > REUSED_WORDS
#define RING (WHOLE_CHUNKS * WHOLE_WARPS)
#else
#define RING REUSED_WORDS
#endif
#if LAST <= ONE_SHOT
#define PHASES 1
#else
#define PHASES 2
#endif
#define RANK_WORDS (2 * PHASES * (N - 1) * RING)
#define CELLS (N * RANK_WORDS)

#define EMPTY 253  // the data of the model includes zero, so another value stands for the sentinel
#define LAND(at) assert(cell[at] == EMPTY || flight[at] == EMPTY)

#include "device.pml"

#define SELF (me * WORKERS)
#define EPOCH now[me]
#define ALGORITHM (FIRST + kind[me] / SHAPES)
#define SHAPE (kind[me] % SHAPES)
#define REUSES (SHAPE != WHOLE)
#define SLOTS (REUSES -> DEPTH - 1 + SHAPE : words[me])
#define LENGTH (REUSES -> SLOTS + words[me] : words[me])  // chunks of the call
#define MOVERS (REUSES -> REUSED_WARPS : WHOLE_WARPS)
#ifdef PARTIAL
#define HAS(t) (id == 0 || (t) != LENGTH - 1)
#else
#define HAS(t) true
#endif
#define MOST_CREDIT words[me]  // of a call that reuses slots: LENGTH - SLOTS

#define IS_ONE_WAY (ALGORITHM < ONE_SHOT)
#define IN_ONE_PHASE (ALGORITHM <= ONE_SHOT)
#define ONLY_RECEIVES(r) (IS_ONE_WAY && ALGORITHM == ONE_WAY + (r))
#define ONLY_SENDS(r) (IS_ONE_WAY && ALGORITHM != ONE_WAY + (r))

// A rank that owns a piece receives data and sends results.
#define OWNS(r) (ALGORITHM != REDUCE + (r))
#define GETS_RESULTS(r) (ALGORITHM == TWO_SHOT || ALGORITHM == REDUCE + (r))
#define RECEIVES(r, phase) (phase == 0 -> OWNS(r) : GETS_RESULTS(r))

#ifdef MUTATION_STRIDE_OF_CALL
#define HALF ((N - 1) * SLOTS * MOVERS)
#else
#define HALF (PHASES * (N - 1) * RING)
#endif
#define SOURCE(src, dst) ((src) - ((src) > (dst)))
#if PHASES == 1
#define RING_OF(src, dst, phase) SOURCE(src, dst)
#else
#define RING_OF(src, dst, phase) \
  (IN_ONE_PHASE -> PHASES * SOURCE(src, dst) : (phase) * (N - 1) + SOURCE(src, dst))
#endif
// The word of warp w in chunk t that src sends to dst.
#define AT(src, dst, phase, t, w) ((dst) * RANK_WORDS + PARITY(EPOCH) * HALF + \
                                   RING_OF(src, dst, phase) * RING + ((t) % SLOTS) * MOVERS + (w))
#define DATA(src, phase, t, w) (((((phase) * N + (src)) * CHUNKS + (t)) * WARPS + (w)) * EPOCHS + EPOCH)

#ifdef ONE_WORD
byte delayed;
#define DELAYED(at) ((at) == delayed)
#else
#define DELAYED(at) true
#endif
#ifdef PROMPT_DATA
#define DATA_DELAYED(at) false
#else
#define DATA_DELAYED(at) DELAYED(at)
#endif

#ifdef MUTATION_SILENT_RANK
// Rank 0 has nothing to send in calls of one chunk.
#define SENDS(src) (!ONLY_RECEIVES(src) && (REUSES || words[me] != 1 || (src) != 0))
#else
#define SENDS(src) (!ONLY_RECEIVES(src))
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

inline send(phase, t) {
  r = 0;
  do
  :: r < N && r != me && RECEIVES(r, phase) && SENDS(me) && HAS(t) ->
    if
    :: DATA_DELAYED(AT(me, r, phase, t, id)) -> issue(me, AT(me, r, phase, t, id), DATA(me, phase, t, id))
    :: else ->
      assert(cell[AT(me, r, phase, t, id)] == EMPTY);
      perform(AT(me, r, phase, t, id), DATA(me, phase, t, id))
    fi;
    r++
  :: r < N && !(r != me && RECEIVES(r, phase) && SENDS(me) && HAS(t)) -> r++
  :: else -> break
  od;
  r = 0
}

#define THERE(src, phase, t) \
  (src == me || !SENDS(src) || !HAS(t) || \
   (cell[AT(src, me, phase, t, id)] != EMPTY && flight[AT(src, me, phase, t, id)] == NONE))
#if N == 2
#define ALL_THERE(phase, t) (THERE(0, phase, t) && THERE(1, phase, t))
#else
#define ALL_THERE(phase, t) (THERE(0, phase, t) && THERE(1, phase, t) && THERE(2, phase, t))
#endif

inline take(phase, t) {
  r = 0;
  do
  :: r < N && r != me && SENDS(r) && HAS(t) ->
    assert(cell[AT(r, me, phase, t, id)] == DATA(r, phase, t, id));
    if
    :: DELAYED(AT(r, me, phase, t, id)) -> issue(me, AT(r, me, phase, t, id), EMPTY)
    :: else -> perform(AT(r, me, phase, t, id), EMPTY)
    fi;
    r++
  :: r < N && !(r != me && SENDS(r) && HAS(t)) -> r++
  :: else -> break
  od;
  r = 0
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
#define MAY_SEND (ONLY_RECEIVES(me) || sent < SLOTS || credited[me] >= sent + 1 - SLOTS)
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
inline check_what_is_owed(count) {
  if
  :: REUSES && !IS_ONE_WAY && count > AHEAD && count - AHEAD <= MOST_CREDIT && ALL_CLEARED(me, count) ->
    do
    :: r < N -> assert(now[r] == now[me] && ALL_CLEARED(r, count - AHEAD)); r++
    :: else -> break
    od;
    r = 0
  :: else
  fi
}

// Results are taken LAG chunks late, and a rank that receives none counts a chunk as cleared LATE chunks late.
#ifndef LAG
#define LAG 1
#endif
#ifdef MUTATION_COUNTS_AT_ONCE
#define LATE 0
#else
#define LATE 1
#endif

// A rank that only sends clears nothing.
inline raise(count) {
  if
  :: !ONLY_SENDS(me) ->
    cleared[me * WARPS + id] = count;
    check_what_is_owed(cleared[me * WARPS + id])
  :: else
  fi
}
inline end_at(count) {
  if
  :: count == LENGTH -> end_part(id); sent = 0; taken = 0; done = 0
  :: else
  fi
}
// A rank that owns nothing takes no data.
inline skip_data() {
  if
  :: !OWNS(me) -> taken = (sent == LENGTH -> LENGTH : sent - 1)
  :: else
  fi
}

// In a whole one-way call, the receiver says that it has begun. The sender does not end the call before.
#define BEGINNING (IS_ONE_WAY && !REUSES && id == 0)
inline say_begun() {
  if
  :: BEGINNING && ONLY_RECEIVES(me) ->
    credit_epoch[CREDIT(me, 1 - me)] = EPOCH;
    credit_count[CREDIT(me, 1 - me)] = 0
  :: else
  fi
}
#ifdef MUTATION_NO_BEGIN
#define MAY_END true
#else
#define MAY_END (!BEGINNING || ONLY_RECEIVES(me) || credit_epoch[CREDIT(1 - me, me)] == EPOCH || \
                 credit_epoch[CREDIT(1 - me, me)] == (EPOCH + 1) % EPOCHS)
#endif

// The last step of each of these processes also ends its part of the call. The stream may notice this at any
// later time.
proctype Mover(byte me; byte id) {
  byte sent;
  byte taken;  // data
  byte done;   // with the results
  byte r;
  do
  :: d_step { sent == 0 && STARTS(id) && id < MOVERS -> say_begun(); send(0, 0); sent = 1; skip_data() }
  :: d_step {
       sent > 0 && sent == taken + 1 && sent < LENGTH && taken <= done + LAG && MAY_SEND ->
       send(0, sent);
       sent++;
       skip_data()
     }
  :: d_step {
       sent > 0 && taken < LENGTH && (sent == taken + 2 || sent == LENGTH) && taken <= done + LAG &&
       ALL_THERE(0, taken) && (taken + 1 < LENGTH || MAY_END) ->
       take(0, taken);
       if
       :: !IN_ONE_PHASE -> send(1, taken)
       :: else
       fi;
       taken++;
       if
       :: IN_ONE_PHASE -> done = taken; raise(done); end_at(done)
       :: !IN_ONE_PHASE && !GETS_RESULTS(me) ->
         done = (taken == LENGTH -> LENGTH : taken - LATE);
         raise(done);
         end_at(done)
       :: else ->
#ifdef MUTATION_COUNTS_BEFORE_RESULTS
         raise(taken)
#endif
       fi
     }
#if PHASES == 2
  :: d_step {
       done < LENGTH && (taken > done + LAG || taken == LENGTH) && sent > 0 && GETS_RESULTS(me) && ALL_THERE(1, done) ->
       take(1, done);
       done++;
#ifdef MUTATION_COUNTS_BEFORE_RESULTS
       if
       :: !OWNS(me) -> raise(done)
       :: else
       fi;
#else
       raise(done);
#endif
       end_at(done)
     }
#endif
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
#define LANDED_IN(src, phase, c, w) (flight[AT(src, me, phase, (c) - 1, w)] == NONE)
#if PHASES == 1 || defined(MUTATION_CREDIT_FOR_DATA)
#define LANDED_FROM(src, c, w) (src == me || LANDED_IN(src, 0, c, w))
#elif defined(MUTATION_CREDIT_FOR_RESULTS)
#define LANDED_FROM(src, c, w) (src == me || LANDED_IN(src, 1, c, w))
#else
#define LANDED_FROM(src, c, w) (src == me || (LANDED_IN(src, 0, c, w) && LANDED_IN(src, 1, c, w)))
#endif
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
       STARTS(RETURNER) && REUSES && !ONLY_SENDS(me) && RETURNS(NEXT) && ALL_LANDED ->
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
  :: d_step { STARTS(RETURNER) && REUSES && ONLY_SENDS(me) -> end_part(RETURNER) }
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

// The sender of a one-way call has no counts to hold it back: it clears nothing.
#ifdef MUTATION_AWAITS_OWN_COUNTS
#define MAY_AWAIT ALL_CLEARED(me, NEXT + AHEAD)
#else
#define MAY_AWAIT (IS_ONE_WAY || ALL_CLEARED(me, NEXT + AHEAD))
#endif

proctype Awaiter(byte me) {
  byte count;
  byte r;
  do
  :: d_step {
       STARTS(AWAITER) && REUSES && !ONLY_RECEIVES(me) && MAY_AWAIT && ALL_CAME ->
       count = NEXT;
       credited[me] = count;
       if
       :: count == MOST_CREDIT -> end_part(AWAITER); count = 0
       :: else
       fi
     }
  :: d_step { STARTS(AWAITER) && REUSES && ONLY_RECEIVES(me) -> end_part(AWAITER) }
  od
}

init {
  byte i;
  byte j;
  atomic {
    start_streams();
    for (i : 0 .. CELLS - 1) { cell[i] = EMPTY }
#ifdef ONE_WORD
    select (i : 0 .. PHASES * RING - 1);
    delayed = i / RING * (N - 1) * RING + i % RING;
#endif
    for (i : 0 .. CELLS - 1) {
      if
      :: DELAYED(i) -> run Word(i)
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
