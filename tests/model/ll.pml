/* SPDX-License-Identifier: Apache-2.0 */
// LL packets, whose words carry a flag beside the data: one_shot() of push.cuh in
// src/backend/cuda/algorithms/push over include/onehop/device/wire/ll.cuh. device.pml models the sequence of
// calls and the delayed stores. Word i belongs to thread i % threads.
//
// A send issues all words of a thread at once. They diverge in flight, so this loses no interleaving.
//
// Receivers look only at flags. In the model a word also holds its whole epoch, and whether it is still to be
// read. Without SCRUB, flags are wide: a word that was read becomes OLD, which no flag equals. With
// SCRUB=period, flags are epochs modulo FLAGS, epochs are counted modulo twice FLAGS, and words that no
// message writes keep their old flags.
//
// Properties: data that a receiver takes belongs to its epoch; no store overwrites data that is still to be
// read; no store is issued to a word that has another store in flight; no process waits for ever (an invalid
// end state).
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef WORDS
#define WORDS 2  // words in a slot
#endif
#define KINDS 1
#define MOST_WORDS(k) WORDS

#ifdef SCRUB
#define FLAGS 8
#define EPOCHS (2 * FLAGS)
#define FLAG(e) ((e) % FLAGS)
#define SCRUB_DUE ((EPOCH % SCRUB) < 2)
#else
#define EPOCHS 4
#define FLAG(e) (e)
#endif

// Word i of the slot of parity p that src owns on dst.
#define AT(src, dst, p, i) ((((src) * N + (dst)) * 2 + (p)) * WORDS + (i))
#define CELLS (N * N * 2 * WORDS)
bool unread[CELLS];
bool wanted[CELLS];  // whether the store in flight carries data
#define LAND(at)                              \
  assert(!unread[at]); /* still to be read */ \
  unread[at] = wanted[at];                    \
  wanted[at] = false

#include "device.pml"

#define SELF (me * WORKERS + id)
#define EPOCH now[SELF]

// Sends the words from `first` up to but excluding `end`, `stride` apart, to every peer.
inline send(first, end, data) {
  i = first;
  do
  :: i < end ->
    r = 0;
    do
    :: r < N && r != me ->
      issue(me * WORKERS, AT(me, r, PARITY(EPOCH), i), EPOCH);
      wanted[AT(me, r, PARITY(EPOCH), i)] = data;
      r++
    :: r < N && r == me -> r++
    :: else -> break
    od;
    i = i + stride[SELF]
  :: else -> break
  od;
  i = 0;
  r = 0
}

#define THERE(src) (src == me || (cell[AT(src, me, PARITY(EPOCH), i)] != OLD && \
                                  FLAG(cell[AT(src, me, PARITY(EPOCH), i)]) == FLAG(EPOCH)))
#if N == 2
#define ALL_THERE (THERE(0) && THERE(1))
#elif defined(MUTATION_WAIT_FOR_ONE)
#define ALL_THERE ((me != 0 && THERE(0)) || (me != 1 && THERE(1)) || (me != 2 && THERE(2)))
#else
#define ALL_THERE (THERE(0) && THERE(1) && THERE(2))
#endif

// Takes the words of all peers in the step that finds them complete. Taking them one by one could only find
// more of them overwritten, and the assertion on unread words would catch that.
inline take() {
  r = 0;
  do
  :: r < N && r != me ->
#ifdef MUTATION_WAIT_FOR_ONE
    if
    :: THERE(r) ->
#endif
    assert(cell[AT(r, me, PARITY(EPOCH), i)] == EPOCH);  // an old word taken for a new one
    unread[AT(r, me, PARITY(EPOCH), i)] = false;
#ifndef SCRUB
    cell[AT(r, me, PARITY(EPOCH), i)] = OLD;
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

end:
  do
  :: d_step {
       stride[SELF] != 0 ->
       send(id, words[SELF], true);
#if defined(SCRUB) && !defined(MUTATION_NO_SCRUB)
       if :: SCRUB_DUE -> send(words[SELF] + id, WORDS, false) :: else fi;  // behind the message
#endif
       i = id
     };
     do
     :: d_step { i < words[SELF] && ALL_THERE -> take(); i = i + stride[SELF] }
     :: atomic { i >= words[SELF] -> i = 0; finished(me, SELF); break }
     od
  od
}

init {
  byte i;
  byte j;
  byte k;
  atomic {
    start_streams();
#ifndef SCRUB
    for (i : 0 .. CELLS - 1) { cell[i] = OLD }
#endif
    for (i : 0 .. N - 1) {
      for (j : 0 .. WORKERS - 1) { run Thread(i, j) }
      for (j : 0 .. N - 1) {
        if
        :: i != j -> for (k : AT(i, j, 0, 0) .. AT(i, j, 1, WORDS - 1)) { run Word(k) }
        :: else
        fi
      }
    }
  }
}
