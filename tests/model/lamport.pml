/* SPDX-License-Identifier: Apache-2.0 */
// Lamport buffers, where a sentinel value (zero on the wire) marks empty words: one_shot() and two_shot() of
// src/backend/cuda/algorithms/push/push.cuh over include/onehop/device/wire/lamport.cuh. device.pml models
// the sequence of calls and the delayed stores. Word i (two-shot: of each piece) belongs to thread i %
// threads.
//
// The buffers of a rank for one parity are 2 * N * PIECE words. One-shot (kind 0) divides them into a slot
// per source, two-shot (kind 1) into two phases of a slot per rank. So a word can belong to another sender in
// the next call.
//
// A receiver writes EMPTY back to words that it has taken. This store is delayed like others, at most until
// its kernel ends. The model issues several stores of a thread in one step. They diverge in flight, so this
// loses no interleaving.
//
// Properties: data is stored only to EMPTY words; no store is issued to a word that has another store in
// flight; data that is taken belongs to the call, the sender, the phase and the word; no process waits for
// ever (an invalid end state).
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef PIECE
#define PIECE 1  // words in a piece of the longest two-shot
#endif
#ifndef ONE_SHOT_WORDS
#define ONE_SHOT_WORDS (2 * PIECE)  // words in the longest one-shot
#endif
#define KINDS 2
#define MOST_WORDS(k) ((k) == ONE_SHOT -> ONE_SHOT_WORDS : PIECE)
#define EPOCHS 4

#define REGION (2 * N * PIECE)
#define CELLS (N * 2 * REGION)
#define ONE_SHOT 0
#define TWO_SHOT 1

#define EMPTY 253  // the data of the model includes zero, so another value stands for the sentinel
#define LAND(at) assert(cell[at] == EMPTY || flight[at] == EMPTY)

#include "device.pml"

#define SELF (me * WORKERS + id)
#define EPOCH now[SELF]

#ifdef MUTATION_ONE_PHASE
#define PHASE(f) 0
#else
#define PHASE(f) (f)
#endif
// Word i of the data that src sends to dst in phase f.
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

// Takes the words of all peers in the step that finds them complete. Taking them one by one would find the
// same, because no store is performed on a word that is not EMPTY.
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
      run Word(i)
    }
    for (i : 0 .. N - 1) {
      for (j : 0 .. WORKERS - 1) { run Thread(i, j) }
    }
  }
}
