/* SPDX-License-Identifier: Apache-2.0 */
// Memory that says by itself whether data is there: one_shot() and two_shot() of src/kernel/cuda/self_timed.cuh over
// src/kernel/cuda/mailbox.cuh. device.pml has the rest: what calls there are, and when stores land. Word i (two-shot: of
// each piece) is thread i % threads's.
//
// A rank's mailboxes of one parity are 2 * N * PIECE words: one-shot (kind 0) cuts them into a slot per source, two-shot
// (kind 1) into two phases of a slot per rank. So from call to call a word is another sender's.
//
// A receiver puts EMPTY back where it has taken something, which is a store like others: on its way until its kernel ends.
// What a thread issues in one step here, it issues one after the other: what the stores do apart, they do on their way.
//
// Properties: data lands only where it is EMPTY, and nothing is issued to a word that something else is on its way to;
// what is taken is of the call, the sender, the phase and the word; nobody waits for ever (an invalid end state).
//
// MUTATION_*: one deviation each, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef PIECE
#define PIECE 1  // words of a piece of the longest two-shot
#endif
#ifndef ONE_SHOT_WORDS
#define ONE_SHOT_WORDS (2 * PIECE)  // of the longest one-shot
#endif
#define KINDS 2
#define MOST_WORDS(k) ((k) == ONE_SHOT -> ONE_SHOT_WORDS : PIECE)
#define EPOCHS 4

#define REGION (2 * N * PIECE)
#define CELLS (N * 2 * REGION)
#define ONE_SHOT 0
#define TWO_SHOT 1

#define EMPTY 253
#define LAND(at) assert(cell[at] == EMPTY || flight[at] == EMPTY)

#include "device.pml"

#define SELF (me * WORKERS + id)
#define EPOCH now[SELF]

#ifdef MUTATION_ONE_PHASE
#define PHASE(f) 0
#else
#define PHASE(f) (f)
#endif
// Word i of what src sends dst in phase f.
#define SLOT(src, f) ((kind[SELF] == ONE_SHOT) * (src) * 2 * PIECE + \
                      (kind[SELF] == TWO_SHOT) * (PHASE(f) * N + (src)) * PIECE)
#define AT(src, dst, f, i) (((dst) * 2 + PARITY(EPOCH)) * REGION + SLOT(src, f) + (i))
#define DATA(src, f, i) ((((f) * N + (src)) * 2 * PIECE + (i)) * EPOCHS + EPOCH)

inline send(f) {
  r = 0;
  do
  :: r < N && r != me -> issue(me * WORKERS, AT(me, r, f, i), DATA(me, f, i)); r++
  :: r < N && r == me -> r++
  :: else -> break
  od;
  r = 0
}

#define THERE(src, f) (src == me || cell[AT(src, me, f, i)] != EMPTY)
#if N == 2
#define ALL_THERE(f) (THERE(0, f) && THERE(1, f))
#elif defined(MUTATION_WAIT_FOR_ONE)
#define ALL_THERE(f) ((me != 0 && THERE(0, f)) || (me != 1 && THERE(1, f)) || (me != 2 && THERE(2, f)))
#else
#define ALL_THERE(f) (THERE(0, f) && THERE(1, f) && THERE(2, f))
#endif

// Once all have come: the look that finds them takes them. Word by word it could find nothing else: nothing lands on what
// is not EMPTY.
inline take(f) {
  r = 0;
  do
  :: r < N && r != me ->
#ifdef MUTATION_WAIT_FOR_ONE
    if
    :: THERE(r, f) ->
#endif
    assert(cell[AT(r, me, f, i)] == DATA(r, f, i));
#ifndef MUTATION_NO_CLEARING
    issue(me * WORKERS, AT(r, me, f, i), EMPTY);
#endif
#ifdef MUTATION_WAIT_FOR_ONE
    :: else
    fi;
#endif
    r++
  :: r < N && r == me -> r++
  :: else -> break
  od;
  r = 0
}

proctype Thread(byte me; byte id) {
  byte i;
  byte r;
  bit f;

end:
  do
  :: d_step {
       stride[SELF] != 0 ->
       i = id;
       do
       :: i < words[SELF] -> send(0); i = i + stride[SELF]
       :: else -> break
       od;
       i = id
     };
     do
     :: d_step {
          i < words[SELF] && ALL_THERE(f) ->
          take(f);
          if
          :: kind[SELF] == TWO_SHOT && f == 0 -> send(1)  // the sums
          :: else
          fi;
          i = i + stride[SELF]
        }
     :: atomic { i >= words[SELF] && kind[SELF] == TWO_SHOT && f == 0 -> f = 1; i = id }
     :: atomic {
          i >= words[SELF] && (kind[SELF] == ONE_SHOT || f == 1) ->
          i = 0;
          f = 0;
          finished(me, SELF);
          break
        }
     od
  od
}

init {
  byte i;
  byte j;
  atomic {
    start_streams();
    for (i : 0 .. CELLS - 1) {
      cell[i] = EMPTY;
      run Way(i)
    }
    for (i : 0 .. N - 1) {
      for (j : 0 .. WORKERS - 1) { run Thread(i, j) }
    }
  }
}
