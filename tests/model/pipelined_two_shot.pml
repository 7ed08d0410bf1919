/* SPDX-License-Identifier: Apache-2.0 */
// The pipelined two-shot all-reduce: src/backend/cuda/algorithms/pipelined_two_shot. The model has one block
// of every rank, since a block never waits for other blocks of its rank. The warps of the block are
// processes, by role. A store is in flight until it is performed: at any later time, and in any order with
// stores to other words, even adjacent ones. Only a signaller's release waits for stores, namely those of the
// warps it has acquired from.
//
// Chunks are counted without end, and launches are not modeled. Launches only remove possible interleavings:
// the first kPipelineDepth chunks of a launch need not wait for gatherers, because the previous launch has
// ended.
//
// Properties: data that a warp reads after it has seen its peers' flags belongs to its chunk; no store
// overwrites data that is still to be read; no store is issued to a word that has another store in flight; no
// process waits for ever.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef RING
#define RING 2
#endif
// Number of words of a chunk in every slot, and of the warps that share them.
#ifndef WORDS
#define WORDS 1
#endif
#ifndef SENDERS
#define SENDERS 1
#endif
#ifndef REDUCERS
#define REDUCERS 1
#endif
#ifndef GATHERERS
#define GATHERERS 1
#endif
#ifndef SIGNALLERS
#define SIGNALLERS 1
#endif

// Chunks are counted modulo LAPS. It is a multiple of RING and of SIGNALLERS, and more than twice the largest
// distance between any two warps of the group.
#define LAPS 8
#define NEXT(g) (((g) + 1) % LAPS)
#define REACHED(count, g) (((count) + LAPS - (g)) % LAPS < LAPS / 2)

#define NONE 255

// Word i of slot s in phase f that src owns on dst.
#define AT(src, dst, f, s, i) (((((src) * N + (dst)) * 2 + (f)) * RING + (s)) * WORDS + (i))
#define CELLS (N * N * 2 * RING * WORDS)
byte cell[CELLS];    // the chunk that this data belongs to
byte flight[CELLS];  // the store in flight to this word
bool unread[CELLS];

// Flag of phase f and slot s that src owns on dst: the number of the next chunk. (The program's numbers only
// increase.)
#ifdef MUTATION_ONE_FLAG
#define FLAG(src, dst, f, s) flags[(((src) * N + (dst)) * 2 + (f)) * RING]
#define RAISED(flag, g) REACHED(flag, NEXT(g))
#else
#define FLAG(src, dst, f, s) flags[(((src) * N + (dst)) * 2 + (f)) * RING + (s)]
#define RAISED(flag, g) ((flag) == NEXT(g))
#endif
byte flags[N * N * 2 * RING];

// Number of chunks that each warp of a rank has completed.
byte sent[N * SENDERS];
byte reduced[N * REDUCERS];
byte gathered[N * GATHERERS];
#ifdef MUTATION_SUMMED_PROGRESS
// As if the warps summed their counts, so that fast warps make up for slow ones. (Two senders.)
#define ALL_SENT(me, g) ((sent[(me) * 2] + LAPS - (g)) % LAPS + (sent[(me) * 2 + 1] + LAPS - (g)) % LAPS >= 2 && \
                         REACHED(sent[(me) * 2], g) && REACHED(sent[(me) * 2 + 1], g))
#elif SENDERS == 1
#define ALL_SENT(me, g) REACHED(sent[me], NEXT(g))
#else
#define ALL_SENT(me, g) (REACHED(sent[(me) * 2], NEXT(g)) && REACHED(sent[(me) * 2 + 1], NEXT(g)))
#endif
#if REDUCERS == 1
#define ALL_REDUCED(me, g) REACHED(reduced[me], NEXT(g))
#else
#define ALL_REDUCED(me, g) (REACHED(reduced[(me) * 2], NEXT(g)) && REACHED(reduced[(me) * 2 + 1], NEXT(g)))
#endif
#if GATHERERS == 1
#define ALL_GATHERED(me, g) REACHED(gathered[me], NEXT(g))
#else
#define ALL_GATHERED(me, g) (REACHED(gathered[(me) * 2], NEXT(g)) && REACHED(gathered[(me) * 2 + 1], NEXT(g)))
#endif

// Chunk g - RING has been gathered. Counts start at RING, as if RING chunks had been gathered before.
#if defined(MUTATION_NO_CREDIT)
#define MAY_SEND(me, g) true
#elif defined(MUTATION_CREDIT_OF_REDUCERS)
#define MAY_SEND(me, g) ALL_REDUCED(me, ((g) + LAPS - RING) % LAPS)
#else
#define MAY_SEND(me, g) ALL_GATHERED(me, ((g) + LAPS - RING) % LAPS)
#endif

// Performs the store in flight to one word of memory.
proctype Word(byte at) {
end:
  do
  :: d_step {
       flight[at] != NONE ->
       assert(!unread[at]); // still to be read
       unread[at] = true;
       cell[at] = flight[at];
       flight[at] = NONE
     }
  od
}

inline send(f, w, g) {
  for (r : 0 .. N - 1) {
    if
    :: r != me ->
      assert(flight[AT(me, r, f, g % RING, w)] == NONE); // two stores in flight to one location
      flight[AT(me, r, f, g % RING, w)] = g
    :: else
    fi
  }
}
inline receive(f, w, g) {
  for (r : 0 .. N - 1) {
    if
    :: r != me ->
      assert(cell[AT(r, me, f, g % RING, w)] == g);
      unread[AT(r, me, f, g % RING, w)] = false
    :: else
    fi
  }
}

#define CAME(src, f, g) (src == me || RAISED(FLAG(src, me, f, (g) % RING), g))
#if N == 2
#define ALL_CAME(f, g) (CAME(0, f, g) && CAME(1, f, g))
#elif defined(MUTATION_WAIT_FOR_ONE)
#define ALL_CAME(f, g) ((me != 0 && CAME(0, f, g)) || (me != 1 && CAME(1, f, g)) || (me != 2 && CAME(2, f, g)))
#else
#define ALL_CAME(f, g) (CAME(0, f, g) && CAME(1, f, g) && CAME(2, f, g))
#endif

proctype Sender(byte me; byte id) {
  byte g = RING;
  byte i;
  byte r;
  do
  :: d_step {
       MAY_SEND(me, g) ->
       i = id;
       do
       :: i < WORDS -> send(0, i, g); i = i + SENDERS
       :: else -> break
       od;
       g = NEXT(g);
       sent[me * SENDERS + id] = g;
       i = 0;
       r = 0
     }
  od
}

proctype Reducer(byte me; byte id) {
  byte g = RING;
  byte i;
  byte r;

  do
  :: ALL_CAME(0, g) ->
     i = id;
     do
     :: d_step { i < WORDS -> receive(0, i, g); send(1, i, g); i = i + REDUCERS; r = 0 }
     :: atomic {
          i >= WORDS ->
          g = NEXT(g);
          reduced[me * REDUCERS + id] = g;
          i = 0;
          break
        }
     od
  od
}

proctype Gatherer(byte me; byte id) {
  byte g = RING;
  byte i;
  byte r;
  do
  :: d_step {
       ALL_REDUCED(me, g) && ALL_CAME(1, g) ->
       i = id;
       do
       :: i < WORDS -> receive(1, i, g); i = i + GATHERERS
       :: else -> break
       od;
       g = NEXT(g);
       gathered[me * GATHERERS + id] = g;
       i = 0;
       r = 0
     }
  od
}

// A release completes when all stores of this chunk have been performed.
#ifdef MUTATION_RELAXED_FLAG
#define LANDED(r) true
#else
#define LANDED(r) (flight[AT(me, r, f, g % RING, 0)] == NONE && flight[AT(me, r, f, g % RING, WORDS - 1)] == NONE)
#endif
#if N == 2
#define ALL_LANDED (LANDED(0) && LANDED(1))
#else
#define ALL_LANDED (LANDED(0) && LANDED(1) && LANDED(2))
#endif

proctype Signaller(byte me; bit f; byte id) {
  byte g = RING + id;
  byte r;

  do
  :: (f == 0 && ALL_SENT(me, g)) || (f == 1 && ALL_REDUCED(me, g)) ->
     d_step {
       ALL_LANDED ->
       for (r : 0 .. N - 1) {
         if
         :: r != me -> FLAG(me, r, f, g % RING) = NEXT(g)
         :: else
         fi
       }
       r = 0;
       g = (g + SIGNALLERS) % LAPS
     }
  od
}

init {
  byte i;
  byte j;
  byte k;
  atomic {
    for (i : 0 .. CELLS - 1) { flight[i] = NONE }
    for (i : 0 .. N * SENDERS - 1) { sent[i] = RING }
    for (i : 0 .. N * REDUCERS - 1) { reduced[i] = RING }
    for (i : 0 .. N * GATHERERS - 1) { gathered[i] = RING }
    for (i : 0 .. N - 1) {
      for (j : 0 .. SENDERS - 1) { run Sender(i, j) }
      for (j : 0 .. REDUCERS - 1) { run Reducer(i, j) }
      for (j : 0 .. GATHERERS - 1) { run Gatherer(i, j) }
      for (j : 0 .. SIGNALLERS - 1) {
        run Signaller(i, 0, j);
        run Signaller(i, 1, j)
      }
      for (j : 0 .. N - 1) {
        if
        :: i != j -> for (k : AT(i, j, 0, 0, 0) .. AT(i, j, 1, RING - 1, WORDS - 1)) { run Word(k) }
        :: else
        fi
      }
    }
  }
}
