/* SPDX-License-Identifier: Apache-2.0 */
// Sends and receives: src/backend/host/point_to_point.h under src/collective/transfers.cc.
//
// N ranks make an endless sequence of GroupCalls. Each is drawn anew: which rank sends how many chunks to
// which other one, more than a ring holds, in both directions at once. (To its pair a message is a number of
// chunks; a call outside a scope is a scope of one call.) A rank moves a chunk on any pair that can progress,
// in any order, which includes the round-robin of the code. Ranks do not synchronize: one may have finished a
// call that others have not started. Only the model keeps a rank from starting the next call before the
// others have started this one, so that two entries of drawn calls suffice. The search covers every
// interleaving.
//
// A slot holds the number of its chunk, modulo 4, or GARBAGE while it is being filled. A receiver checks it
// at the start and at the end of reading, which detects any overwriting in between.
//
// -DSHOWN: every chunk is a message that holds only the address of its data. The receiver reads the data in the
// sender's memory, and the sender waits until it was taken before its caller overwrites the data. A rank whose call
// fails gives all its data back to its caller.
//
// Abnormal ends, each enabled by a -D, as in step_barrier.pml. CRASH: a rank dies between any two statements.
// GIVE_UP: one wait passes its deadline. LEAVE: a rank leaves between two calls. Sleeping on the bell until
// any of several pairs can progress is modeled by -DANY of doorbell.pml.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef MAX_CHUNKS
#define MAX_CHUNKS 3
#endif
// For 3 ranks: the set of patterns to draw from.
#define RING 1
#define STAR 2  // to and from rank 0
#define ALL 4
#ifndef PATTERNS
#define PATTERNS (RING | STAR)
#endif

#define SLOTS 2
#define GARBAGE 4
#define NEXT(count) (((count) + 1) & 3)
#define BEFORE(count) (((count) + 3) & 3)

#ifdef MUTATION_ONE_SLOT_TOO_MANY
#define CREDIT (SLOTS + 1)
#else
#define CREDIT SLOTS
#endif

// A rank's communicator segment: the rings to the other ranks, and the number of chunks it has taken from
// each of them.
typedef Ring {
  byte slot[SLOTS];
  byte sent
}
typedef Segment {
  Ring out[N];
  byte taken[N]
}
Segment segment[N];
#define OUT(r) segment[me].out[r]
#define IN(r) segment[r].out[me]
#define TAKEN(r) segment[me].taken[r]

#ifdef SHOWN
byte source[N * N];  // the data that rank i shows to rank j, at i * N + j
#define SOURCE(from, to) source[(from) * N + (to)]
#endif

#ifdef MUTATION_CREDIT_OF_OTHER_DIRECTION
#define HAS_ROOM(r) (((OUT(r).sent + 4 - TAKEN(r)) & 3) < CREDIT)
#else
#define HAS_ROOM(r) (((OUT(r).sent + 4 - segment[r].taken[me]) & 3) < CREDIT)
#endif
#define HAS_CHUNK(r) (IN(r).sent != TAKEN(r))

// Whether this rank can send to, or take from, rank r. to_send and to_take count the chunks left for each
// rank.
#ifdef SHOWN
// A message that is shown now has been sent when it was taken.
#define SEND_READY(r) (showing[r] -> OUT(r).sent == segment[r].taken[me] : HAS_ROOM(r))
#else
#define SEND_READY(r) HAS_ROOM(r)
#endif
#define CAN_SEND(r) (to_send[r] > 0 && SEND_READY(r))
#define CAN_TAKE(r) (to_take[r] > 0 && HAS_CHUNK(r))
#ifdef MUTATION_ONE_BY_ONE
// As if all sends were called before the first recv.
#define MAY_TAKE(r) (CAN_TAKE(r) && NOTHING_TO_SEND)
#else
#define MAY_TAKE(r) CAN_TAKE(r)
#endif
#if N == 2
#define ANY_READY (CAN_SEND(0) || CAN_SEND(1) || MAY_TAKE(0) || MAY_TAKE(1))
#define NOTHING_TO_SEND (to_send[0] == 0 && to_send[1] == 0)
#define NOTHING_LEFT (NOTHING_TO_SEND && to_take[0] == 0 && to_take[1] == 0)
#define SOMEONE_DEAD (dead[0] || dead[1])
#else
#define ANY_READY (CAN_SEND(0) || CAN_SEND(1) || CAN_SEND(2) || MAY_TAKE(0) || MAY_TAKE(1) || MAY_TAKE(2))
#define NOTHING_TO_SEND (to_send[0] == 0 && to_send[1] == 0 && to_send[2] == 0)
#define NOTHING_LEFT (NOTHING_TO_SEND && to_take[0] == 0 && to_take[1] == 0 && to_take[2] == 0)
#define SOMEONE_DEAD (dead[0] || dead[1] || dead[2])
#endif

bool heard[N];  // told that a rank failed
bool gave_up;
bool dead[N];
bool departed[N];
bit departed_before[N];  // call (modulo 2) before which a rank left

// A drawn call: the number of chunks from rank i to rank j, at i * N + j.
typedef Pattern {
  byte chunks[N * N];
  byte entered
}
Pattern drawn[2];
#define CHUNKS(from, to) drawn[call].chunks[(from) * N + (to)]

#ifdef MUTATION_DEAF
#define TOLD false
#elif defined(MUTATION_DEAF_TO_REPORTS)
#define TOLD SOMEONE_DEAD
#else
#define TOLD (heard[me] || SOMEONE_DEAD)
#endif
#ifdef MUTATION_DEAF_TO_GOODBYES
#define GONE(r) false
#elif defined(MUTATION_GOODBYE_BEFORE_CHUNKS)
#define GONE(r) ((to_send[r] > 0 || to_take[r] > 0) && departed[r])
#else
#define GONE(r) (departed[r] && ((to_send[r] > 0 && !SEND_READY(r)) || (to_take[r] > 0 && !HAS_CHUNK(r))))
#endif

inline put(r) {
#ifdef SHOWN
  if
  :: showing[r] -> d_step { SOURCE(me, r) = GARBAGE; showing[r] = false; to_send[r] = to_send[r] - 1 }
  :: else ->
    SOURCE(me, r) = OUT(r).sent;
    d_step {
      OUT(r).slot[OUT(r).sent % SLOTS] = OUT(r).sent;
      OUT(r).sent = NEXT(OUT(r).sent);
#ifdef MUTATION_NO_WAIT_FOR_READER
      to_send[r] = to_send[r] - 1
    };
    SOURCE(me, r) = GARBAGE
#else
      showing[r] = true
    }
#endif
  fi
#elif defined(MUTATION_COUNT_BEFORE_FILLING)
  OUT(r).sent = NEXT(OUT(r).sent);
  OUT(r).slot[BEFORE(OUT(r).sent) % SLOTS] = GARBAGE;
  d_step {
    OUT(r).slot[BEFORE(OUT(r).sent) % SLOTS] = BEFORE(OUT(r).sent);
    to_send[r] = to_send[r] - 1
  }
#else
  OUT(r).slot[OUT(r).sent % SLOTS] = GARBAGE;
  d_step {
    OUT(r).slot[OUT(r).sent % SLOTS] = OUT(r).sent;
    OUT(r).sent = NEXT(OUT(r).sent);
    to_send[r] = to_send[r] - 1
  }
#endif
}

inline take(r) {
#ifdef SHOWN
  assert(IN(r).slot[TAKEN(r) % SLOTS] == TAKEN(r));
#ifdef MUTATION_TAKEN_BEFORE_READING
  TAKEN(r) = NEXT(TAKEN(r));
#define NUMBER(r) BEFORE(TAKEN(r))
#else
#define NUMBER(r) TAKEN(r)
#endif
  intact = SOURCE(r, me) == NUMBER(r);
  intact = intact && SOURCE(r, me) == NUMBER(r);
  if
#ifdef MUTATION_NO_LAST_LOOK
  :: skip
#else
  :: atomic { TOLD -> goto broken }
  :: atomic { !TOLD -> skip }
#endif
  fi;
  d_step {
    assert(intact);
    intact = false;
#ifndef MUTATION_TAKEN_BEFORE_READING
    TAKEN(r) = NEXT(TAKEN(r));
#endif
    to_take[r] = to_take[r] - 1
  }
#elif defined(MUTATION_COUNT_BEFORE_READING)
  TAKEN(r) = NEXT(TAKEN(r));
  assert(IN(r).slot[BEFORE(TAKEN(r)) % SLOTS] == BEFORE(TAKEN(r)));
  d_step {
    assert(IN(r).slot[BEFORE(TAKEN(r)) % SLOTS] == BEFORE(TAKEN(r)));
    to_take[r] = to_take[r] - 1
  }
#else
  assert(IN(r).slot[TAKEN(r) % SLOTS] == TAKEN(r));
  d_step {
    assert(IN(r).slot[TAKEN(r) % SLOTS] == TAKEN(r));
    IN(r).slot[TAKEN(r) % SLOTS] = GARBAGE;  // no rank may need it any more
    TAKEN(r) = NEXT(TAKEN(r));
    to_take[r] = to_take[r] - 1
  }
#endif
}

#ifdef SHOWN
inline give_back() {
  i = 0;
  do
  :: i < N -> SOURCE(me, i) = GARBAGE; i++
  :: else -> break
  od;
  i = 0
}
#endif

inline draw() {
  i = 0;
  do
  :: i < N * N && i / N == i % N -> i++
#if N == 2
  :: i < N * N && i / N != i % N ->
    // 0 to MAX_CHUNKS.
    do
    :: drawn[call].chunks[i] < MAX_CHUNKS -> drawn[call].chunks[i] = drawn[call].chunks[i] + 1
    :: break
    od;
    i++
#else
  // The same number for all pairs of a pattern.
  :: i == 1 ->
    do
    :: longest < MAX_CHUNKS -> longest++
    :: longest > 0 -> break
    od;
    if
    :: (PATTERNS & RING) -> CHUNKS(0, 1) = longest; CHUNKS(1, 2) = longest; CHUNKS(2, 0) = longest
    :: (PATTERNS & STAR) ->
      CHUNKS(0, 1) = longest; CHUNKS(1, 0) = longest; CHUNKS(0, 2) = longest; CHUNKS(2, 0) = longest
    :: (PATTERNS & ALL) ->
      CHUNKS(0, 1) = longest; CHUNKS(1, 2) = longest; CHUNKS(2, 0) = longest;
      CHUNKS(1, 0) = longest; CHUNKS(2, 1) = longest; CHUNKS(0, 2) = longest
    fi;
    longest = 0;
    i = N * N
#endif
  :: i == N * N -> break
  od;
  i = 0
}

inline forget() {
  drawn[1 - call].entered = 0;
  i = 0;
  do
  :: i < N * N -> drawn[call].chunks[i] = 0; i++
  :: else -> break
  od;
  i = 0
}

proctype Rank(byte me) {
  byte to_send[N];
  byte to_take[N];
  byte i;
  byte longest;
  bit call;
#ifdef SHOWN
  bool showing[N];
  bool intact;
#endif

  {
  do
  ::
#ifdef LEAVE
    if
    :: atomic { departed_before[me] = call; departed[me] = true; goto done }
    :: skip
    fi;
#endif
    skip;
end_between:
    atomic {
      drawn[1 - call].entered == N ->
      if :: drawn[call].entered == 0 -> draw() :: else fi;
      drawn[call].entered = drawn[call].entered + 1;
      do
      :: i < N -> to_send[i] = CHUNKS(me, i); to_take[i] = CHUNKS(i, me); i++
      :: else -> break
      od;
      i = 0;
      if :: drawn[call].entered == N -> forget() :: else fi
    }

    do
    :: CAN_SEND(0) -> put(0)
    :: CAN_SEND(1) -> put(1)
    :: MAY_TAKE(0) -> take(0)
    :: MAY_TAKE(1) -> take(1)
#if N > 2
    :: CAN_SEND(2) -> put(2)
    :: MAY_TAKE(2) -> take(2)
#endif
    :: atomic { TOLD && !NOTHING_LEFT -> goto broken }
    // A peer that has left ends only waits for actions that it has not performed.
    :: atomic { GONE(0) -> assert(departed_before[0] == call || TOLD); goto broken }
    :: atomic { GONE(1) -> assert(departed_before[1] == call || TOLD); goto broken }
#if N > 2
    :: atomic { GONE(2) -> assert(departed_before[2] == call || TOLD); goto broken }
#endif
#ifdef GIVE_UP
    :: atomic { !ANY_READY && !NOTHING_LEFT && !gave_up -> gave_up = true; goto broken }
#endif
    :: NOTHING_LEFT -> break
    od;
    call = 1 - call
  od;

broken:
#if defined(SHOWN) && defined(MUTATION_GIVES_BACK_BEFORE_REPORT)
  give_back();
#endif
  // Mesh::report_locked
#ifndef MUTATION_SILENT
  atomic {
    i = 0;
    do
    :: i < N -> heard[i] = true; i++
    :: else -> break
    od;
    i = 0
  };
#endif
#if defined(SHOWN) && !defined(MUTATION_GIVES_BACK_BEFORE_REPORT)
  give_back();
#endif
done:
  skip
  } unless { dead[me] }
}

#ifdef CRASH
// Kills one rank, at some time or never.
active proctype Killer() {
  end:
  if
  :: dead[0] = true
  :: dead[1] = true
#if N > 2
  :: dead[2] = true
#endif
  fi
}
#endif

init {
  byte i;
  byte j;
  atomic {
    for (i : 0 .. N - 1) {
      for (j : 0 .. N - 1) {
        segment[i].out[j].slot[0] = GARBAGE;
        segment[i].out[j].slot[1] = GARBAGE
      }
    }
    drawn[1].entered = N;  // the call before the first
    for (i : 0 .. N - 1) { run Rank(i) }
  }
}
