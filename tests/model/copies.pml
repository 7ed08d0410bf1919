/* SPDX-License-Identifier: Apache-2.0 */
// All-reduce by copy engines: src/kernel/cuda/copies.cuh. Every rank has a stream of copies and a stream of
// kernels, which are two processes here and are ordered by events. There is an endless sequence of calls,
// alternately of ROUNDS_EVEN and ROUNDS_ODD rounds. A copy is not atomic: between its start and its end the
// contents of the slot are undefined.
//
// Properties: data that a kernel reads belongs to its round and its call; no copy starts to overwrite data
// that is still to be read; no process waits for ever.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef ROUNDS_EVEN
#define ROUNDS_EVEN 2
#endif
#ifndef ROUNDS_ODD
#define ROUNDS_ODD 3
#endif
#define ROUNDS(call) ((call) % 2 == 0 -> ROUNDS_EVEN : ROUNDS_ODD)

#define NONE 255
#define MOVING 254
#define TAG(call, k) ((call) * 8 + (k))  // calls are counted modulo CALLS
#define CALLS 4
// Reductions, and collections of sums, are counted modulo their number in CALLS calls: no rank is 3 ahead.
#define LAPS (CALLS / 2 * (ROUNDS_EVEN + ROUNDS_ODD))
#define REACHED(count, wanted) (((count) + LAPS - (wanted)) % LAPS < 3)

#ifdef MUTATION_ONE_SLOT
#define PARITY(k) 0
#else
#define PARITY(k) ((k) & 1)
#endif
// Slot of phase f and parity p that src owns on dst.
#define AT(src, dst, f, p) (((((src) * N + (dst)) * 2) + (f)) * 2 + (p))
byte slot[N * N * 4];
bool unread[N * N * 4];

// Within a call: how many rounds were scattered, reduced, gathered; and whether the previous call has ended.
byte scattered[N];
byte added[N];
byte gathered[N];
bit begun[N];  // the current call of the stream of kernels, modulo 2

#define FLAG(src, dst, f) flags[((src) * N + (dst)) * 2 + (f)]
byte flags[N * N * 2];

inline copy(f, k) {
  q = 0;
  do
  :: q < N && q != me ->
     d_step {
       assert(!unread[AT(me, q, f, PARITY(k))]); // still to be read
       slot[AT(me, q, f, PARITY(k))] = MOVING
     };
     d_step {
       slot[AT(me, q, f, PARITY(k))] = TAG(call, k);
       unread[AT(me, q, f, PARITY(k))] = true;
       q++
     }
  :: q < N && q == me -> q++
  :: q == N -> break
  od;
  q = 0
}

#ifdef MUTATION_NO_CREDIT
#define MAY_SCATTER(k) true
#else
#define MAY_SCATTER(k) ((k) < 2 || added[me] >= (k))
#endif
#ifdef MUTATION_GATHER_AT_ONCE
#define MAY_GATHER(k) true
#else
#define MAY_GATHER(k) (added[me] > (k))
#endif

proctype Copies(byte me) {
  byte call;
  byte k;
  byte q;

  do
  :: begun[me] == (call & 1) && gathered[me] == 0 && scattered[me] == 0 ->
     copy(0, 0);
     scattered[me] = 1;
     k = 0;
     do
     :: k < ROUNDS(call) ->
        if
        :: k + 1 < ROUNDS(call) ->
           MAY_SCATTER(k + 1);
           copy(0, k + 1);
           scattered[me] = k + 2
        :: else
        fi;
        MAY_GATHER(k);
        copy(1, k);
        k++;
        if
        :: k < ROUNDS(call) -> gathered[me] = k
        :: else ->
           // The last round, and the change to the next call, in one step: the kernels then clear the counts.
           d_step { gathered[me] = k; k = 0; call = (call + 1) % CALLS };
           break
        fi
     od
  od
}

#if N == 2
#define ALL_AT(f, e) ((me == 0 || REACHED(FLAG(0, me, f), e)) && (me == 1 || REACHED(FLAG(1, me, f), e)))
#elif defined(MUTATION_WAIT_FOR_ONE)
#define ALL_AT(f, e) ((me != 0 && REACHED(FLAG(0, me, f), e)) || (me != 1 && REACHED(FLAG(1, me, f), e)) || \
                      (me != 2 && REACHED(FLAG(2, me, f), e)))
#else
#define ALL_AT(f, e) ((me == 0 || REACHED(FLAG(0, me, f), e)) && (me == 1 || REACHED(FLAG(1, me, f), e)) && \
                      (me == 2 || REACHED(FLAG(2, me, f), e)))
#endif
inline meet(f) {
  d_step {
    epoch[f] = (epoch[f] + 1) % LAPS;
    for (r : 0 .. N - 1) { FLAG(me, r, f) = epoch[f] }
    r = 0
  };
  ALL_AT(f, epoch[f])
}
inline take(f, k) {
  d_step {
    for (r : 0 .. N - 1) {
      if
      :: r != me ->
        assert(slot[AT(r, me, f, PARITY(k))] == TAG(call, k));
        unread[AT(r, me, f, PARITY(k))] = false
      :: else
      fi
    }
    r = 0
  }
}

proctype Kernels(byte me) {
  byte call;
  byte k;
  byte r;
  byte epoch[2];

  do
  :: k = 0;
     do
     :: k < ROUNDS(call) ->
        scattered[me] > k;
        meet(0);
        take(0, k);
        added[me] = k + 1;
        if
        :: k > 0 ->
           gathered[me] >= k;
           meet(1);
           take(1, k - 1)
        :: else
        fi;
        k++
     :: else -> break
     od;
     gathered[me] == k;
     meet(1);
     take(1, k - 1);
     d_step {
       scattered[me] = 0;
       added[me] = 0;
       gathered[me] = 0;
       k = 0;
       call = (call + 1) % CALLS;
       begun[me] = call & 1
     }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. N * N * 4 - 1) { slot[i] = NONE }
    for (i : 0 .. N - 1) {
      run Copies(i);
      run Kernels(i)
    }
  }
}
