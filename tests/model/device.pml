/* SPDX-License-Identifier: Apache-2.0 */
// The common part of the models of the GPU protocols: memory with delayed stores, and streams of calls
// (src/backend/cuda/sync/call.cuh).
//
// N ranks of WORKERS workers perform an endless sequence of calls of one family. A worker is a thread or a
// block: a unit that never waits for another one of its rank. Every call is drawn anew, identically on all
// ranks: its kind, its number of words, and the number of workers that share them. So messages shrink and
// grow, and a word can belong to another worker in the next call.
//
// A store is in flight until it is performed ("lands"): at any later time, and in any order with stores to
// other words, even adjacent ones. Only the end of its kernel waits for it: a rank's next call starts when
// all workers of the previous call have ended and all its stores have been performed. This also holds for a
// kernel that was set up early, since it does nothing before griddepcontrol.wait. Calls of other families in
// between only delay the next call further.
//
// A model that includes this file first defines N, WORKERS, CELLS, EPOCHS (epochs are counted modulo EPOCHS),
// KINDS, MOST_WORDS(kind), and LAND(at), which checks and does what is needed when a store is performed at
// `at`. The model then defines the process of a worker. A worker starts when its `stride` is not 0, performs
// the call that its `words`, `stride`, `kind` and `now` describe, and ends with `finished`.

#define NONE 255
#define OLD 254

byte cell[CELLS];
byte flight[CELLS];            // the store in flight to the cell
byte from[CELLS];              // the worker that issued it
byte flying[N * WORKERS];      // number of a worker's stores in flight

// The calls that the ranks perform. The first rank to arrive draws one. No rank is two calls ahead, so two
// entries suffice.
byte drawn_kind[2];
byte drawn_words[2];
byte drawn_workers[2];
byte entered[2];
bit turn[N];                   // the entry of the next call

byte epoch[N * KINDS];         // of the last call, at [me * KINDS]
byte running[N];               // number of workers that run

// The task of a worker.
byte words[N * WORKERS];
byte stride[N * WORKERS];      // 0: no task
byte kind[N * WORKERS];
byte now[N * WORKERS];         // the epoch

#ifdef MUTATION_ONE_PARITY
#define PARITY(e) 0
#else
#define PARITY(e) ((e) & 1)
#endif

// Performs the store in flight to one word of memory.
proctype Word(byte at) {
end:
  do
  :: d_step {
       flight[at] != NONE ->
       LAND(at);
       cell[at] = flight[at];
       flight[at] = NONE;
       flying[from[at]] = flying[from[at]] - 1;
       from[at] = 0
     }
  od
}

inline issue(by, at, value) {
  assert(flight[at] == NONE);  // two stores in flight to one location
  flight[at] = value;
  from[at] = by;
  flying[by] = flying[by] + 1
}

inline finished(me, worker) {
  words[worker] = 0;
  stride[worker] = 0;
  kind[worker] = 0;
  now[worker] = 0;
  running[me] = running[me] - 1
}

#ifdef MUTATION_NO_FLUSH
#define FLUSHED true
#elif WORKERS == 1
#define FLUSHED (flying[me] == 0)
#else
#define FLUSHED (flying[me * 2] == 0 && flying[me * 2 + 1] == 0)
#endif

#ifdef MUTATION_NO_WAIT_FOR_PREVIOUS
// A call that needs only the first worker starts while the other one still works on the previous call.
#define ENDED (stride[me * 2] == 0 && \
               (running[me] == 0 || (entered[turn[me]] != 0 && drawn_workers[turn[me]] == 1)))
#else
#define ENDED (running[me] == 0)
#endif

#ifdef MUTATION_COUNTED_APART
#define COUNT (me * KINDS + drawn_kind[c])
#else
#define COUNT (me * KINDS)
#endif

// The rank's stream, which runs one call after the other.
proctype Stream(byte me) {
  byte i;
  byte j;
  bit c;

  do
  :: atomic {
       ENDED && FLUSHED ->
       c = turn[me];
       if
       :: entered[c] == 0 ->
         do
         :: i < KINDS - 1 -> i++
         :: break
         od;
         drawn_kind[c] = i;
         j = 1;
         do
         :: j < MOST_WORDS(drawn_kind[c]) -> j++
         :: break
         od;
         drawn_words[c] = j;
         j = 1;
         do
         :: j < WORKERS -> j++
         :: break
         od;
         drawn_workers[c] = j
       :: else
       fi;
       entered[c] = entered[c] + 1;
       if
       :: entered[c] == N ->
         entered[1 - c] = 0;
         drawn_kind[1 - c] = 0;
         drawn_words[1 - c] = 0;
         drawn_workers[1 - c] = 0
       :: else
       fi;
       epoch[COUNT] = (epoch[COUNT] + 1) % EPOCHS;
       i = 0;
       do
       :: i < drawn_workers[c] ->
         j = me * WORKERS + i;
         words[j] = drawn_words[c];
         stride[j] = drawn_workers[c];
         kind[j] = drawn_kind[c];
         now[j] = epoch[COUNT];
         i++
       :: else -> break
       od;
       running[me] = running[me] + drawn_workers[c];
       turn[me] = 1 - c;
       i = 0;
       j = 0;
       c = 0
     }
  od
}

inline start_streams() {
  for (i : 0 .. CELLS - 1) { flight[i] = NONE }
  for (i : 0 .. N - 1) { run Stream(i) }
}
