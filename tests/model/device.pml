/* SPDX-License-Identifier: Apache-2.0 */
// What the models of the GPU protocols have in common: memory that stores take their time to reach, and streams of calls
// (src/kernel/cuda/call.cuh).
//
// N ranks of WORKERS workers (threads or blocks, whatever never waits for another of its rank) perform an endless sequence
// of calls of one family. Every call is drawn anew, alike on all ranks: its kind, how many words it has, and how many
// workers share them. So messages shrink and grow, and a word is another worker's in the next call.
//
// A store is on its way until it lands: any time later, in any order with stores to other words, however near. Nothing
// waits for it but the end of its kernel: a rank's next call starts when all workers of the one before have ended and all
// its stores have landed. So does one that was set up early, since it does nothing before griddepcontrol.wait; and calls
// of other families in between only come later still.
//
// Who includes this has defined N, WORKERS, CELLS, EPOCHS (they are counted modulo that), KINDS, MOST_WORDS(kind),
// LAND(at): what is to hold, and to be done, when a store lands at `at`; and then says what a worker does with a call:
// words, stride, kind and epoch of its rank's one that has `stride` of it not 0, and at the end `finished`.

#define NONE 255
#define OLD 254

byte cell[CELLS];
byte flight[CELLS];            // what is on its way there
byte from[CELLS];              // and the worker that sent it
byte flying[N * WORKERS];      // stores of a worker on their way

// What the ranks were asked to call: the first to come draws. Nobody is two calls ahead, so two entries will do.
byte drawn_kind[2];
byte drawn_words[2];
byte drawn_workers[2];
byte entered[2];
bit turn[N];                   // the next one

byte epoch[N * KINDS];         // of the last call, if [me * KINDS]
byte running[N];               // workers

// What a worker has to do.
byte words[N * WORKERS];
byte stride[N * WORKERS];      // 0: nothing
byte kind[N * WORKERS];
byte now[N * WORKERS];         // the epoch

#ifdef MUTATION_ONE_PARITY
#define PARITY(e) 0
#else
#define PARITY(e) ((e) & 1)
#endif

// Between the memory and what is on its way to this word of it.
proctype Way(byte at) {
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
  assert(flight[at] == NONE);  // two on their way to one place
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
// A call that needs but the first worker starts while the other still works on the one before.
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

// The rank's stream: one call after the other.
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
