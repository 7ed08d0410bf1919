# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder must have printed, and how they must have ended. Each function returns what is wrong, one text each, so an
empty list is a success. Needs neither GPUs nor torch: tests/nccl/acceptance_test.py gives them good and bad outputs.
"""
import math
import re
import signal
import statistics
from collections import namedtuple

# bytes, count, type, operation (not of hypercube), root; then per column out of place and in place: time, algbw, busbw, wrong
ROW = re.compile(r"^ +(\d+) +(\d+) +(\w+) +(?:([A-Za-z]\w*) +)?(-?\d+) +(\S+) +\S+ +\S+ +(\S+) +(\S+) +\S+ +\S+ +(\S+)")
BEGINS_A_ROW = re.compile(r"^ +\d+ +\d+ +\w")
Row = namedtuple("Row", "key times wrong")  # the first five columns; floats; floats or None where nothing was checked
PLACES = ("out of place", "in place")


# --- nccl-tests ---

def rows_of(out):
    """Those of a program's output, and the lines that begin one but cannot be read."""
    rows, unread = [], []
    for line in out.splitlines():
        match = ROW.match(line)
        try:
            if match:
                wrong = tuple(None if match[column] == "N/A" else float(match[column]) for column in (7, 9))
                rows.append(Row(match.groups()[:5], (float(match[6]), float(match[8])), wrong))
                continue
        except ValueError:
            pass
        if BEGINS_A_ROW.match(line):
            unread.append(line)
    return rows, unread


def is_skipped(out):
    """hypercube says so if the number of ranks is no power of 2."""
    return "is not a power of 2, skipping" in out


def how_it_ended(code):
    return "took too long" if code == 124 else f"exit code {code}"


# What every nccl-tests has with -d all; newer ones also have bfloat16, f8e4m3, and f8e5m2, if NCCL does.
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double")
OPERATIONS = ("sum", "prod", "max", "min", "avg", "mulsum")
WITH_OPERATIONS = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")  # sendrecv only repeats its rows
ROOTED = ("broadcast", "reduce", "gather", "scatter")
Sweep = namedtuple("Sweep", "sizes distinct types operations roots")  # of a program without roots or operations: None


def bytes_of(text):
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def sweep_of(program, options, ranks):
    """What a program of nccl-tests must print with these options: a row for each size, type, reduction, and root. A size is rounded down to 16
    bytes of each rank (32 in older versions), so only from there on, the `distinct` ones must differ."""
    words = options.split()
    given = dict(zip(words[::2], words[1::2]))
    sizes = [bytes_of(given["-b"])]
    while sizes[-1] * int(given["-f"]) <= bytes_of(given["-e"]):
        sizes.append(sizes[-1] * int(given["-f"]))
    kind, operation, root = (given.get(name, default) for name, default in (("-d", "float"), ("-o", "sum"), ("-r", "0")))
    operations = OPERATIONS if operation == "all" else (operation,)
    roots = tuple(map(str, range(ranks))) if root == "-1" else (root,)
    return Sweep(len(sizes), sum(size >= 32 * ranks for size in sizes), TYPES if kind == "all" else (kind,),
                 operations if program in WITH_OPERATIONS else (None,), roots if program in ROOTED else (None,))


def sweep_problems(rows, sweep):
    """A program that ends early with exit code 0 has only right rows."""
    short = []
    kinds = dict.fromkeys([*sweep.types, *(row.key[2] for row in rows)])  # the newer types, too, if there are rows of them
    asked = [(kind, operation, root) for kind in kinds for operation in sweep.operations for root in sweep.roots]
    for kind, operation, root in asked:
        sizes = [row.key[0] for row in rows if row.key[2] == kind and operation in (None, row.key[3]) and root in (None, row.key[4])]
        if len(sizes) < sweep.sizes or len(set(sizes)) < sweep.distinct:
            named = " ".join(filter(None, (kind, operation, root and f"root {root}")))
            short.append(f"{named}: {len(sizes)} rows, {len(set(sizes))} sizes of {sweep.sizes}")
    return [f"{len(short)} of {len(asked)} sweeps are not complete, such as {short[0]}"] if short else []


def unread_problems(unread):
    return [f"{len(unread)} rows cannot be read, such as '{unread[0].strip()}'"] if unread else []


def nccl_test_problems(out, code, sweep):
    """Of a run with -c: the rows of the whole `sweep` must be there, and every element right."""
    rows, unread = rows_of(out)
    problems = ([] if code == 0 else [how_it_ended(code)]) + unread_problems(unread)
    if is_skipped(out):
        return problems
    unchecked = sum(row.wrong == (None, None) for row in rows)
    if unchecked == len(rows):
        problems.append("no row was checked")
    elif unchecked:
        problems.append(f"{unchecked} rows were not checked")
    problems += sweep_problems(rows, sweep)
    for row in rows:
        for place, count in zip(PLACES, row.wrong):
            if count:  # NaN is true, too
                problems.append(f"{count:g} wrong elements: {' '.join(filter(None, row.key))} {place}")
    return problems


def carried_problems(out, ranks):
    """With ONEHOP_LOG=info: 0 wrong elements say nothing if NCCL did the work. Of a communicator of all ranks: parts of it do not count."""
    carried = set(re.findall(rf"rank (\d+) of {ranks}: the communicator is carried", out))
    return [f"rank {rank} does not say that its communicator is carried" for rank in range(ranks) if str(rank) not in carried]


def alone_problems(out):
    """The same with ONEHOP_NCCL=alone, which carries everything, or fails."""
    return [] if "NCCL: working alone" in out else ["nothing says that onehop works alone"]


def off_problems(bare, off, tolerance):
    """ONEHOP_NCCL=off beside NCCL by itself, outputs of several rounds each: the same rows but for the times, which may not be longer by
    more than `tolerance`: the median over all sizes and places of the ratio between the shortest times. Also returns this median."""
    bare, off = ([rows_of(out)[0] for out in outs] for outs in (bare, off))
    same = [[(row.key, row.wrong) for row in rows] for rows in bare + off]
    if not same or not same[0]:
        return ["NCCL by itself has no rows"], None
    if any(each != same[0] for each in same):
        return ["the rows are not those of NCCL by itself"], None
    shortest = [[min(times) for times in zip(*([time for row in rows for time in row.times] for rows in rounds))] for rounds in (bare, off)]
    ratio = statistics.median(mine / theirs for theirs, mine in zip(*shortest) if theirs > 0)
    return ([f"forwarding costs {ratio - 1:.1%}, more than {tolerance:.0%}"] if ratio > 1 + tolerance else []), ratio


def off_line_problems(out):
    said = re.findall(r"NCCL: ONEHOP_NCCL=off, forwarding everything to (.*)", out)
    if not said:
        return ["nothing says that everything is forwarded"]
    return [f"it forwards to {each}" for each in said if each.startswith("nothing")]


def times_of(outs):
    """Of several rounds, by size: the median of the times out of place, and in place; NaN if one is, which has no order."""
    found = {}
    for out in outs:
        for row in rows_of(out)[0]:
            found.setdefault(int(row.key[0]), []).append(row.times)
    return {size: [math.nan if any(map(math.isnan, column)) else sorted(column)[len(column) // 2] for column in zip(*samples)]
            for size, samples in found.items()}


def timed_problems(out, code, sweep):
    """Of a run with -c 0: a program that fails may have been fast until then."""
    rows, unread = rows_of(out)
    return ([] if code == 0 else [how_it_ended(code)]) + unread_problems(unread) + sweep_problems(rows, sweep)


def is_time(value):
    return math.isfinite(value) and value > 0


def speed_problems(columns, places, from_bytes, tolerance):
    """`columns`: by name, times by size; all must have the same sizes. From `from_bytes` on, onehop may not be slower than the fastest NCCL by more
    than `tolerance`."""
    problems = []
    sizes = sorted({size for column in columns.values() for size in column})
    for name, column in columns.items():
        if not column:
            problems.append(f"{name} has no times")
        for size in sizes if column else ():
            if size not in column:
                problems.append(f"{size} bytes are missing of {name}")
            else:
                problems += [f"{size} bytes {PLACES[place]}: {column[size][place]} is no time of {name}" for place in places
                             if not is_time(column[size][place])]
    for size, times in columns["onehop"].items():
        theirs = [column[size] for name, column in columns.items() if name != "onehop" and size in column]
        for place in places if size >= from_bytes else ():
            fastest = min((each[place] for each in theirs if is_time(each[place])), default=None)
            if fastest is not None and not times[place] <= fastest * (1 + tolerance):  # so NaN is slower, too
                problems.append(f"{size} bytes {PLACES[place]}: {times[place]:.2f} us, NCCL {fastest:.2f}")
    return problems


# --- torch ---

def rank_lines(out, ranks):
    """The text of each rank's verdict, or None."""
    found = dict(re.findall(r"rank (\d+): (right\b[^\n]*|WRONG\b[^\n]*)", out))
    return [found.get(str(rank)) for rank in range(ranks)]


def rank_problems(out, expected):
    """Each rank of `expected` must have said that all was right."""
    said = rank_lines(out, max(expected, default=-1) + 1)
    return [f"rank {rank}: {said[rank] or 'says nothing'}" for rank in expected if not (said[rank] or "").startswith("right")]


def collectives_problems(out, code, ranks):
    return ([] if code == 0 else [how_it_ended(code)]) + rank_problems(out, range(ranks))


# Of training, beside NCCL: of more than 2 ranks the order of a sum may differ, and so may its last bits. Tried with gloo: when every gradient is off
# by 1e-7, losses differ by 1e-7 and updates by 1e-4; when the gradient of one parameter is half of what it should be in one step, by 4e-5 and 6e-3.
LOSS_TOLERANCE, UPDATE_TOLERANCE = 1e-5, 2e-3
Trained = namedtuple("Trained", "rank losses digest ms")


def trained(out):
    """What each rank of training.py printed, by rank."""
    return [Trained(int(rank), losses, digest, ms) for rank, losses, digest, ms in
            sorted(re.findall(r"rank (\d+): loss (\S+ to \S+), bits (\w+), (\S+) ms", out), key=lambda each: int(each[0]))]


def compared_problems(out, code, ranks, bits):
    """`out` of `training.py RANKS --compare`. With `bits`, also equal in bits: between 2 ranks a sum is one addition."""
    problems = [] if code == 0 else [how_it_ended(code)]
    found = {int(rank): (float(loss), float(update)) for rank, loss, update in
             re.findall(r"rank (\d+): losses differ by (\S+), updates by (\S+)", out)}
    for rank in range(ranks):
        if rank not in found:
            problems.append(f"rank {rank} was not compared with NCCL")
            continue
        loss, update = found[rank]
        if not loss <= LOSS_TOLERANCE:
            problems.append(f"rank {rank}: losses differ from NCCL's by {loss:g}, more than {LOSS_TOLERANCE:g}")
        if not update <= UPDATE_TOLERANCE:
            problems.append(f"rank {rank}: what was learned differs from NCCL's by {update:g}, more than {UPDATE_TOLERANCE:g}")
        if bits and (loss or update):
            problems.append(f"rank {rank}: the bits are not NCCL's, although a sum of two has one order")
    return problems


def training_problems(runs, ranks):
    """`runs`: by name, the output and the exit code of training.py; those of "onehop" and "onehop again" must be equal in every bit."""
    problems = [f"{name}: {how_it_ended(code)}" for name, (_, code) in runs.items() if code != 0]
    rows = {name: trained(out) for name, (out, _) in runs.items()}
    for name, each in rows.items():
        if [row.rank for row in each] != list(range(ranks)):
            problems.append(f"{name}: not one line of every rank")
    if [row.digest for row in rows["onehop"]] != [row.digest for row in rows["onehop again"]]:
        problems.append("two runs differ in bits")
    return problems


# --- failures ---

DEADLINE = 5.0  # seconds, from the first call after the failure until this rank has its error
GPU_TOLERANCE = 16  # MiB that may be less free in the end: a communicator that stays takes 72 or more (docs/nccl.md)
DESCRIPTOR_TOLERANCE = 8
HOST_TOLERANCE, HOST_TOLERANCE_PER_CYCLE = 64.0, 0.25  # MiB of resident memory, of NCCL and torch as well
# What the error of a survivor says about the rank that is the reason. One that ends by exit() leaves; by _exit() it has died. But torch aborts its
# communicators when a process exits, so "aborted the group" is right, too: that is what 2 H200s have said.
REASONS = {"kill": "rank {} died", "exit": "rank {} (died|has left|left|aborted the group)", "abort": "rank {} aborted the group"}


def origin_of(kind, ranks):
    """The rank that fails."""
    return 0 if kind == "abort" else ranks - 1


def survivors_of(kind, ranks):
    """The ranks that must say what they have seen; of an abort, rank 0 as well."""
    return [rank for rank in range(ranks) if kind not in ("kill", "exit") or rank != ranks - 1]


def error_problems(kind, ranks, text, seconds, remote_error=True):
    """Of what a survivor has seen: the error's text (None: no error), and when."""
    if text is None:
        return ["noticed nothing"]
    problems = []
    if not re.search(rf"\b{REASONS[kind].format(origin_of(kind, ranks))}\b", text):
        problems.append(f"the error does not say '{REASONS[kind].format(origin_of(kind, ranks))}': {' '.join(text.split())}")
    if remote_error and "ncclRemoteError" not in text:
        problems.append(f"the error is not ncclRemoteError: {' '.join(text.split())}")
    if seconds > DEADLINE:
        problems.append(f"the error came after {seconds:.1f} s, more than {DEADLINE:g}")
    return problems


Memory = namedtuple("Memory", "gpu_free host descriptors")  # MiB, MiB, number


def memory_problems(before, after, cycles):
    problems = []
    if before.gpu_free - after.gpu_free > GPU_TOLERANCE:
        problems.append(f"{before.gpu_free - after.gpu_free:.0f} MiB of GPU memory stay, more than {GPU_TOLERANCE}")
    tolerance = HOST_TOLERANCE + HOST_TOLERANCE_PER_CYCLE * cycles
    if after.host - before.host > tolerance:
        problems.append(f"{after.host - before.host:.0f} MiB of host memory stay, more than {tolerance:.0f}")
    if after.descriptors - before.descriptors > DESCRIPTOR_TOLERANCE:
        problems.append(f"{after.descriptors - before.descriptors} descriptors stay, more than {DESCRIPTOR_TOLERANCE}")
    return problems


def limit_of(kind, count=0):
    """Seconds that failures.py gives its ranks. A group beside NCCL takes half a second between 2 H200s, and more between 4."""
    return 90 + {"cycles": 3, "burst": 30}.get(kind, 0) * count


def expected_codes(kind, ranks):
    return [-signal.SIGKILL if kind == "kill" and rank == ranks - 1 else 0 for rank in range(ranks)]


def code_problems(kind, codes):
    """`codes`: of each rank, None if it has not ended."""
    return [f"rank {rank} did not end" if code is None else f"rank {rank} ended with {code}, not {int(expected)}"
            for rank, (code, expected) in enumerate(zip(codes, expected_codes(kind, len(codes)))) if code != expected]


def failures_problems(kind, ranks, out, code):
    """Of a whole run of failures.py: what its parent has found, and that the ranks have indeed said what they saw."""
    problems = [] if code == 0 else [how_it_ended(code)]
    found = re.findall(r"^exit codes \[([^\]]*)\]", out, re.MULTILINE)
    codes = [None if each.strip() == "None" else int(each) for each in found[-1].split(",")] if found else []
    if len(codes) != ranks:
        problems.append("not one exit code of every rank")
    return problems + code_problems(kind, codes) + rank_problems(out, survivors_of(kind, ranks))
