/* SPDX-License-Identifier: Apache-2.0 */
// Sleeping and waking: ring() and wait_on() of src/os/doorbell.h, without spinning and without the 20 ms
// slice. The slice exists for events that no bell announces (a peer's death), and must not be needed for
// events that one announces.
//
// One rank has a bell. WAITERS threads of the rank wait (more than one, as with barriers on several
// channels), and WAKERS peers publish. There is an endless sequence of rounds. In each round every waker
// writes data, publishes and rings; every waiter w waits for waker (w + i) % WAKERS in turn and then reads
// its data. A lost wake-up is a state in which no process can continue; spin reports it as an invalid end
// state.
//
// -DTSO gives every waker and waiter a store buffer, as on x86: a plain store enters the buffer and reaches
// memory later, in order; a read-modify-write waits until the buffer is empty. (No process loads a value that
// it stored plainly.) Without TSO, stores are visible at once.
//
// -DANY: a waiter waits for whichever of 2 wakers comes first, as send and recv do in a GroupCall, not for
// one at a time.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef WAITERS
#define WAITERS 1
#endif
#ifndef WAKERS
#define WAKERS 2
#endif
// Total number of spurious wake-ups (by a signal). It is bounded, since they would hide lost wake-ups.
#ifndef SPURIOUS
#define SPURIOUS 1
#endif

#define ROUNDS 2  // rounds are counted modulo 2: no process is two ahead. Rings modulo 8: a wait sees at most 2 per waker
#define DEPTH 2   // capacity of a store buffer

byte data[WAKERS];
byte published[WAKERS];
byte sleepers;
byte rings;
bool asleep[WAITERS];  // on the futex
byte finished[WAITERS];
byte spurious = SPURIOUS;

// Kinds of cells that stores write to.
#define DATA 0
#define PUBLISHED 1
#define SLEEPERS 2

#ifdef TSO
typedef Buffer {
  byte used;
  byte cell[DEPTH];
  byte value[DEPTH]
}
Buffer buffers[WAKERS + WAITERS];

#define MINE buffers[thread]
inline store(where, what) {
  atomic {
    MINE.used < DEPTH ->
    MINE.cell[MINE.used] = where;
    MINE.value[MINE.used] = what;
    MINE.used = MINE.used + 1
  }
}
#define DRAINED (MINE.used == 0)

proctype Drain(byte thread) {
end:
  do
  :: d_step {
       MINE.used > 0 ->
       if
       :: MINE.cell[0] == DATA -> data[thread] = MINE.value[0]
       :: MINE.cell[0] == PUBLISHED -> published[thread] = MINE.value[0]
       :: MINE.cell[0] == SLEEPERS -> sleepers = MINE.value[0]
       fi;
       MINE.cell[0] = MINE.cell[1];
       MINE.value[0] = MINE.value[1];
       MINE.used = MINE.used - 1;
       MINE.cell[MINE.used] = 0;
       MINE.value[MINE.used] = 0
     }
  od
}
#else
inline store(where, what) {
  d_step {
    if
    :: where == DATA -> data[thread] = what
    :: where == PUBLISHED -> published[thread] = what
    :: where == SLEEPERS -> sleepers = what
    fi
  }
}
#define DRAINED true
#endif

inline futex_wake_all() {
  d_step {
    i = 0;
    do
#ifdef MUTATION_WAKE_ONE
    :: i < WAITERS && asleep[i] -> asleep[i] = false; break
    :: i < WAITERS && !asleep[i] -> i++
#else
    :: i < WAITERS -> asleep[i] = false; i++
#endif
    :: else -> break
    od;
    i = 0
  }
}

inline publish() {
#ifdef MUTATION_PLAIN_PUBLISH
  store(PUBLISHED, round)
#else
  atomic { DRAINED -> published[thread] = round }
#endif
}

inline count_ring() {
#ifdef MUTATION_UNCOUNTED_RING
  skip
#else
  atomic { DRAINED -> rings = (rings + 1) % 8 }
#endif
}

// Thread numbers: wakers first, then waiters.
proctype Waker(byte thread) {
  byte round;
  byte i;
  bool heard;

  do
  ::
    // Publishes again only after all waiters have finished the previous round, as the step barrier ensures.
    atomic {
      finished[0] == round;
#if WAITERS > 1
      finished[1] == round;
#endif
      round = (round + 1) % ROUNDS
    }
#ifdef MUTATION_LOOK_BEFORE_PUBLISH
    heard = sleepers != 0;
#endif
#ifdef MUTATION_DATA_AFTER_PUBLISH
    publish();
    store(DATA, round);
#else
    store(DATA, round);
    publish();
#endif
#ifndef MUTATION_LOOK_BEFORE_PUBLISH
    heard = sleepers != 0;
#endif
    if
    :: heard ->
#ifdef MUTATION_WAKE_BEFORE_COUNT
      futex_wake_all();
      count_ring()
#else
      count_ring();
      futex_wake_all()
#endif
    :: else
    fi;
    heard = false
  od
}

inline announce() {
#ifdef MUTATION_PLAIN_ANNOUNCE
  store(SLEEPERS, 1)
#elif defined(MUTATION_SLEEPERS_AS_FLAG)
  atomic { DRAINED -> sleepers = 1 }
#else
  atomic { DRAINED -> sleepers++ }
#endif
}

inline unannounce() {
#if defined(MUTATION_PLAIN_ANNOUNCE) || defined(MUTATION_SLEEPERS_AS_FLAG)
  atomic { DRAINED -> sleepers = 0 }
#else
  atomic { DRAINED -> assert(sleepers > 0); sleepers-- }
#endif
}

#ifdef ANY
#define NEWS(from) (published[from] == round && !heard[from])
#define READY (NEWS(0) || NEWS(1))
#else
#define READY (published[source] == round)
#endif

// Compares and goes to sleep atomically, as the kernel does under its lock. The comparison reads memory.
inline futex_wait() {
#ifdef MUTATION_NO_COMPARE
  asleep[thread - WAKERS] = true;
#else
  d_step {
    if
    :: rings == seen -> asleep[thread - WAKERS] = true
    :: else
    fi
  }
#endif
  if
  :: !asleep[thread - WAKERS]
  :: atomic { spurious > 0 && asleep[thread - WAKERS] -> spurious--; asleep[thread - WAKERS] = false }
  fi
}

proctype Waiter(byte thread) {
  byte round = 1;
  byte seen;
  byte i;
  byte source;
  bool done;
#ifdef ANY
  bool heard[WAKERS];
#endif

  do
  ::
    atomic { i < WAKERS -> source = (thread + i) % WAKERS; done = false }
    do
    :: done -> break
    :: else ->
#ifndef MUTATION_ANNOUNCE_AFTER_LOOK
      announce();
#endif
#ifdef MUTATION_RINGS_AFTER_LOOK
      done = READY;
      seen = rings;
#else
      seen = rings;
      done = READY;
#endif
#ifdef MUTATION_ANNOUNCE_AFTER_LOOK
      announce();
#endif
      if :: !done -> futex_wait() :: else fi;
      unannounce();
      done = done || READY;
      seen = 0
    od;
#ifdef ANY
    atomic { if :: NEWS(0) -> source = 0 :: NEWS(1) -> source = 1 fi; heard[source] = true };
#endif
    assert(data[source] == round);  // the data written before publishing
    i++
  :: atomic { i == WAKERS ->
       i = 0;
#ifdef ANY
       heard[0] = false;
       heard[1] = false;
#endif
       finished[thread - WAKERS] = round;
       round = (round + 1) % ROUNDS
     }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. WAKERS - 1) { run Waker(i) }
    for (i : WAKERS .. WAKERS + WAITERS - 1) { run Waiter(i) }
#ifdef TSO
    for (i : 0 .. WAKERS + WAITERS - 1) { run Drain(i) }
#endif
  }
}
