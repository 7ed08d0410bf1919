/* SPDX-License-Identifier: Apache-2.0 */
// All-reduce by copy engines that write into the peers' outputs: src/backend/cuda/algorithms/copy_engine.
// Every rank has a stream of copies and a stream of kernels, which are two processes here and are ordered by
// events. There is an endless sequence of calls. A copy is not atomic: between its start and its end the
// contents of the output are undefined. An output has an area for every rank's piece, in two halves. The data
// that a rank sends for a peer's piece waits in that peer's output, in the sender's area.
//
// Properties: data that is reduced, passed on and read belongs to this call and this half; no copy starts to
// overwrite data that is still to be reduced or read; no process waits for ever.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif

#define NONE 255
#define MOVING 254
#define SENT(call) ((call) * 2)      // one summand
#define SUM(call) ((call) * 2 + 1)
#define CALLS 4
#define LAPS 8  // barriers are counted modulo LAPS: no rank is 3 ahead
#define REACHED(count, wanted) (((count) + LAPS - (wanted)) % LAPS < 3)

#define AT(on, area, h) (((on) * N + (area)) * 2 + (h))
byte out[N * N * 2];
bool unread[N * N * 2];

// Within a call: whether copies may start; how many halves were scattered, and reduced by all ranks; whether
// all are sent.
bool entered[N];
byte scattered[N];
byte reduced[N];
bool gathered[N];

// Two kinds of barrier: in kernels that move no data, and in kernels that reduce.
#define FLAG(src, dst, f) flags[((src) * N + (dst)) * 2 + (f)]
byte flags[N * N * 2];

#if N == 2
#define ALL_AT(f, e) ((me == 0 || REACHED(FLAG(0, me, f), e)) && (me == 1 || REACHED(FLAG(1, me, f), e)))
#else
#define ALL_AT(f, e) ((me == 0 || REACHED(FLAG(0, me, f), e)) && (me == 1 || REACHED(FLAG(1, me, f), e)) && \
                      (me == 2 || REACHED(FLAG(2, me, f), e)))
#endif
inline barrier(f) {
  d_step {
    epoch[f] = (epoch[f] + 1) % LAPS;
    for (r : 0 .. N - 1) { FLAG(me, r, f) = epoch[f] }
    r = 0
  };
  ALL_AT(f, epoch[f])
}

// Copies to this rank's area of every peer's output.
inline copy(h, what) {
  q = 0;
  do
  :: q < N && q != me ->
     d_step {
       assert(!unread[AT(q, me, h)]); // still to be read
       out[AT(q, me, h)] = MOVING
     };
     d_step {
       out[AT(q, me, h)] = what;
       unread[AT(q, me, h)] = true;
       q++
     }
  :: q < N && q == me -> q++
  :: q == N -> break
  od;
  q = 0
}
inline gather(h) {
  assert(out[AT(me, me, h)] == SUM(call)); // the sum
  copy(h, SUM(call))
}

proctype Copies(byte me) {
  byte call;
  byte q;

  do
  :: entered[me] && !gathered[me] ->
     copy(0, SENT(call));
     scattered[me] = 1;
     copy(1, SENT(call));
     scattered[me] = 2;
     reduced[me] >= 1;
     gather(0);
     reduced[me] >= 2;
     gather(1);
     d_step { gathered[me] = true; call = (call + 1) % CALLS }
  od
}

inline reduce(h) {
#ifndef MUTATION_REDUCE_AT_ONCE
  scattered[me] > h;
  barrier(1);
#endif
  d_step {
    for (r : 0 .. N - 1) {
      if
      :: r != me ->
        assert(out[AT(me, r, h)] == SENT(call)); // the summand that was sent
        unread[AT(me, r, h)] = false
      :: else
      fi
    }
    r = 0;
    out[AT(me, me, h)] = SUM(call)
  };
#ifndef MUTATION_GATHER_AT_ONCE
  barrier(0);
#endif
  reduced[me] = h + 1
}

proctype Kernels(byte me) {
  byte call;
  byte r;
  byte h;
  byte epoch[2];

  do
  ::
#ifndef MUTATION_NO_FIRST_BARRIER
     barrier(0);
#endif
     entered[me] = true;
     reduce(0);
     reduce(1);
     gathered[me];
#ifndef MUTATION_NO_LAST_BARRIER
     barrier(0);
#endif
     d_step {
       for (r : 0 .. N - 1) {
         for (h : 0 .. 1) {
           assert(out[AT(me, r, h)] == SUM(call));
           unread[AT(me, r, h)] = false
         }
       }
       r = 0;
       h = 0;
       entered[me] = false;
       scattered[me] = 0;
       reduced[me] = 0;
       gathered[me] = false;
       call = (call + 1) % CALLS
     }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. N * N * 2 - 1) { out[i] = NONE }
    for (i : 0 .. N - 1) {
      run Copies(i);
      run Kernels(i)
    }
  }
}
