/* SPDX-License-Identifier: Apache-2.0 */
// Copy engines that write into the peers' outputs: src/backend/cuda/algorithms/copy_engine. Every rank has
// one stream, which is a process here and runs an endless sequence of calls: barrier, copy, barrier, and then
// the user reads the data. A copy is not atomic: between its start and its end the contents of the output are
// undefined. The window of symmetric memory in which an output lies changes from call to call.
//
// Properties: data that is read belongs to this call; no copy starts to overwrite data that is still to be
// read; the window that is compared with a peer's belongs to the same barrier; no process waits for ever.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif

#define NONE 255
#define MOVING 254
#define LAPS 8  // barriers are counted modulo LAPS: no rank is 3 ahead
#define REACHED(count, wanted) (((count) + LAPS - (wanted)) % LAPS < 3)

#ifdef MUTATION_ONE_WORD_FOR_WINDOWS
#define SIDE(e) 0
#else
#define SIDE(e) ((e) & 1)
#endif

#define OUT(src, dst) ((src) * N + (dst))
byte out[N * N];
bool unread[N * N];
#define FLAG(src, dst) flags[(src) * N + (dst)]
byte flags[N * N];
#define WINDOW(src, dst, e) windows[((src) * N + (dst)) * 2 + SIDE(e)]
byte windows[N * N * 2];

#ifdef MUTATION_WAIT_FOR_ONE
#define HERE(src) (me == (src) || (src) > 1 || REACHED(FLAG(src, me), epoch))
#else
#define HERE(src) (me == (src) || REACHED(FLAG(src, me), epoch))
#endif
#if N == 2
#define ALL_HERE (HERE(0) && HERE(1))
#else
#define ALL_HERE (HERE(0) && HERE(1) && HERE(2))
#endif

inline barrier() {
  d_step {
    epoch = (epoch + 1) % LAPS;
    for (r : 0 .. N - 1) { WINDOW(me, r, epoch) = call }
    r = 0
  };
  d_step {
    for (r : 0 .. N - 1) { FLAG(me, r) = epoch }
    r = 0
  };
  ALL_HERE;
  d_step {
    for (r : 0 .. N - 1) {
      if
      :: r != me -> assert(WINDOW(r, me, epoch) == call)  // the window of the same barrier
      :: else
      fi
    }
    r = 0
  }
}

inline copy() {
  r = 0;
  do
  :: r < N && r != me ->
     d_step {
       assert(!unread[OUT(me, r)]);  // still to be read
       out[OUT(me, r)] = MOVING
     };
     d_step {
       out[OUT(me, r)] = call;
       unread[OUT(me, r)] = true;
       r++
     }
  :: r < N && r == me -> r++
  :: r == N -> break
  od;
  r = 0
}

proctype Stream(byte me) {
  byte call;
  byte r;
  byte epoch;

  do
  ::
#ifndef MUTATION_NO_FIRST_BARRIER
     barrier();
#endif
     copy();
#ifndef MUTATION_NO_LAST_BARRIER
     barrier();
#endif
     d_step {
       for (r : 0 .. N - 1) {
         if
         :: r != me ->
           assert(out[OUT(r, me)] == call);
           unread[OUT(r, me)] = false
         :: else
         fi
       }
       r = 0;
       call = (call + 1) % 4
     }
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. N * N - 1) { out[i] = NONE }
    for (i : 0 .. N - 1) { run Stream(i) }
  }
}
