// Flags beside the data: src/kernel/cuda/two_shot.cuh. device.pml has the rest: what calls there are, and when stores land.
// The workers are blocks: each has a part of every piece, as even as the geometry of the call lets it be. Blocks of one
// rank never wait for one another; what the threads of a block do, its barriers make one.
//
// A block raises a flag, which is a release, only when all it has stored has landed.
//
// Properties: what a block reads once it has seen its peers' flags is of its epoch (what was read is OLD); no store lands
// on what is still to be read, and none is issued to a word that another one is on its way to; nobody waits for ever.
//
// MUTATION_*: one deviation each, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef WORDS
#define WORDS 2  // of a piece
#endif
#define KINDS 1
#define MOST_WORDS(k) WORDS
#define EPOCHS 4

#ifdef MUTATION_ONE_PHASE
#define PHASE(f) 0
#else
#define PHASE(f) (f)
#endif

// Word i of the slot of parity p and phase f that src has on dst.
#define AT(src, dst, p, f, i) (((((src) * N + (dst)) * 2 + (p)) * 2 + (f)) * WORDS + (i))
#define CELLS (N * N * 2 * 2 * WORDS)
bool unread[CELLS];
#define LAND(at)                              \
  assert(!unread[at]); /* still to be read */ \
  unread[at] = true

#include "device.pml"

// Flag of phase f that block b of src has on dst.
#define FLAG(src, dst, f, b) flags[(((src) * N + (dst)) * 2 + (f)) * WORKERS + (b)]
byte flags[N * N * 2 * WORKERS];

#define SELF (me * WORKERS + id)
#define EPOCH now[SELF]

// This block's part of its slots at every peer, and of theirs here.
inline send(f) {
  i = begin;
  do
  :: i < stop ->
    for (r : 0 .. N - 1) {
      if
      :: r != me -> issue(SELF, AT(me, r, PARITY(EPOCH), PHASE(f), i), EPOCH)
      :: else
      fi
    }
    i++
  :: else -> break
  od;
  i = 0;
  r = 0
}
inline receive(f) {
  i = begin;
  do
  :: i < stop ->
    for (r : 0 .. N - 1) {
      if
      :: r != me ->
        assert(cell[AT(r, me, PARITY(EPOCH), PHASE(f), i)] == EPOCH);
        unread[AT(r, me, PARITY(EPOCH), PHASE(f), i)] = false;
        cell[AT(r, me, PARITY(EPOCH), PHASE(f), i)] = OLD
      :: else
      fi
    }
    i++
  :: else -> break
  od;
  i = 0;
  r = 0
}

// Flags only rise, so one that was seen is OLD. (None is ever further: a block hears from its peers in each phase.)
#define RAISED(src, f) (src == me || FLAG(src, me, f, id) == EPOCH)
#if N == 2
#define ALL_RAISED(f) (RAISED(0, f) && RAISED(1, f))
#elif defined(MUTATION_WAIT_FOR_ONE)
#define ALL_RAISED(f) ((me != 0 && RAISED(0, f)) || (me != 1 && RAISED(1, f)) || (me != 2 && RAISED(2, f)))
#else
#define ALL_RAISED(f) (RAISED(0, f) && RAISED(1, f) && RAISED(2, f))
#endif
#ifdef MUTATION_RELAXED_FLAG
#define PERFORMED true
#else
#define PERFORMED (flying[SELF] == 0)
#endif

inline exchange(f) {
  d_step {
    PERFORMED ->
    for (r : 0 .. N - 1) { FLAG(me, r, f, id) = EPOCH }
    r = 0
  }
  d_step {
    ALL_RAISED(f) ->
    for (r : 0 .. N - 1) { FLAG(r, me, f, id) = OLD }
    r = 0
  }
}

proctype Block(byte me; byte id) {
  byte begin;  // this block's part of every piece
  byte stop;
  byte i;
  byte r;

end:
  do
  :: d_step {
       stride[SELF] != 0 ->
       i = (words[SELF] + stride[SELF] - 1) / stride[SELF];
       begin = i * id;
       stop = (begin + i < words[SELF] -> begin + i : words[SELF]);
       send(0)  // scatter
     };
     exchange(0);
     // reduce: reads from, and sends to, everyone
     d_step { receive(0) };
     d_step { send(1) };
     exchange(1);
     d_step {
       receive(1);  // gather
       begin = 0;
       stop = 0;
       finished(me, SELF)
     }
  od
}

init {
  byte i;
  byte j;
  byte k;
  atomic {
    start_streams();
    for (i : 0 .. CELLS - 1) { cell[i] = OLD }
    for (i : 0 .. N * N * 2 * WORKERS - 1) { flags[i] = OLD }
    for (i : 0 .. N - 1) {
      for (j : 0 .. WORKERS - 1) { run Block(i, j) }
      for (j : 0 .. N - 1) {
        if
        :: i != j -> for (k : AT(i, j, 0, 0, 0) .. AT(i, j, 1, 1, WORDS - 1)) { run Way(k) }
        :: else
        fi
      }
    }
  }
}
