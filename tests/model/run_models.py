#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searches every interleaving of the models of the shared-memory protocols with spin.

    run_models.py            the searches that take a few seconds at most
    run_models.py GROUP...   those of some groups: step_barrier, point_to_point, single_copy, doorbell, ll, lamport,
                             streaming, copy_engine, channels, mutations
    run_models.py --whole    also the large searches; ONEHOP_MODELS=whole in the environment does the same (for ctest; CI sets it)

The unmodified models must hold. Every mutation, a small deviation from the protocol, must be caught for the reason given
here, which shows that the models check the critical points. Exits with 0 if all runs end as expected, with 1 if not, and
with 77 if spin or a C compiler is absent.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SKIPPED = 77
TIME_LIMIT = 120  # seconds for one search: a guard, the longest takes a few
MEGABYTES = 2048  # for one search
MAX_DEPTH = 400_000

# Kinds of call in step_barrier.pml.
BARRIER, ONE_SHOT, TWO_SHOT, TWO_SHOT_IN, TWO_SHOT_OUT, TWO_SHOT_BOTH, MOVE = (1 << i for i in range(7))
SYMMETRIC = TWO_SHOT_IN | TWO_SHOT_OUT | TWO_SHOT_BOTH


class Run(NamedTuple):
    model: str
    says: str  # description of the run
    defines: dict
    caught_by: str = ""  # what spin must complain about; empty: the model must hold
    large: bool = False  # millions of states: left out unless asked for


def large(run):
    return run._replace(large=True)


def runs_of(model):
    """A function that makes this model's runs."""
    return lambda says, caught_by="", **defines: Run(model, says, defines, caught_by)


step_barrier = runs_of("step_barrier")
point_to_point = runs_of("point_to_point")
single_copy = runs_of("single_copy")
doorbell = runs_of("doorbell")
ll = runs_of("ll")
lamport = runs_of("lamport")
streaming = runs_of("streaming")
copy_engine = runs_of("copy_engine")
copy_engine_reduce = runs_of("copy_engine_reduce")
channels = runs_of("channels")

# Patterns of point_to_point.pml.
RING, STAR, ALL = 1, 2, 4

# Reductions of streaming.pml.
REDUCED = {"PROMPT_DATA": 1, "ONE_WORD": 1}
# Its algorithms.
ONE_WAYS = {"FIRST": 0, "LAST": 1}
ONE_WAYS_AND_ONE_SHOTS = {"FIRST": 0, "LAST": 2}
TWO_SHOTS = {"FIRST": 3, "DEPTH": 5}
REDUCES_OF_2 = {"FIRST": 4, "LAST": 5, "DEPTH": 5}
REDUCES_OF_3 = {"FIRST": 4, "LAST": 6, "DEPTH": 5}
ALL_OF_2 = {"FIRST": 2, "LAST": 5, "DEPTH": 5}
ALL_OF_3 = {"FIRST": 2, "LAST": 6, "DEPTH": 5}
ALL_AND_ONE_WAYS = {**ALL_OF_2, "FIRST": 0}

ABNORMAL = {"CRASH": 1, "GIVE_UP": 1, "LEAVE": 1}
STUCK = "invalid end state"
INPUT_SLOT = "segment[r].inputs"
RESULT_SLOT = "segment[r].results"
CALL = "segment[r].call"
PAIR_SLOT = ".out[me].slot["
AHEAD = "!=2"
TORN = "torn"
UNREAD = "!unread[at]"
UNREAD_SLOT = "!unread["
WRONG_OUTPUT = "out["
WRONG_WINDOW = "windows["
IN_FLIGHT = "flight["
WRONG_WORD = "cell["
NOT_EMPTY = "==253"
OWED = "now[r]==now[me]"
FREED = "freed[r]"
UNREAD_MESSAGE = "!packets[i].unread"
UNREAD_CHUNK = "!ring[i].unread"

GROUPS = {
    "step_barrier": [
        step_barrier("2 ranks, all calls; a passed deadline", N=2, GIVE_UP=1),
        large(step_barrier("2 ranks, all calls of one chunk; crash, a passed deadline, leaving", N=2, MAX_CHUNKS=1, **ABNORMAL)),
        step_barrier("3 ranks, one-shot and two-shot of one chunk", N=3, MAX_CHUNKS=1, KINDS=ONE_SHOT | TWO_SHOT),
        step_barrier("3 ranks, two-shot of one or two chunks", N=3, KINDS=TWO_SHOT),
        large(step_barrier("3 ranks, two-shots in symmetric memory", N=3, KINDS=SYMMETRIC)),
        large(step_barrier("3 ranks, two-shot from symmetric memory; crash, a passed deadline",
                    N=3, MAX_CHUNKS=1, KINDS=TWO_SHOT_IN, CRASH=1, GIVE_UP=1)),
        step_barrier("3 ranks, moving symmetric memory among one-shots", N=3, MAX_CHUNKS=1, KINDS=ONE_SHOT | MOVE),
        large(step_barrier("3 ranks, moving symmetric memory; crash, a passed deadline", N=3, MAX_CHUNKS=1, KINDS=MOVE, CRASH=1, GIVE_UP=1)),
        large(step_barrier("4 ranks, two-shot of one chunk", N=4, MAX_CHUNKS=1, KINDS=TWO_SHOT)),
    ],
    "point_to_point": [
        point_to_point("2 ranks, messages of up to 3 chunks both ways"),
        point_to_point("2 ranks, messages of up to 3 chunks both ways; crash, a passed deadline, leaving", **ABNORMAL),
        point_to_point("3 ranks, round the ring, messages of up to 3 chunks", N=3, PATTERNS=RING),
        point_to_point("2 ranks, messages shown both ways; a passed deadline, leaving", SHOWN=1, MAX_CHUNKS=2, GIVE_UP=1, LEAVE=1),
        large(point_to_point("2 ranks, messages shown both ways; crash, a passed deadline, leaving", SHOWN=1, MAX_CHUNKS=2, **ABNORMAL)),
        large(point_to_point("3 ranks, messages shown round the ring; a passed deadline", N=3, MAX_CHUNKS=1, PATTERNS=RING, SHOWN=1, GIVE_UP=1)),
        large(point_to_point("3 ranks, round the ring and to and from one; a passed deadline, leaving", N=3, MAX_CHUNKS=1, GIVE_UP=1, LEAVE=1)),
        large(point_to_point("3 ranks, round the ring and to and from one; crash", N=3, MAX_CHUNKS=1, CRASH=1)),
        large(point_to_point("3 ranks, from all to all; a passed deadline", N=3, MAX_CHUNKS=1, PATTERNS=ALL, GIVE_UP=1)),
    ],
    "single_copy": [
        single_copy("2 ranks"),
        single_copy("3 ranks", N=3),
    ],
    "doorbell": [
        doorbell("2 wakers, sequentially consistent"),
        doorbell("2 wakers, store buffers", TSO=1),
        doorbell("whichever of 2 wakers comes first, store buffers", ANY=1, TSO=1),
        doorbell("2 waiting threads, store buffers", WAITERS=2, WAKERS=1, TSO=1),
        # This holds without store buffers: only a model with store buffers shows that the exchange has to drain them.
        doorbell("a plain store publishes, sequentially consistent", MUTATION_PLAIN_PUBLISH=1),
    ],
    "ll": [
        ll("2 ranks of 2 threads", WORDS=3),
        ll("3 ranks", N=3, WORKERS=1),
        ll("flags of 3 bits, scrubbed", SCRUB=4, WORKERS=1),
        ll("flags of 3 bits, scrubbed by 2 threads", SCRUB=4),
        # Only scrubbing needs the end of a kernel to wait for stores: all other words that are sent are also received.
        ll("the next kernel does not wait for stores", MUTATION_NO_FLUSH=1),
    ],
    "lamport": [
        lamport("2 ranks of 2 threads, one-shot and two-shot"),
        lamport("2 ranks of 2 threads, pieces of up to 2 words", PIECE=2, ONE_SHOT_WORDS=2),
        large(lamport("3 ranks, one-shot and two-shot, of one word", N=3, WORKERS=1, ONE_SHOT_WORDS=1)),
    ],
    "streaming": [
        streaming("2 ranks, up to 6 chunks"),
        streaming("2 ranks, rings of 4 and 5, whole calls with more movers",
                           CHUNKS=7, DEPTHS=2, WHOLE_CHUNKS=2, WHOLE_WARPS=2, PROMPT_DATA=1),
        streaming("2 ranks, up to 8 chunks in a ring of 5, 2 for each credit", CHUNKS=8, DEPTH=5, PER_CREDIT=2, PROMPT_DATA=1),
        streaming("2 ranks, 2 warps of movers, up to 5 chunks", CHUNKS=5, REUSED_WARPS=2, **REDUCED),
        large(streaming("2 ranks, 2 warps of movers, up to 6 chunks", REUSED_WARPS=2, **REDUCED)),
        large(streaming("2 ranks, 2 warps of movers, only one has a part of the last chunk", REUSED_WARPS=2, PARTIAL=1, **REDUCED)),
        streaming("3 ranks, up to 6 chunks", N=3, **REDUCED),
        large(streaming("3 ranks, rings of 5 and 6, 2 chunks for each credit", N=3, CHUNKS=8, DEPTH=5, DEPTHS=2, PER_CREDIT=2, **REDUCED)),
        streaming("two-shot, 2 ranks, up to 9 chunks in a ring of 6, 2 for each credit",
                  **{**TWO_SHOTS, "DEPTH": 6}, CHUNKS=9, PER_CREDIT=2, **REDUCED),
        large(streaming("two-shot without lag, 2 ranks, 2 chunks for each credit", CHUNKS=7, LAG=0, PER_CREDIT=2, **TWO_SHOTS, **REDUCED)),
        large(streaming("two-shot, 2 ranks, 2 warps of movers", REUSED_WARPS=2, **TWO_SHOTS, **REDUCED)),
        large(streaming("two-shot, 2 ranks, 2 warps of movers, only one has a part of the last chunk",
                        REUSED_WARPS=2, PARTIAL=1, **TWO_SHOTS, **REDUCED)),
        streaming("two-shot, 3 ranks, up to 7 chunks", N=3, CHUNKS=7, **TWO_SHOTS, **REDUCED),
        large(streaming("reduce, 2 ranks, up to 6 chunks, all stores delayed", **REDUCES_OF_2)),
        streaming("reduce, 3 ranks, up to 6 chunks", N=3, **REDUCES_OF_3, **REDUCED),
        large(streaming("reduce, 3 ranks, up to 7 chunks", N=3, CHUNKS=7, **REDUCES_OF_3, **REDUCED)),
        streaming("all algorithms in turn, 2 ranks", **ALL_OF_2, **REDUCED),
        large(streaming("all algorithms in turn, 3 ranks", N=3, **ALL_OF_3, **REDUCED)),
        streaming("one-way and one-shot, 2 ranks, up to 6 chunks", **ONE_WAYS_AND_ONE_SHOTS),
        streaming("one-way and one-shot, 2 ranks, whole calls with more movers",
                  WHOLE_CHUNKS=2, WHOLE_WARPS=2, PROMPT_DATA=1, **ONE_WAYS_AND_ONE_SHOTS),
        large(streaming("one-way and one-shot, 2 ranks, rings of 4 and 5, whole calls with more movers",
                        CHUNKS=7, DEPTHS=2, WHOLE_CHUNKS=2, WHOLE_WARPS=2, PROMPT_DATA=1, **ONE_WAYS_AND_ONE_SHOTS)),
        large(streaming("one-way and one-shot, 2 ranks, 2 warps of movers, up to 5 chunks",
                        CHUNKS=5, REUSED_WARPS=2, **ONE_WAYS_AND_ONE_SHOTS, **REDUCED)),
        streaming("one-way, 2 ranks, 2 warps of movers, up to 4 chunks in a ring of 2", CHUNKS=4, DEPTH=2, REUSED_WARPS=2, **ONE_WAYS, **REDUCED),
        large(streaming("one-way, 2 ranks, 2 warps of movers, only one has a part of the last chunk",
                        CHUNKS=5, DEPTH=3, REUSED_WARPS=2, PARTIAL=1, **ONE_WAYS, **REDUCED)),
        streaming("all algorithms and one-way in turn, 2 ranks", **ALL_AND_ONE_WAYS, **REDUCED),
        large(streaming("all algorithms and one-way in turn, 2 ranks, 2 chunks for each credit",
                        **{**ALL_AND_ONE_WAYS, "DEPTH": 6}, CHUNKS=9, PER_CREDIT=2, **REDUCED)),
    ],
    "copy_engine": [
        copy_engine("2 ranks"),
        copy_engine("3 ranks", N=3),
        copy_engine_reduce("2 ranks"),
        large(copy_engine_reduce("3 ranks", N=3)),
    ],
    "channels": [
        channels("2 messages each way, of one packet or 3 chunks", MESSAGES=2),
        large(channels("3 messages each way, of one packet or one chunk", MESSAGES=3, CHUNKS=1)),
        large(channels("5 messages one way, of one packet or 3 chunks", MESSAGES=5, ONE_WAY=1)),
        large(channels("3 messages each way, of one unit of packed LL or one chunk", MESSAGES=3, CHUNKS=1, PACKED=1)),
        channels("5 messages one way, of one unit of packed LL or 3 chunks", MESSAGES=5, ONE_WAY=1, PACKED=1),
    ],
    "mutations": [
        step_barrier("one line instead of two", CALL, MUTATION_ONE_LINE=1),
        step_barrier("one input slot instead of two", INPUT_SLOT, MUTATION_ONE_INPUT_SLOT=1),
        step_barrier("one result slot instead of two", RESULT_SLOT, MUTATION_ONE_RESULT_SLOT=1),
        step_barrier("results in the input slots", INPUT_SLOT, MUTATION_RESULTS_IN_INPUT_SLOTS=1, KINDS=TWO_SHOT),
        step_barrier("no rank waits", CALL, MUTATION_NO_WAIT=1, KINDS=BARRIER),
        step_barrier("waiting for one peer is enough", AHEAD, MUTATION_WAIT_FOR_ONE=1, N=3, KINDS=ONE_SHOT),
        step_barrier("publishes before staging", INPUT_SLOT, MUTATION_PUBLISH_BEFORE_STAGING=1, KINDS=ONE_SHOT),
        step_barrier("writes the call after the step", CALL, MUTATION_CALL_AFTER_STEP=1),
        step_barrier("collects results before waiting", RESULT_SLOT, MUTATION_COLLECT_BEFORE_WAIT=1, KINDS=TWO_SHOT),
        step_barrier("symmetric output without the last step", TORN, MUTATION_NO_LAST_STEP=1, KINDS=TWO_SHOT_OUT),
        step_barrier("moving symmetric memory without the last step", TORN, MUTATION_NO_LAST_STEP=1, KINDS=MOVE),
        step_barrier("symmetric memory without the last check for failures", TORN,
              MUTATION_NO_LAST_LOOK=1, GIVE_UP=1, KINDS=TWO_SHOT_IN),
        step_barrier("moving symmetric memory without the last check for failures", TORN,
              MUTATION_NO_LAST_LOOK=1, GIVE_UP=1, KINDS=MOVE),
        step_barrier("a rank does not pass on the failure that another one reported", TORN, MUTATION_NO_FORWARD=1, N=3, GIVE_UP=1,
              MAX_CHUNKS=1, KINDS=TWO_SHOT_IN),
        step_barrier("a waiter never looks at its sockets", STUCK, MUTATION_DEAF=1, CRASH=1),
        step_barrier("a waiter does not read failure reports", STUCK, MUTATION_DEAF_TO_REPORTS=1, GIVE_UP=1),
        step_barrier("a failing rank does not report it", STUCK, MUTATION_SILENT=1, GIVE_UP=1),
        step_barrier("a waiter does not read goodbyes", STUCK, MUTATION_DEAF_TO_GOODBYES=1, LEAVE=1),
        step_barrier("a goodbye counts before what was done before it", "departed_before", MUTATION_GOODBYE_BEFORE_ARRIVAL=1, LEAVE=1),
        point_to_point("a credit too many", PAIR_SLOT, MUTATION_ONE_SLOT_TOO_MANY=1),
        point_to_point("a credit for what was taken the other way", PAIR_SLOT, MUTATION_CREDIT_OF_OTHER_DIRECTION=1),
        point_to_point("counts a chunk before its slot is filled", PAIR_SLOT, MUTATION_COUNT_BEFORE_FILLING=1),
        point_to_point("counts a chunk as taken before it is read", PAIR_SLOT, MUTATION_COUNT_BEFORE_READING=1),
        point_to_point("sends everything before it receives", STUCK, MUTATION_ONE_BY_ONE=1),
        point_to_point("a waiter never looks at its sockets", STUCK, MUTATION_DEAF=1, CRASH=1),
        point_to_point("a waiter does not read failure reports", STUCK, MUTATION_DEAF_TO_REPORTS=1, GIVE_UP=1),
        point_to_point("a failing rank does not report it", STUCK, MUTATION_SILENT=1, GIVE_UP=1),
        point_to_point("a waiter does not read goodbyes", STUCK, MUTATION_DEAF_TO_GOODBYES=1, LEAVE=1),
        point_to_point("a goodbye counts before what was sent before it", "departed_before", MUTATION_GOODBYE_BEFORE_CHUNKS=1, LEAVE=1),
        point_to_point("a shown message is over before it is read", "intact", MUTATION_NO_WAIT_FOR_READER=1, SHOWN=1),
        point_to_point("a shown message counts as taken before it is read", "intact", MUTATION_TAKEN_BEFORE_READING=1, SHOWN=1),
        point_to_point("a shown message without the last check for failures", "intact", MUTATION_NO_LAST_LOOK=1, SHOWN=1, GIVE_UP=1),
        point_to_point("gives shown data back before it reports the failure", "intact", MUTATION_GIVES_BACK_BEFORE_REPORT=1, SHOWN=1, GIVE_UP=1),
        single_copy("readers do not mark", FREED, MUTATION_NO_MARK=1),
        single_copy("a plain store marks", FREED, MUTATION_PLAIN_MARK=1),
        single_copy("looks before it marks", FREED, MUTATION_LOOK_BEFORE_MARK=1),
        single_copy("unmarks before it reads", FREED, MUTATION_UNMARK_EARLY=1),
        single_copy("a plain store withdraws", FREED, MUTATION_PLAIN_WITHDRAWAL=1),
        single_copy("frees without waiting", FREED, MUTATION_NO_WAIT=1),
        single_copy("waits before it withdraws", FREED, MUTATION_WAIT_BEFORE_WITHDRAWAL=1),
        single_copy("a rank that was refused stays marked", STUCK, MUTATION_FAILS_WHILE_MARKED=1),
        ll("one slot instead of two", UNREAD, MUTATION_ONE_PARITY=1),
        ll("waiting for one peer is enough", UNREAD, MUTATION_WAIT_FOR_ONE=1, N=3, WORKERS=1, WORDS=1),
        ll("a call starts while threads of the one before still run", UNREAD, MUTATION_NO_WAIT_FOR_PREVIOUS=1),
        ll("no scrubbing", WRONG_WORD, MUTATION_NO_SCRUB=1, SCRUB=4, WORKERS=1),
        ll("scrubs, and the next kernel does not wait for stores", IN_FLIGHT, MUTATION_NO_FLUSH=1,
                SCRUB=4, WORKERS=1),
        lamport("one region instead of two", IN_FLIGHT, MUTATION_ONE_PARITY=1),
        lamport("one phase instead of two", IN_FLIGHT, MUTATION_ONE_PHASE=1),
        lamport("waiting for one peer is enough", NOT_EMPTY, MUTATION_WAIT_FOR_ONE=1, N=3, WORKERS=1),
        lamport("a call starts while threads of the one before still run", IN_FLIGHT, MUTATION_NO_WAIT_FOR_PREVIOUS=1),
        lamport("the next kernel does not wait for stores", IN_FLIGHT, MUTATION_NO_FLUSH=1),
        lamport("never cleared", WRONG_WORD, MUTATION_NO_CLEARING=1),
        lamport("one-shots and two-shots are counted apart", IN_FLIGHT, MUTATION_COUNTED_APART=1),
        streaming("sends without credits", IN_FLIGHT, MUTATION_NO_CREDITS=1),
        streaming("credits overtake zeros", IN_FLIGHT, MUTATION_RELAXED_CREDIT=1),
        streaming("returns a credit when one of two warps has cleared its part", IN_FLIGHT, MUTATION_RETURNS_FOR_ONE_WARP=1, REUSED_WARPS=2),
        streaming("credits do not name their call", IN_FLIGHT, MUTATION_NO_EPOCH=1),
        streaming("a credit of one peer is enough", IN_FLIGHT, MUTATION_WAIT_FOR_ONE=1, N=3, CHUNKS=5),
        streaming("a credit of one peer is enough, in the reduced model", NOT_EMPTY, MUTATION_WAIT_FOR_ONE=1, N=3, **REDUCED),
        streaming("waits for credits a chunk too early", OWED, MUTATION_AWAITS_EARLY=1),
        streaming("a chunk too many for each credit", STUCK, PER_CREDIT=2),
        streaming("one half instead of two", IN_FLIGHT, MUTATION_ONE_PARITY=1),
        streaming("halves at a stride that depends on the call", NOT_EMPTY, MUTATION_STRIDE_OF_CALL=1, WHOLE_CHUNKS=2),
        streaming("the next kernel does not wait for stores", IN_FLIGHT, MUTATION_NO_FLUSH=1),
        streaming("a rank sends nothing in some calls", NOT_EMPTY, MUTATION_SILENT_RANK=1),
        streaming("two-shot sends without credits", NOT_EMPTY, MUTATION_NO_CREDITS=1, **TWO_SHOTS, **REDUCED),
        streaming("two-shot gives credits for cleared data", NOT_EMPTY, MUTATION_CREDIT_FOR_DATA=1, CHUNKS=7, **TWO_SHOTS, **REDUCED),
        streaming("two-shot gives credits for cleared results", NOT_EMPTY, MUTATION_CREDIT_FOR_RESULTS=1, CHUNKS=7, **TWO_SHOTS, **REDUCED),
        streaming("two-shot counts a chunk before it takes the results", NOT_EMPTY, MUTATION_COUNTS_BEFORE_RESULTS=1, CHUNKS=7, **TWO_SHOTS, **REDUCED),
        streaming("two-shot waits for credits a chunk too early", OWED, MUTATION_AWAITS_EARLY=1, **TWO_SHOTS, **REDUCED),
        streaming("two-shot, a chunk too many for each credit", STUCK, PER_CREDIT=2, CHUNKS=7, **TWO_SHOTS, **REDUCED),
        streaming("reduce sends without credits", NOT_EMPTY, MUTATION_NO_CREDITS=1, **REDUCES_OF_2, **REDUCED),
        streaming("reduce counts a chunk at once where there are no results", OWED, MUTATION_COUNTS_AT_ONCE=1, **REDUCES_OF_2, **REDUCED),
        streaming("reduce waits for credits a chunk too early", OWED, MUTATION_AWAITS_EARLY=1, **REDUCES_OF_2, **REDUCED),
        streaming("reduce, a chunk too many for each credit", STUCK, PER_CREDIT=2, CHUNKS=7, **REDUCES_OF_2, **REDUCED),
        streaming("one-way, the sender does not wait until the receiver's call has begun", IN_FLIGHT, MUTATION_NO_BEGIN=1, **ONE_WAYS),
        streaming("one-way, the same in the reduced model", NOT_EMPTY, MUTATION_NO_BEGIN=1, **ONE_WAYS, **REDUCED),
        streaming("one-way, the same with one direction only", IN_FLIGHT, MUTATION_NO_BEGIN=1, FIRST=0),
        streaming("one-way sends without credits", IN_FLIGHT, MUTATION_NO_CREDITS=1, **ONE_WAYS),
        streaming("one-way, credits overtake zeros", IN_FLIGHT, MUTATION_RELAXED_CREDIT=1, **ONE_WAYS),
        streaming("one-way, returns a credit when one of two warps has cleared its part", IN_FLIGHT,
                  MUTATION_RETURNS_FOR_ONE_WARP=1, REUSED_WARPS=2, **ONE_WAYS),
        streaming("one-way, credits do not name their call", IN_FLIGHT, MUTATION_NO_EPOCH=1, **ONE_WAYS),
        streaming("one-way, the sender waits for counts of its own before it waits for credits", STUCK, MUTATION_AWAITS_OWN_COUNTS=1, **ONE_WAYS),
        streaming("one-way, one half instead of two", IN_FLIGHT, MUTATION_ONE_PARITY=1, **ONE_WAYS),
        streaming("one-way, the next kernel does not wait for stores", IN_FLIGHT, MUTATION_NO_FLUSH=1, **ONE_WAYS),
        copy_engine("copies without a barrier before", UNREAD_SLOT, MUTATION_NO_FIRST_BARRIER=1),
        copy_engine("reads without a barrier after the copies", WRONG_OUTPUT, MUTATION_NO_LAST_BARRIER=1),
        copy_engine_reduce("scatters without a barrier before", UNREAD_SLOT, MUTATION_NO_FIRST_BARRIER=1),
        copy_engine_reduce("reduces data that has not arrived", WRONG_OUTPUT, MUTATION_REDUCE_AT_ONCE=1),
        copy_engine_reduce("gathers over data that is not reduced yet", UNREAD_SLOT, MUTATION_GATHER_AT_ONCE=1),
        copy_engine_reduce("reads without a barrier after the copies", WRONG_OUTPUT, MUTATION_NO_LAST_BARRIER=1),
        copy_engine("one word for the windows of all barriers", WRONG_WINDOW, MUTATION_ONE_WORD_FOR_WINDOWS=1),
        copy_engine("waiting for one peer is enough", WRONG_WINDOW, MUTATION_WAIT_FOR_ONE=1, N=3),
        channels("sends whether or not the slot has been read", UNREAD_MESSAGE, MUTATION_NO_TAKEN=1, ONE_WAY=1),
        channels("acknowledges a message before taking it", UNREAD_MESSAGE, MUTATION_TAKEN_EARLY=1, ONE_WAY=1),
        channels("one slot for messages instead of two", UNREAD_MESSAGE, MUTATION_ONE_PARITY=1),
        channels("zeros may be performed after the kernel", "number==n", MUTATION_LATE_CLEAR=1, PACKED=1, MESSAGES=3, CHUNKS=0),
        channels("packed LL is not cleared", "number==n", MUTATION_NO_CLEAR=1, PACKED=1),
        channels("acknowledges packed LL before taking it", STUCK, MUTATION_TAKEN_EARLY=1, ONE_WAY=1, PACKED=1),
        channels("chunks are sent whether or not the slot is free", UNREAD_CHUNK, MUTATION_NO_FREED=1),
        channels("frees a slot before it has been read", UNREAD_CHUNK, MUTATION_FREED_EARLY=1),
        channels("ready overtakes the chunk", "ring[d*2+n%2].number==n", MUTATION_RELAXED_READY=1),
        channels("counts begin anew in every launch", UNREAD_CHUNK, MUTATION_COUNTS_RESTART=1),
        doorbell("a plain store publishes", STUCK, MUTATION_PLAIN_PUBLISH=1, TSO=1),
        doorbell("a plain store announces the sleeper", STUCK, MUTATION_PLAIN_ANNOUNCE=1, TSO=1),
        doorbell("announces the sleeper after the check", STUCK, MUTATION_ANNOUNCE_AFTER_LOOK=1),
        doorbell("looks for sleepers before publishing", STUCK, MUTATION_LOOK_BEFORE_PUBLISH=1),
        doorbell("any of 2, announces the sleeper after the check", STUCK, MUTATION_ANNOUNCE_AFTER_LOOK=1, ANY=1),
        doorbell("sleeps without comparing", STUCK, MUTATION_NO_COMPARE=1),
        doorbell("loads the number of rings after the check", STUCK, MUTATION_RINGS_AFTER_LOOK=1),
        doorbell("wakes without counting the ring", STUCK, MUTATION_UNCOUNTED_RING=1),
        doorbell("wakes before counting the ring", STUCK, MUTATION_WAKE_BEFORE_COUNT=1),
        doorbell("wakes one of two", STUCK, MUTATION_WAKE_ONE=1, WAITERS=2, WAKERS=2),
        doorbell("a flag instead of a count of sleepers", STUCK, MUTATION_SLEEPERS_AS_FLAG=1, WAITERS=2, WAKERS=2),
        doorbell("writes data after publishing", "data[source]", MUTATION_DATA_AFTER_PUBLISH=1),
    ],
}


def command(arguments, cwd, limit=TIME_LIMIT):
    done = subprocess.run(arguments, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
    return done.returncode, done.stdout


def search(run, cwd):
    """Returns (states, surprise); surprise is empty if the search ended as it must."""
    # spin's preprocessor resolves the model's includes and writes all its files where it runs.
    for model in HERE.glob("*.pml"):
        shutil.copy(model, cwd)
    defines = [f"-D{name}={value}" for name, value in run.defines.items()]
    code, output = command(["spin", "-a", *defines, f"{run.model}.pml"], cwd)
    if code != 0 or "Error" in output:
        return 0, f"spin: {output.strip()}"
    # A mutation ends early: there the compiler would take longest.
    optimize = "-O0" if run.caught_by else "-O1"
    code, output = command(
        [os.environ.get("CC", "cc"), optimize, "-w", "-DSAFETY", "-DNOFAIR", "-DVECTORSZ=1024", f"-DMEMLIM={MEGABYTES}",
         "-o", "pan", "pan.c"], cwd)
    if code != 0:
        return 0, f"the compiler: {output.strip()}"
    _, output = command(["./pan", f"-m{MAX_DEPTH}", "-w22"], cwd)

    states = re.search(r"(\d+) states, stored", output)
    errors = re.search(r"errors: (\d+)", output)
    if not states or not errors:
        return 0, f"no result: {output.strip()}"
    states = int(states[1])
    first = re.search(r"^pan:\d+: (.*)$", output, re.MULTILINE)
    complaint = first[1] if first else ""
    if run.caught_by:
        # Spin prints expressions with parentheses and spaces of its own.
        wanted = re.sub(r"[\s()]", "", run.caught_by)
        if wanted not in re.sub(r"[\s()]", "", complaint):
            return states, f"not caught by '{run.caught_by}' but by '{complaint}'" if complaint else "not caught"
        return states, ""
    if int(errors[1]) != 0:
        _, trail = command(["spin", "-t", "-p", "-g", *defines, f"{run.model}.pml"], cwd)
        return states, f"{complaint}; the end of its trail:\n" + "\n".join(trail.splitlines()[-60:])
    # Without errors, but incomplete?
    if "Search not completed" in output or "search depth too small" in output:
        return states, "the search is incomplete; raise MAX_DEPTH or MEGABYTES"
    return states, ""


def perform(run):
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onehop-model-") as work:
        try:
            states, surprise = search(run, work)
        except subprocess.TimeoutExpired as late:
            states, surprise = 0, f"{late.cmd[0]} took longer than {TIME_LIMIT} s"
    verdict = "SURPRISE" if surprise else "caught" if run.caught_by else "holds"
    print(f"{verdict:8} {states:>9} states {time.monotonic() - start:5.1f} s  {run.model}: {run.says}", flush=True)
    if surprise:
        print(f"  {surprise}\n  -D: {run.defines}", flush=True)
    return states, not surprise


def main(arguments):
    size = os.environ.get("ONEHOP_MODELS", "")
    if size not in ("", "whole"):
        print(f"run_models.py: ONEHOP_MODELS is '{size}'; it may be 'whole', or nothing", file=sys.stderr)
        return 2
    whole = size == "whole" or "--whole" in arguments
    names = [name for name in arguments if name != "--whole"]
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        print(f"run_models.py: no group '{unknown[0]}'; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    for tool in ("spin", os.environ.get("CC", "cc")):
        if shutil.which(tool) is None:
            print(f"run_models.py: skipped, {tool} is absent; scripts/install-deps.sh installs it")
            return SKIPPED
    named = [run for name in names or GROUPS for run in GROUPS[name]]
    runs = [run for run in named if whole or not run.large]
    with ThreadPoolExecutor(max_workers=2) as pool:  # the largest take 1 GiB each
        results = list(pool.map(perform, runs))
    good = sum(fine for _, fine in results)
    print(f"{good} of {len(runs)} ended as they must, {sum(states for states, _ in results)} states"
          + (f"; {len(named) - len(runs)} large searches left out" if len(runs) < len(named) else ""))
    return 0 if good == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
