/* SPDX-License-Identifier: Apache-2.0 */
// The step protocol of src/backend/host/step_barrier.h as used by the collectives of src/backend/host and
// src/collective: which rank writes and reads which slot between which publish and which wait.
//
// N ranks perform an endless sequence of calls. Every call is drawn anew: a barrier; a one-shot or two-shot
// of one or two chunks (MAX_CHUNKS), where input and output of a two-shot are each in staging or in symmetric
// memory; or data that is moved from symmetric memory. So all sizes follow all others, at all parities. The
// search covers every interleaving.
//
// The other collectives are covered by these. A collective that stages inputs and reads them in the same step
// is a one-shot, whichever rank reads how much of which slot: broadcast, gather, scatter, all-gather,
// all-to-all, reduce-scatter. In all_to_all_v the first chunk describes the blocks. Some ranks read less than
// in the model, possibly nothing. This does not weaken the result for the others, because every rank
// publishes and waits in every step. reduce is a one-shot or two-shot whose result only one rank collects.
//
// A location that holds a value holds the number of the step it was written for, modulo 4, or GARBAGE while
// it is being written. A reader checks it at the start and at the end of reading, which detects any
// overwriting in between. A value two steps old becomes GARBAGE (retire()), so that numbers modulo 4 are
// never mistaken for one another.
//
// Abnormal ends, each enabled by a -D. CRASH: a rank dies between any two statements. GIVE_UP: one wait
// passes its deadline (only one, so that only its report can end the waits of the others). LEAVE: a rank
// leaves between two calls. Sockets tell the others: `heard` (a failure report), `dead` and `departed` (the
// end of a connection). A waiter sees them sooner or later, which doorbell.pml does not cover. A rank that
// could wait for ever is an invalid end state.
//
// Each MUTATION_* is one deviation from the protocol, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef MAX_CHUNKS
#define MAX_CHUNKS 2
#endif
#ifndef KINDS
#define KINDS 127  // the set of kinds of call to draw from
#endif

#define GARBAGE 4
#define NEXT(s) (((s) + 1) & 3)
#define BEFORE(s) (((s) + 3) & 3)

// Kinds of call, as bits of KINDS. The kind of a two-shot says where the peers' input and output are.
#define BARRIER 1
#define ONE_SHOT 2
#define TWO_SHOT 4        // input and output staged
#define TWO_SHOT_IN 8     // input symmetric
#define TWO_SHOT_OUT 16   // output symmetric
#define TWO_SHOT_BOTH 32  // both symmetric, and the same memory: in place
// Data read directly from the peers' symmetric memory (exchange, reduce_scatter).
#define MOVE 64
#define SYMMETRIC_IN (kind & (TWO_SHOT_IN | TWO_SHOT_BOTH))
#define SYMMETRIC_OUT (kind & (TWO_SHOT_OUT | TWO_SHOT_BOTH))
#define SYMMETRIC (kind & (TWO_SHOT_IN | TWO_SHOT_OUT | TWO_SHOT_BOTH | MOVE))

// Contents of symmetric memory other than GARBAGE.
#define IN 0
#define OUT 1

#ifdef MUTATION_ONE_LINE
#define LINE(s) 0
#else
#define LINE(s) ((s) & 1)
#endif
#ifdef MUTATION_ONE_INPUT_SLOT
#define INPUT(r, s) segment[r].inputs[0]
#else
#define INPUT(r, s) segment[r].inputs[(s) & 1]
#endif
#ifdef MUTATION_RESULTS_IN_INPUT_SLOTS
#define RESULT(r, s) INPUT(r, s)
#elif defined(MUTATION_ONE_RESULT_SLOT)
#define RESULT(r, s) segment[r].results[0]
#else
#define RESULT(r, s) segment[r].results[(s) & 1]
#endif

// A rank's communicator segment and its part of a symmetric buffer.
typedef Segment {
  byte step[2];
  byte call[2];
  byte inputs[2];
  byte results[2];
  byte memory[MAX_CHUNKS * N]  // by chunk and part
}
Segment segment[N];
#define MEMORY(r, chunk, part) segment[r].memory[(chunk) * N + (part)]

// The calls that the ranks perform. The first rank to arrive draws one. No rank is two calls ahead, so two
// entries suffice.
byte drawn_kind[2];
byte drawn_chunks[2];
byte entered[2];

bool heard[N];  // told that a rank failed
bool gave_up;
bool dead[N];
bool departed[N];
byte at[N];       // the step most recently published
bool departed_before[N];  // call (modulo 2) before which a rank left

#define ARRIVED(r) (((segment[r].step[LINE(step)] + 4 - step) & 3) < 2)

// What ends the wait for r other than its arrival: interrupt() of wait_on, which is Mesh::check_for.
#ifdef MUTATION_DEAF
#define INTERRUPTED(r) false
#elif defined(MUTATION_DEAF_TO_GOODBYES)
#define INTERRUPTED(r) (heard[me] || SOMEONE_DEAD)
#elif defined(MUTATION_GOODBYE_BEFORE_ARRIVAL)
#define INTERRUPTED(r) (heard[me] || SOMEONE_DEAD || departed[r])
#elif defined(MUTATION_DEAF_TO_REPORTS)
#define INTERRUPTED(r) (SOMEONE_DEAD || (departed[r] && !ARRIVED(r)))
#else
#define INTERRUPTED(r) (heard[me] || SOMEONE_DEAD || (departed[r] && !ARRIVED(r)))
#endif
#if N == 2
#define SOMEONE_DEAD (dead[0] || dead[1])
#elif N == 3
#define SOMEONE_DEAD (dead[0] || dead[1] || dead[2])
#else
#define SOMEONE_DEAD (dead[0] || dead[1] || dead[2] || dead[3])
#endif

// Copies this rank's input into its slot for the next step.
inline stage() {
  INPUT(me, NEXT(step)) = GARBAGE;
  INPUT(me, NEXT(step)) = NEXT(step)
}

inline store_step() {
  d_step {
    segment[me].step[LINE(step)] = step;
    at[me] = step;
    r = 0;
    do
    :: r < N -> assert(((at[me] + 4 - at[r]) & 3) != 2); r++  // at most one step ahead or behind
    :: else -> break
    od;
    r = 0
  }
}

// StepBarrier::publish
inline publish(first) {
  step = NEXT(step);
#ifdef MUTATION_CALL_AFTER_STEP
  store_step();
#endif
  if
  :: first ->
    segment[me].call[LINE(step)] = GARBAGE;
    segment[me].call[LINE(step)] = step
  :: else
  fi;
#ifndef MUTATION_CALL_AFTER_STEP
  store_step();
#endif
}

// Discards the rank's own values of two steps ago, which no rank may need any more.
inline retire() {
  d_step {
    r = 0;
    if :: segment[me].inputs[step & 1] != step -> segment[me].inputs[step & 1] = GARBAGE :: else fi;
    if :: segment[me].results[step & 1] != step -> segment[me].results[step & 1] = GARBAGE :: else fi;
    if :: segment[me].call[step & 1] != step -> segment[me].call[step & 1] = GARBAGE :: else fi
  }
}

// StepBarrier::wait for every other rank, in order.
inline wait_for_all() {
#ifndef MUTATION_NO_WAIT
  do
  :: atomic { r < N && (r == me || ARRIVED(r)) -> r++ }
#ifdef MUTATION_WAIT_FOR_ONE
  :: atomic { r < N && r != me && ARRIVED(r) -> r = N }
#endif
  :: atomic { r < N && r != me && INTERRUPTED(r) ->
       // A peer that has left ends only waits for actions that it has not performed.
       assert(heard[me] || SOMEONE_DEAD || departed_before[r] == call); goto broken }
#ifdef GIVE_UP
  :: atomic { r < N && r != me && !ARRIVED(r) && !gave_up -> gave_up = true; goto broken }
#endif
  :: r == N -> break
  od;
#endif
  retire()
}

// Reads StepBarrier::call of every rank, right after the wait in the first step. The values must be reliable
// there.
inline check_calls() {
  d_step {
    r = 0;
    do
    :: r < N -> assert(segment[r].call[LINE(step)] == step); r++
    :: else -> break
    od;
    r = 0
  }
}
inline read_calls(first) {
  if :: first -> check_calls(); check_calls() :: else fi
}

// Checks once all data that this rank reduces in this step. Staging always holds what was published.
// Symmetric memory belongs to the caller again as soon as its call has failed, so there only a call that
// succeeds must have read valid data.
inline check_inputs() {
  r = 0;
  do
  :: r < N && r == me -> r++
  :: r < N && r != me && !SYMMETRIC_IN -> assert(INPUT(r, step) == step); r++
  :: r < N && r != me && SYMMETRIC_IN -> torn = torn || MEMORY(r, chunk, me) != IN; r++
  :: else -> break
  od;
  r = 0
}
inline combine_one_shot() {
  d_step { check_inputs() }
  d_step { check_inputs() }
}
inline combine_two_shot() {
  d_step {
    check_inputs();
    if
    :: SYMMETRIC_OUT -> MEMORY(me, chunk, me) = GARBAGE
    :: else -> RESULT(me, step) = GARBAGE
    fi
  }
  d_step {
    check_inputs();
    if
    :: SYMMETRIC_OUT -> MEMORY(me, chunk, me) = OUT
    :: else -> RESULT(me, step) = step
    fi
  }
}

// Copies the peers' parts of chunk c, reduced in the previous step, to this rank's output, which is `state`
// meanwhile.
inline copy_results(c, state) {
  r = 0;
  do
  :: r < N && r == me -> r++
  :: r < N && r != me && !SYMMETRIC_OUT -> assert(RESULT(r, BEFORE(step)) == BEFORE(step)); r++
  :: r < N && r != me && SYMMETRIC_OUT ->
    torn = torn || MEMORY(r, c, r) != OUT;
    MEMORY(me, c, r) = state;
    r++
  :: else -> break
  od;
  r = 0
}
inline collect(c) {
  d_step { copy_results(c, GARBAGE) }
  d_step { copy_results(c, OUT) }
}

// Reads this rank's data from all peers at once. (No other rank accesses its own output.)
inline look_at_peers() {
  r = 0;
  do
  :: r < N -> torn = torn || (r != me && MEMORY(r, 0, me) != IN); r++
  :: else -> break
  od;
  r = 0
}
inline move() {
  d_step { look_at_peers() }
  d_step { look_at_peers() }
}

inline fill_memory(value) {
  r = 0;
  do
  :: r < MAX_CHUNKS * N -> segment[me].memory[r] = value; r++
  :: else -> break
  od;
  r = 0
}

proctype Rank(byte me) {
  byte step;
  byte kind;
  byte chunks;
  byte chunk;
  byte r;
  bit call;
  bool torn;

  {
  do
  ::
#ifdef LEAVE
    if
    :: atomic { departed_before[me] = call; departed[me] = true; goto done }
    :: skip
    fi;
#endif
    atomic {
      if
      :: entered[call] == 0 ->
        if
        :: (KINDS & BARRIER) -> kind = BARRIER
        :: (KINDS & ONE_SHOT) -> kind = ONE_SHOT
        :: (KINDS & TWO_SHOT) -> kind = TWO_SHOT
        :: (KINDS & TWO_SHOT_IN) -> kind = TWO_SHOT_IN
        :: (KINDS & TWO_SHOT_OUT) -> kind = TWO_SHOT_OUT
        :: (KINDS & TWO_SHOT_BOTH) -> kind = TWO_SHOT_BOTH
        :: (KINDS & MOVE) -> kind = MOVE
        fi;
        chunks = 1;
        do
        :: kind != BARRIER && kind != MOVE && chunks < MAX_CHUNKS -> chunks++
        :: break
        od;
        drawn_kind[call] = kind;
        drawn_chunks[call] = chunks
      :: else ->
        kind = drawn_kind[call];
        chunks = drawn_chunks[call]
      fi;
      entered[call] = entered[call] + 1;
      if
      :: entered[call] == N -> entered[1 - call] = 0; drawn_kind[1 - call] = 0; drawn_chunks[1 - call] = 0
      :: else
      fi;
      chunk = 0;
      // The caller prepares the input before the call.
      if :: SYMMETRIC_IN || kind == MOVE -> fill_memory(IN) :: else fi
    }

    if
    :: kind == BARRIER || SYMMETRIC ->
      publish(true);
      wait_for_all();
      read_calls(true)
    :: else
    fi;

    if
    :: kind == ONE_SHOT ->
      do
      :: chunk < chunks ->
#ifdef MUTATION_PUBLISH_BEFORE_STAGING
        publish(chunk == 0);
        INPUT(me, step) = GARBAGE;
        INPUT(me, step) = step;
#else
        stage();
        publish(chunk == 0);
#endif
        wait_for_all();
        read_calls(chunk == 0);
        combine_one_shot();
        chunk++
      :: else -> break
      od
    :: kind == MOVE ->
      move();
#ifndef MUTATION_NO_LAST_STEP
      publish(false);
      wait_for_all();
#endif
#ifndef MUTATION_NO_LAST_LOOK
      if
      :: heard[me] || SOMEONE_DEAD -> goto broken  // see below
      :: else
      fi
#endif
    :: kind != ONE_SHOT && kind != BARRIER && kind != MOVE ->
      do
      :: chunk < chunks ->
        if :: !SYMMETRIC_IN -> stage() :: else fi;
#ifdef MUTATION_COLLECT_BEFORE_WAIT
        publish(chunk == 0 && !SYMMETRIC);
        if :: chunk > 0 -> collect(chunk - 1) :: else fi;
        wait_for_all();
        read_calls(chunk == 0 && !SYMMETRIC);
#else
        publish(chunk == 0 && !SYMMETRIC);
        wait_for_all();
        read_calls(chunk == 0 && !SYMMETRIC);
        if :: chunk > 0 -> collect(chunk - 1) :: else fi;
#endif
        combine_two_shot();
        chunk++
      :: else -> break
      od;
      publish(false);
      wait_for_all();
      collect(chunks - 1);
#ifndef MUTATION_NO_LAST_STEP
      if
      :: SYMMETRIC_OUT -> publish(false); wait_for_all()
      :: else
      fi;
#endif
#ifndef MUTATION_NO_LAST_LOOK
      // A peer whose call failed may have changed its memory while this rank read it. It reported the failure
      // before.
      if
      :: SYMMETRIC && (heard[me] || SOMEONE_DEAD) -> goto broken
      :: else
      fi
#endif
    :: else
    fi;

    atomic {
      assert(!torn);  // a call that succeeds has reduced its peers' inputs
      if :: SYMMETRIC -> fill_memory(GARBAGE) :: else fi;  // the memory belongs to the caller again
      call = 1 - call;
      kind = 0; chunks = 0; chunk = 0
    }
  od;

broken:
  // Mesh::report_locked: first tells all ranks, also of a failure that another rank reported, then returns
  // the memory.
#ifdef MUTATION_NO_FORWARD
  r = (heard[me] -> N : 0);
#elif defined(MUTATION_SILENT)
  r = N;
#else
  r = 0;
#endif
  do
  :: atomic { r < N -> heard[r] = true; r++ }
  :: r == N -> break
  od;
  atomic { fill_memory(GARBAGE) }
done:
  skip
  } unless { dead[me] }
}

#ifdef CRASH
// Kills one rank, at some time or never.
active proctype Killer() {
  end:
  if
  :: dead[0] = true
  :: dead[1] = true
#if N > 2
  :: dead[2] = true
#endif
#if N > 3
  :: dead[3] = true
#endif
  fi
}
#endif

init {
  byte i;
  byte j;
  atomic {
    for (i : 0 .. N - 1) {
      for (j : 0 .. 1) {
        segment[i].call[j] = GARBAGE;
        segment[i].inputs[j] = GARBAGE;
        segment[i].results[j] = GARBAGE
      }
      for (j : 0 .. MAX_CHUNKS * N - 1) { segment[i].memory[j] = GARBAGE }
    }
    for (i : 0 .. N - 1) { run Rank(i) }
  }
}
