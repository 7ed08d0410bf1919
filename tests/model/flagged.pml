// Flags in the data: one_shot() of src/kernel/cuda/self_timed.cuh over src/kernel/cuda/flagged.cuh, and the epochs of
// src/kernel/cuda/call.cuh.
//
// N ranks of THREADS threads perform an endless sequence of calls. Every call is drawn anew, alike on all ranks: how many
// passes (MAX_PASSES), how many words the last one has (all but the last have WORDS), and how many threads share them:
// word i is thread i % threads's. So messages shrink and grow, and a word is another thread's in the next call.
// -DONE_SHAPE=last: all calls have MAX_PASSES passes, the last of so many words, on all threads.
//
// A store is on its way until it lands: any time later, in any order with stores to other words, however near. Nothing
// waits for it but the end of its kernel: a rank's next call starts when all threads of the one before have ended and
// all its stores have landed. (So does one that was launched early: it does nothing before griddepcontrol.wait.) A
// send issues a thread's words of a pass at once: what they do apart, they do on their way.
//
// Epochs are numbers modulo EPOCHS. Flags are all that receivers look at; here a word also has its whole epoch, and
// whether it was read. Without SCRUB flags are wide: a word that was read is OLD, and no flag is ever taken for it. With
// SCRUB=period flags are FLAGS (modulo), EPOCHS is twice that, and words that no message touches keep old ones.
//
// Properties: what a receiver takes is of its epoch; no store lands on what is still to be read, and no store is
// issued to a word that another one is on its way to; nobody waits for ever (an invalid end state).
//
// MUTATION_*: one deviation each, which the search must find. run_models.py has the list.

#ifndef N
#define N 2
#endif
#ifndef THREADS
#define THREADS 2
#endif
#ifndef WORDS
#define WORDS 2  // in a slot, and in a pass that is not the last
#endif
#ifndef MAX_PASSES
#define MAX_PASSES 2
#endif

#ifdef SCRUB
#ifndef FLAGS
#define FLAGS 8
#endif
#define EPOCHS (2 * FLAGS)
#define FLAG(e) ((e) % FLAGS)
#define SCRUB_DUE ((epoch % SCRUB) < 2)
#else
#define EPOCHS 4
#define FLAG(e) (e)
#endif
#define OLD 254
#define NONE 255

#ifdef MUTATION_ONE_PARITY
#define PARITY(e) 0
#else
#define PARITY(e) ((e) & 1)
#endif

// Word i of the slot of parity p that src has on dst.
#define AT(src, dst, p, i) ((((src) * N + (dst)) * 2 + (p)) * WORDS + (i))
byte word[N * N * 2 * WORDS];
bool unread[N * N * 2 * WORDS];
byte flight[N * N * 2 * WORDS];  // what is on its way there
bool wanted[N * N * 2 * WORDS];  // and whether that is data
byte flying[N];                  // stores of a rank on their way

// What the ranks were asked to call: the first to come draws. Nobody is two calls ahead, so two entries will do.
byte drawn_passes[2];
byte drawn_last[2];
byte drawn_threads[2];
byte entered[2];

byte start[N];    // epoch before the running call's first
byte running[N];  // threads
bool go[N * THREADS];
bit call[N];      // the next one

// Between the memory and what is on its way to this word of it.
proctype Way(byte src; byte at) {
end:
  do
  :: d_step {
       flight[at] != NONE ->
       assert(!unread[at]);  // lands on what is still to be read?
       word[at] = flight[at];
       unread[at] = wanted[at];
       flight[at] = NONE;
       wanted[at] = false;
       flying[src] = flying[src] - 1
     }
  od
}

inline issue(at, data) {
  assert(flight[at] == NONE);  // two on their way to one place
  flight[at] = epoch;
  wanted[at] = data;
  flying[me] = flying[me] + 1
}

// Words from `first` below `end`, `stride` apart, to every peer.
inline send(first, stride, end, data) {
  i = first;
  do
  :: i < end ->
    r = 0;
    do
    :: r < N && r != me -> issue(AT(me, r, PARITY(epoch), i), data); r++
    :: r < N && r == me -> r++
    :: else -> break
    od;
    i = i + stride
  :: else -> break
  od;
  i = 0;
  r = 0
}

#define THERE(src) (src == me || (word[AT(src, me, PARITY(epoch), i)] != OLD && \
                                  FLAG(word[AT(src, me, PARITY(epoch), i)]) == FLAG(epoch)))
#if N == 2
#define ALL_THERE (THERE(0) && THERE(1))
#define ONE_THERE ALL_THERE
#else
#define ALL_THERE (THERE(0) && THERE(1) && THERE(2))
#define ONE_THERE ((me != 0 && THERE(0)) || (me != 1 && THERE(1)) || (me != 2 && THERE(2)))
#endif

// Once all have come: the look that finds them takes them. Word by word it could only find more overwritten, and
// those are unread until now.
inline take() {
  r = 0;
  do
  :: r < N && r != me ->
#ifdef MUTATION_WAIT_FOR_ONE
    if
    :: THERE(r) ->
#endif
    assert(word[AT(r, me, PARITY(epoch), i)] == epoch);  // an old one taken for new
    unread[AT(r, me, PARITY(epoch), i)] = false;
#ifndef SCRUB
    word[AT(r, me, PARITY(epoch), i)] = OLD;
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

// What one thread does in a pass waits for no other thread of this rank.
proctype Thread(byte me; byte id) {
  byte epoch;
  byte pass;
  byte words;
  byte i;
  byte r;
  bit c;

end:
  do
  :: atomic { go[me * THREADS + id] -> go[me * THREADS + id] = false; c = 1 - call[me]; pass = 1; epoch = start[me] };
     do
     :: d_step {
          pass <= drawn_passes[c] ->
          epoch = (epoch + 1) % EPOCHS;
          words = (pass < drawn_passes[c] -> WORDS : drawn_last[c]);
#ifndef MUTATION_SILENT_THREADS
          // Every thread has something to say in every pass of a call of several.
          words = (pass > 1 && words < drawn_threads[c] -> drawn_threads[c] : words);
#endif
          send(id, drawn_threads[c], words, true);
#ifdef SCRUB
#ifndef MUTATION_NO_SCRUB
#ifdef MUTATION_SCRUB_OTHERS_WORDS
          if :: SCRUB_DUE -> send(words + id, drawn_threads[c], WORDS, false) :: else fi;
#else
          // Behind the message, and only the words that are this thread's.
          if
          :: SCRUB_DUE && words <= id -> send(id, drawn_threads[c], WORDS, false)
          :: SCRUB_DUE && words > id ->
            send(id + (words - id + drawn_threads[c] - 1) / drawn_threads[c] * drawn_threads[c], drawn_threads[c],
                 WORDS, false)
          :: else
          fi;
#endif
#endif
#endif
          i = id
        };
        do
#ifdef MUTATION_WAIT_FOR_ONE
        :: d_step { i < words && ONE_THERE -> take(); i = i + drawn_threads[c] }
#else
        :: d_step { i < words && ALL_THERE -> take(); i = i + drawn_threads[c] }
#endif
        :: atomic { i >= words -> i = 0; words = 0; pass++; break }
        od
     :: atomic { pass > drawn_passes[c] -> pass = 0; c = 0; epoch = 0; running[me] = running[me] - 1; break }
     od
  od
}

#ifdef MUTATION_NO_FLUSH
#define FLUSHED true
#else
#define FLUSHED (flying[me] == 0)
#endif

// The rank's stream: one call after the other.
proctype Stream(byte me) {
  byte passes;
  byte last;
  byte threads;
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
         threads = THREADS;
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
         threads = 1;
         do
         :: threads < THREADS -> threads++
         :: break
         od;
#endif
         drawn_passes[c] = passes;
         drawn_last[c] = last;
         drawn_threads[c] = threads
       :: else
       fi;
       passes = 0;
       last = 0;
       threads = 0;
       entered[c] = entered[c] + 1;
       if
       :: entered[c] == N ->
         entered[1 - c] = 0;
         drawn_last[1 - c] = 0;
         drawn_threads[1 - c] = 0
       :: else
       fi;
       i = 0;
       do
       :: i < drawn_threads[c] -> go[me * THREADS + i] = true; i++
       :: else -> break
       od;
       i = 0;
       running[me] = drawn_threads[c];
       call[me] = 1 - c;
       c = 0
     };
     // settle(): the next call counts on. Its threads have read the epoch when all are under way.
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
    for (i : 0 .. N * N * 2 * WORDS - 1) {
      flight[i] = NONE;
#ifndef SCRUB
      word[i] = OLD
#endif
    }
    for (i : 0 .. N - 1) {
      run Stream(i);
      for (j : 0 .. THREADS - 1) { run Thread(i, j) }
      for (j : 0 .. N - 1) {
        if
        :: i != j -> for (k : AT(i, j, 0, 0) .. AT(i, j, 1, WORDS - 1)) { run Way(i, k) }
        :: else
        fi
      }
    }
  }
}
