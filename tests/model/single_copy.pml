/* SPDX-License-Identifier: Apache-2.0 */
// Data that ranks of one process read in each other's memory: SingleCopy::Reading and withdraw() of
// src/backend/host/peer_memory.h.
//
// N ranks read the data of all others again and again, a piece at a time. At any time between two pieces a rank
// may fail, for its own reasons or because it was refused. It withdraws its data, and its caller frees it.
//
// Properties: no rank reads data that was freed, and every rank that fails ends.
//
// Every rank has a store buffer, as on x86: a plain store enters it and reaches memory later, in order; a
// seq_cst store (an exchange there) waits until the buffer is empty. (No rank loads what it stores.)
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#define DEPTH 2  // capacity of a store buffer

#define READING 0
#define WITHDRAWN 1

bool reading[N];
bool withdrawn[N];
bool freed[N];

typedef Buffer {
  byte used;
  byte cell[DEPTH];
  bool value[DEPTH]
}
Buffer buffers[N];

#define MINE buffers[me]
#define DRAINED (MINE.used == 0)

inline store(where, what) {
  atomic {
    MINE.used < DEPTH ->
    MINE.cell[MINE.used] = where;
    MINE.value[MINE.used] = what;
    MINE.used = MINE.used + 1
  }
}

proctype Drain(byte me) {
end:
  do
  :: d_step {
       MINE.used > 0 ->
       if
       :: MINE.cell[0] == READING -> reading[me] = MINE.value[0]
       :: MINE.cell[0] == WITHDRAWN -> withdrawn[me] = MINE.value[0]
       fi;
       MINE.cell[0] = MINE.cell[1];
       MINE.value[0] = MINE.value[1];
       MINE.used = MINE.used - 1;
       MINE.cell[MINE.used] = 0;
       MINE.value[MINE.used] = false
     }
  od
}

inline mark() {
#ifdef MUTATION_NO_MARK
  skip
#elif defined(MUTATION_PLAIN_MARK)
  store(READING, true)
#else
  atomic { DRAINED -> reading[me] = true }
#endif
}

// Sets `refused`.
inline look() {
  r = 0;
  do
  :: r < N && r != me -> refused = refused || withdrawn[r]; r++
  :: r < N && r == me -> r++
  :: else -> break
  od;
  r = 0
}

inline read_all() {
  r = 0;
  do
  :: r < N -> assert(r == me || !freed[r]); r++
  :: else -> break
  od;
  r = 0
}

inline withdraw() {
#ifdef MUTATION_PLAIN_WITHDRAWAL
  store(WITHDRAWN, true)
#else
  atomic { DRAINED -> withdrawn[me] = true }
#endif
}

inline wait_for_readers() {
#ifdef MUTATION_NO_WAIT
  skip
#else
  r = 0;
  do
  :: r < N && r != me -> !reading[r]; r++
  :: r < N && r == me -> r++
  :: else -> break
  od;
  r = 0
#endif
}

proctype Rank(byte me) {
  byte r;
  bool refused;

  do
  ::
#ifdef MUTATION_LOOK_BEFORE_MARK
    look();
    mark();
#else
    mark();
    look();
#endif
    if
    :: refused ->
#ifndef MUTATION_FAILS_WHILE_MARKED
      store(READING, false);
#endif
      break
    :: else
    fi;
#ifdef MUTATION_UNMARK_EARLY
    store(READING, false);
    read_all()
#else
    read_all();
    store(READING, false)
#endif
  :: break  // fails
  od;
#ifdef MUTATION_WAIT_BEFORE_WITHDRAWAL
  wait_for_readers();
  withdraw();
#else
  withdraw();
  wait_for_readers();
#endif
  freed[me] = true
}

init {
  byte i;
  atomic {
    for (i : 0 .. N - 1) { run Rank(i); run Drain(i) }
  }
}
