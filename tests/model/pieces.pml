// Flags beside the data: src/kernel/cuda/two_shot.cuh.
//
// N ranks of BLOCKS blocks perform an endless sequence of calls. Every call is drawn anew, alike on all ranks: how many
// passes (MAX_PASSES), how many words a piece has in the last one (all but the last have WORDS), and how many blocks share
// them. Blocks of one rank never wait for one another; what the threads of a block do, its barriers make one.
//
// A store is on its way until it lands: any time later, in any order with stores to other words. A block raises a flag,
// which is a release, only when all it has stored has landed. A rank's next call starts when all blocks of the one before
// have ended and all its stores have landed. -DONE_SHAPE=last: all calls have MAX_PASSES passes, the last of so many words.
//
// Properties: what a block reads once it has seen its peers' flags is of its epoch (modulo 4; what was read is OLD); no
// store lands on what is still to be read; no two are on their way to one word; nobody waits for ever.
//
// MUTATION_*: one deviation each, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef WORDS
#define WORDS 3  // of a piece in a pass that is not the last
#endif
#ifndef MAX_PASSES
#define MAX_PASSES 2
#endif

#define EPOCHS 4
#define NEXT(e) (((e) + 1) & 3)
#define OLD 254
#define NONE 255

#ifdef MUTATION_ONE_PARITY
#define PARITY(e) 0
#else
#define PARITY(e) ((e) & 1)
#endif
#ifdef MUTATION_ONE_PHASE
#define PHASE(f) 0
#else
#define PHASE(f) (f)
#endif

// Word i of the slot of parity p and phase f that src has on dst.
#define AT(src, dst, p, f, i) (((((src) * N + (dst)) * 2 + (p)) * 2 + (f)) * WORDS + (i))
#define SLOTS (N * N * 2 * 2 * WORDS)
byte word[SLOTS];
bool unread[SLOTS];
byte flight[SLOTS];  // what is on its way there
byte from[SLOTS];    // and the block that sent it
byte flying[N * BLOCKS];

// Flag of phase f that block b of src has on dst.
#define FLAG(src, dst, f, b) flags[(((src) * N + (dst)) * 2 + (f)) * BLOCKS + (b)]
byte flags[N * N * 2 * BLOCKS];

// What the ranks were asked to call: the first to come draws. Nobody is two calls ahead, so two entries will do.
byte drawn_passes[2];
byte drawn_last[2];
byte drawn_blocks[2];
byte entered[2];

byte start[N];  // epoch before the running call's first
byte running[N];
bool go[N * BLOCKS];
bit call[N];  // the next one

proctype Way(byte src; byte at) {
end:
  do
  :: d_step {
       flight[at] != NONE ->
       assert(!unread[at]);  // lands on what is still to be read?
       word[at] = flight[at];
       unread[at] = true;
       flight[at] = NONE;
       flying[src * BLOCKS + from[at]] = flying[src * BLOCKS + from[at]] - 1;
       from[at] = 0
     }
  od
}

// This block's part of its slots at every peer, and of theirs here.
inline send(f) {
  for (i : 0 .. stop - 1) {
    for (r : 0 .. N - 1) {
      if
      :: r != me ->
        assert(flight[AT(me, r, PARITY(epoch), PHASE(f), slot + i)] == NONE);  // two on their way to one place
        flight[AT(me, r, PARITY(epoch), PHASE(f), slot + i)] = epoch;
        from[AT(me, r, PARITY(epoch), PHASE(f), slot + i)] = id;
        flying[me * BLOCKS + id] = flying[me * BLOCKS + id] + 1
      :: else
      fi
    }
  }
  i = 0;
  r = 0
}
inline receive(f) {
  for (i : 0 .. stop - 1) {
    for (r : 0 .. N - 1) {
      if
      :: r != me ->
        assert(word[AT(r, me, PARITY(epoch), PHASE(f), slot + i)] == epoch);
        unread[AT(r, me, PARITY(epoch), PHASE(f), slot + i)] = false;
        word[AT(r, me, PARITY(epoch), PHASE(f), slot + i)] = OLD
      :: else
      fi
    }
  }
  i = 0;
  r = 0
}

// Flags only rise, so one that was seen is OLD. (None is ever further: a block hears from its peers in each phase.)
#define RAISED(src, f) (src == me || FLAG(src, me, f, id) == epoch)
#if N == 2
#define ALL_RAISED(f) (RAISED(0, f) && RAISED(1, f))
#else
#define ALL_RAISED(f) (RAISED(0, f) && RAISED(1, f) && RAISED(2, f))
#endif
#ifdef MUTATION_RELAXED_FLAG  // also between two parts of one kernel: nothing waits but its end
#define PERFORMED true
#else
#define PERFORMED (flying[me * BLOCKS + id] == 0)
#endif

inline exchange(f) {
  d_step {
    PERFORMED ->
    r = 0;
    do
    :: r < N -> FLAG(me, r, f, id) = epoch; r++
    :: else -> break
    od;
    r = 0
  }
  d_step {
    ALL_RAISED(f) ->
    for (r : 0 .. N - 1) { FLAG(r, me, f, id) = OLD }
    r = 0
  }
}

proctype Block(byte me; byte id) {
  byte epoch;
  byte pass;
  byte begin;  // this block's part of every piece ...
  byte stop;
  byte slot;   // ... and where that lies in slots
  byte each;
  byte i;
  byte r;
  bit c;

end:
  do
  :: atomic { go[me * BLOCKS + id] -> go[me * BLOCKS + id] = false; c = 1 - call[me]; pass = 1; epoch = start[me] };
     do
     :: d_step {
          pass <= drawn_passes[c] ->
          epoch = NEXT(epoch);
          stop = (pass < drawn_passes[c] -> WORDS : drawn_last[c]);
          each = (stop + drawn_blocks[c] - 1) / drawn_blocks[c];
          begin = each * id;
          stop = (begin + each < stop -> begin + each : stop);
          stop = (begin < stop -> stop - begin : 0);  // from here on a number of words
#ifdef MUTATION_SLOTS_BY_PLACE
          slot = begin;
#else
          // The same in all passes of a call.
          each = (drawn_passes[c] > 1 -> WORDS : drawn_last[c]);
          slot = (each + drawn_blocks[c] - 1) / drawn_blocks[c] * id;
#endif
          each = 0;
          // scatter
          send(0)
        };
        exchange(0);
        // reduce: reads from, and sends to, everyone
        d_step { receive(0) };
        d_step { send(1) };
        exchange(1);
        // gather
        d_step {
          receive(1);
          begin = 0;
          stop = 0;
          slot = 0;
          pass++
        }
     :: atomic { pass > drawn_passes[c] -> pass = 0; c = 0; epoch = 0; running[me] = running[me] - 1; break }
     od
  od
}

#if BLOCKS == 1
#define FLUSHED (flying[me] == 0)
#else
#define FLUSHED (flying[me * BLOCKS] == 0 && flying[me * BLOCKS + 1] == 0)
#endif

// The rank's stream: one call after the other.
proctype Stream(byte me) {
  byte passes;
  byte last;
  byte blocks;
  byte i;
  bit c;

  do
  :: atomic {
       running[me] == 0 && FLUSHED ->
       c = call[me];
       if
       :: entered[c] == 0 ->
#ifdef ONE_SHAPE
         passes = MAX_PASSES;
         last = ONE_SHAPE;
         blocks = BLOCKS;
#else
         passes = 1;
         do
         :: passes < MAX_PASSES -> passes++
         :: break
         od;
         last = 1;
         do
         :: last < WORDS -> last++
         :: break
         od;
         blocks = 1;
         do
         :: blocks < BLOCKS -> blocks++
         :: break
         od;
#endif
         drawn_passes[c] = passes;
         drawn_last[c] = last;
         drawn_blocks[c] = blocks
       :: else
       fi;
       passes = 0;
       last = 0;
       blocks = 0;
       entered[c] = entered[c] + 1;
       if
       :: entered[c] == N ->
         entered[1 - c] = 0;
         drawn_last[1 - c] = 0;
         drawn_blocks[1 - c] = 0
       :: else
       fi;
       i = 0;
       do
       :: i < drawn_blocks[c] -> go[me * BLOCKS + i] = true; i++
       :: else -> break
       od;
       i = 0;
       running[me] = drawn_blocks[c];
       call[me] = 1 - c;
       c = 0
     };
     atomic {
       running[me] == 0 ->
       start[me] = (start[me] + drawn_passes[1 - call[me]]) % EPOCHS
     }
  od
}

init {
  byte i;
  byte j;
  byte k;
  atomic {
    for (i : 0 .. N * N * 2 * BLOCKS - 1) { flags[i] = OLD }
    for (i : 0 .. SLOTS - 1) {
      flight[i] = NONE;
      word[i] = OLD
    }
    for (i : 0 .. N - 1) {
      run Stream(i);
      for (j : 0 .. BLOCKS - 1) { run Block(i, j) }
      for (j : 0 .. N - 1) {
        if
        :: i != j -> for (k : AT(i, j, 0, 0, 0) .. AT(i, j, 1, 1, WORDS - 1)) { run Way(i, k) }
        :: else
        fi
      }
    }
  }
}
