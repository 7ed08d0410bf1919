/* SPDX-License-Identifier: Apache-2.0 */
// The step protocol of src/kernel/host/team.h under the collectives of src/kernel/host and src/collective: who writes and
// reads which slot between which publish and which wait.
//
// N ranks perform an endless sequence of calls. Every call is drawn anew: a barrier, or a one-shot or two-shot of one
// or two chunks (MAX_CHUNKS), two-shots with input and output each in staging or in symmetric memory, or data that is moved
// from symmetric memory. So all sizes follow all others, at all parities. The search is over every interleaving.
//
// Other collectives are among these. What stages inputs and reads them in the same step is a one-shot, whoever reads how
// much of which slot: broadcast, gather, scatter, all-gather, all-to-all, reduce-scatter; all_to_all_v's first chunk is
// what it tells of its blocks. That some ranks read less than here, nothing at all in the extreme, takes nothing from the
// others: every rank publishes and waits in every step. reduce is a one-shot or two-shot from which one rank collects.
//
// What holds a value holds the number of the step it was written for, modulo 4, or GARBAGE while it is being written. A
// reader checks at the start and at the end of reading: whatever is overwritten in between shows. A value two steps
// old becomes GARBAGE (retire()), so that numbers modulo 4 are never taken for one another.
//
// Abnormal ends, each by a -D: CRASH: a rank dies between any two statements. GIVE_UP: one wait passes its deadline (one, so that the
// others have only its report to end theirs). LEAVE:
// a rank leaves between two calls. Sockets tell the others: `heard` (a failure report), `dead` and `departed` (the end
// of a connection); a waiter sees them sooner or later, which doorbell.pml does not cover. Whoever waits and could
// wait for ever is an invalid end state.
//
// MUTATION_*: one deviation each, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef MAX_CHUNKS
#define MAX_CHUNKS 2
#endif
#ifndef KINDS
#define KINDS 127  // set of the kinds of call to draw from
#endif

#define GARBAGE 4
#define NEXT(s) (((s) + 1) & 3)
#define BEFORE(s) (((s) + 3) & 3)

// Kinds of call: bits of KINDS. Of a two-shot: where are the peers' input and output?
#define BARRIER 1
#define ONE_SHOT 2
#define TWO_SHOT 4        // input and output staged
#define TWO_SHOT_IN 8     // input symmetric
#define TWO_SHOT_OUT 16   // output symmetric
#define TWO_SHOT_BOTH 32  // both, and the same memory: in place
// Data taken from the peers' symmetric memory as it is (exchange, reduce_scatter).
#define MOVE 64
#define SYMMETRIC_IN (kind & (TWO_SHOT_IN | TWO_SHOT_BOTH))
#define SYMMETRIC_OUT (kind & (TWO_SHOT_OUT | TWO_SHOT_BOTH))
#define SYMMETRIC (kind & (TWO_SHOT_IN | TWO_SHOT_OUT | TWO_SHOT_BOTH | MOVE))

// Contents of symmetric memory, besides GARBAGE.
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

// What the ranks were asked to call: the first to come draws. Nobody is two calls ahead, so two entries will do.
byte drawn_kind[2];
byte drawn_chunks[2];
byte entered[2];

bool heard[N];  // that a rank failed
bool gave_up;
bool dead[N];
bool departed[N];
byte at[N];       // step most recently published
bool departed_before[N];  // call (modulo 2) before which a rank left

#define ARRIVED(r) (((segment[r].step[LINE(step)] + 4 - step) & 3) < 2)

// What ends the wait for r, besides its arrival: interrupt() of wait_on, which is Mesh::check_for.
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

// Team::publish
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

// Forgets own values of two steps ago, which nobody may want any more.
inline retire() {
  d_step {
    r = 0;
    if :: segment[me].inputs[step & 1] != step -> segment[me].inputs[step & 1] = GARBAGE :: else fi;
    if :: segment[me].results[step & 1] != step -> segment[me].results[step & 1] = GARBAGE :: else fi;
    if :: segment[me].call[step & 1] != step -> segment[me].call[step & 1] = GARBAGE :: else fi
  }
}

// Team::wait for every other rank, in order.
inline wait_for_all() {
#ifndef MUTATION_NO_WAIT
  do
  :: atomic { r < N && (r == me || ARRIVED(r)) -> r++ }
#ifdef MUTATION_WAIT_FOR_ONE
  :: atomic { r < N && r != me && ARRIVED(r) -> r = N }
#endif
  :: atomic { r < N && r != me && INTERRUPTED(r) ->
       // A peer that has left ends only waits for what it has not done.
       assert(heard[me] || SOMEONE_DEAD || departed_before[r] == call); goto broken }
#ifdef GIVE_UP
  :: atomic { r < N && r != me && !ARRIVED(r) && !gave_up -> gave_up = true; goto broken }
#endif
  :: r == N -> break
  od;
#endif
  retire()
}

// Team::call of every rank, right after the wait in the first step. What is read there may be relied on.
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

// One look at all that this rank combines in this step. Staging always holds what was published; symmetric memory
// is the caller's again as soon as its call failed, so there only a call that succeeds must have seen the truth.
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

// Copies the peers' parts of chunk c, combined in the step before, to this rank's output, which is `state` meanwhile.
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

// Takes what is this rank's from all peers at once. (Its own output is nobody else's business.)
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
      // The caller's doing: input is ready before the call.
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
      // A peer whose call failed may have changed its memory while this rank read it. It said so first.
      if
      :: SYMMETRIC && (heard[me] || SOMEONE_DEAD) -> goto broken
      :: else
      fi
#endif
    :: else
    fi;

    atomic {
      assert(!torn);  // a call that succeeds has combined what its peers passed
      if :: SYMMETRIC -> fill_memory(GARBAGE) :: else fi;  // the caller's again
      call = 1 - call;
      kind = 0; chunks = 0; chunk = 0
    }
  od;

broken:
  // Mesh::report_locked: first tell everyone, also of what another rank reported, then give memory back to the caller.
#ifdef MUTATION_NO_RELAY
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
// Kills one rank, some time or never.
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
