# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder must have printed, and how they must have ended. Each function returns what is wrong, one text each, so an
empty list is a success. Needs neither GPUs nor torch: tests/nccl/acceptance_test.py gives them good and bad outputs.
"""
import re
import signal
import statistics
from collections import namedtuple

# bytes, count, type, operation (not of hypercube), root; then per column out of place and in place: time, algbw, busbw, wrong
ROW = re.compile(r"^ +(\d+) +(\d+) +(\w+) +(?:([A-Za-z]\w*) +)?(-?\d+) +(\S+) +\S+ +\S+ +(\S+) +(\S+) +\S+ +\S+ +(\S+)")
BEGINS_A_ROW = re.compile(r"^ +\d+ +\d+ +\w")
Row = namedtuple("Row", "key times wrong")  # the first five columns; floats; floats or None where nothing was checked


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


def nccl_test_problems(out, code):
    """Of a run with -c: the rows must be there, and every element right."""
    rows, unread = rows_of(out)
    problems = [] if code == 0 else [how_it_ended(code)]
    if unread:
        problems.append(f"{len(unread)} rows cannot be read, such as '{unread[0].strip()}'")
    if is_skipped(out):
        return problems
    if not any(count is not None for row in rows for count in row.wrong):
        problems.append("no row was checked")
    for row in rows:
        for place, count in zip(("out of place", "in place"), row.wrong):
            if count:  # NaN is true, too
                problems.append(f"{count:g} wrong elements: {' '.join(filter(None, row.key))} {place}")
    return problems


def carried_problems(out, ranks):
    """With ONEHOP_LOG=info: 0 wrong elements say nothing if NCCL did the work."""
    carried = set(re.findall(r"rank (\d+) of \d+: the communicator is carried", out))
    return [f"rank {rank} does not say that its communicator is carried" for rank in range(ranks) if str(rank) not in carried]


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


def speed_problems(columns, places, from_bytes, tolerance):
    """`columns`: by name, times by size. From `from_bytes` on, onehop may not be slower than the fastest NCCL by more than `tolerance`."""
    problems = [f"{name} has no times" for name, column in columns.items() if not column]
    ours = columns["onehop"]
    for size, times in ours.items():
        theirs = [column[size] for name, column in columns.items() if name != "onehop" and size in column]
        for place in places if size >= from_bytes and theirs else ():
            fastest = min(each[place] for each in theirs)
            if times[place] > fastest * (1 + tolerance):
                problems.append(f"{size} bytes {('out of place', 'in place')[place]}: {times[place]:.2f} us, NCCL {fastest:.2f}")
    sizes = {size for column in columns.values() for size in column}
    return problems + [f"{size} bytes are missing of onehop" for size in sorted(sizes - set(ours)) if ours]


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
GPU_TOLERANCE = 16  # MiB that may be less free in the end: a communicator that stays takes over 100
DESCRIPTOR_TOLERANCE = 8
HOST_TOLERANCE, HOST_TOLERANCE_PER_CYCLE = 64.0, 0.25  # MiB of resident memory, of NCCL and torch as well
# What the error of a survivor says about the rank that is the reason. One that ends by exit() leaves; by _exit() it has died.
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
