#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares programs that use NCCL with and without libonehop_nccl.so, and writes a report in Markdown, which ends with everything that is wrong.
The exit code is 0 if nothing is. Needs GPUs, the programs of nccl-tests (https://github.com/NVIDIA/nccl-tests), and for the parts "torch" and
"failures" a Python with torch. Whatever runs with the library must say (ONEHOP_LOG=info) that its communicators are carried, and nccl-tests must
print the rows of all sizes, types, reductions and roots that were asked for.

    bench/nccl/acceptance.py --library LIB --nccl-tests DIR --nccl DIR [--newer-nccl DIR] [--out report.md]

Parts, each with its time on 2 GPUs as estimated; --programs picks some of the programs of nccl-tests for the first five, so that one run can be short:
    check      (2 min) all types and reductions are verified: a thread per GPU; with one thread for all GPUs, and with 4 GPUs two of each, some sizes
    options    (7 min) the same programs with registered memory and windows, CUDA graphs, unaligned memory, all roots, blocking calls, 2000 calls in
               a group
    speed      (3 min) times, eager and in CUDA graphs, beside NCCL by itself: from 16 KB on not slower by more than --slower; no run may fail
    off        (5 min) ONEHOP_NCCL=off beside NCCL by itself: the same rows, and times not longer by more than --off-tolerance
    sweep      (10 min, only if it is named) all types and reductions with every power of two from 4 bytes to 64 MB
    torch      (3 min) collectives.py, training.py: equal in bits from run to run, and to NCCL's results within a tolerance, or in bits between 2 ranks
    failures   (3 min) failures.py: a killed rank, an abort, an exit, memory after many groups

nccl-tests has several processes only with MPI (built with MPI=1), which this script does not start: here all of its ranks are threads of a process. The
programs of the parts "torch" and "failures" have a process per GPU. `-D 3` and `-D 4`, NVLink multicast, are left out.
"""
import argparse
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import verdicts

HERE = Path(__file__).resolve().parent
PROGRAMS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "alltoallv", "gather", "scatter", "sendrecv",
            "hypercube")
TIMED = PROGRAMS[:6] + ("gather", "scatter", "sendrecv")
ALL_TYPES = "-b 4 -e 16M -f 16 -d all -o all -c 1 -n 2 -w 1"
SOME_SIZES = "-b 4 -e 64M -f 16 -d float -o all -n 3 -w 1"
SWEEP = "-b 4 -e 64M -f 2 -d all -o all -c 1 -n 1 -w 1"
# -R: 1 registers, 2 makes windows (0 is the default of all other runs); -p 1: communicators made by their threads; -a only chooses which time is told
OPTIONS = tuple(f"{each} {SOME_SIZES}" for each in ("-R 1 -p 1 -c 1", "-R 2 -c 1", "-G 3 -c 1", "-u 1 -c 1", "-c 5 -a 3", "-z 1 -c 1", "-r -1 -y 1 -c 1")) + (
    "-m 2000 -c 1 -b 4 -e 1M -f 16 -d float -o sum -n 2 -w 1",)
# So many calls that it hardly counts if one thread begins later than another.
EAGER = "-b 1K -e 1G -f 4 -d bfloat16 -n 200 -w 20 -c 0"
GRAPH = "-b 1K -e 256M -f 4 -d bfloat16 -n 40 -w 5 -G 5 -c 0"
FORWARDED = "-b 1K -e 16M -f 16 -d float -o sum -n 200 -w 20 -c 1"
NEVER_SLOWER = 16 << 10  # bytes; below, times of single runs differ by more
SWEEP_LIMIT = 420
LIMIT = 120
LOG = {"ONEHOP_LOG": "info"}  # written when communicators are made, so not while calls are timed


def cell(text, begin=""):
    """In a table of Markdown."""
    return begin + text.replace("|", "/")


class Bench:
    def __init__(self, options):
        self.options = options
        self.lines = []
        self.wrong = []

    def say(self, line=""):
        self.lines.append(line)
        print(line, flush=True)

    def judge(self, what, problems):
        """Remembers what is wrong; returns the cell that says so."""
        self.wrong += [f"{what}: {each}" for each in problems]
        more = f"; {len(problems) - 4} more" if len(problems) > 4 else ""
        return cell("; ".join(problems[:4]) + more, "**WRONG**: ") if problems else "right"

    def run(self, command, nccl=None, ours=True, folders=(), limit=LIMIT, **variables):
        """The output of a command, then what it wrote to stderr, and its exit code; 124 if it took too long. Its children end with it."""
        environment = os.environ | variables
        paths = [*folders, nccl or self.options.nccl, *self.options.more_folders, environment.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, map(str, paths)))
        if ours:
            environment["LD_PRELOAD"] = str(self.options.ours)
        # A pipe would stay open as long as one child has it. Two files, since a line of the log would cut a row that is not yet written whole.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            with subprocess.Popen(command, env=environment, stdout=out, stderr=errors, start_new_session=True) as process:
                try:
                    code = process.wait(limit)
                except subprocess.TimeoutExpired:
                    code = 124
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for each in (out, errors):
                each.seek(0)
            return "".join(each.read().decode(errors="replace") for each in (out, errors)), code

    def nccl_test(self, program, options, shape=None, **more):
        built = self.options.nccl_tests
        command = [str(built / f"{program}_perf"), *(shape or self.per_thread()).split(), *options.split()]
        return self.run(command, folders=(built, built / "verifiable"), **more)

    def per_thread(self):
        return f"-t {self.options.gpus} -g 1"

    def python(self, program, *arguments, **more):
        return self.run([self.options.python, str(HERE / program), str(self.options.gpus), *map(str, arguments)], **more)

    def carried_problems(self, out):
        """Of a run with LOG: without them, NCCL by itself would be right, too, for instance because LD_PRELOAD was ignored."""
        if os.environ.get("ONEHOP_NCCL") == "alone":  # then there is nothing else
            return verdicts.alone_problems(out)
        return verdicts.carried_problems(out, self.options.gpus)

    # --- parts ---

    def table(self, runs, **more):
        """One row per run: program, options, shape."""
        self.say("| program | options | rows | wrong elements | verdict |\n|---|---|---|---|---|")
        for program, options, shape in runs:
            out, code = self.nccl_test(program, options, shape, **LOG, **more)
            rows, _ = verdicts.rows_of(out)
            wrong = sum(count or 0 for row in rows for count in row.wrong)
            problems = verdicts.nccl_test_problems(out, code, verdicts.sweep_of(program, options, self.options.gpus)) + self.carried_problems(out)
            verdict = self.judge(f"{program} {shape} {options}", problems)
            if verdict == "right" and verdicts.is_skipped(out):
                verdict = "skipped: the ranks are no power of 2"
            self.say(f"| {program} | `{shape} {options}` | {len(rows)} | {wrong:g} | {verdict} |")
        self.say()

    def check(self):
        self.say("## nccl-tests: all types and reductions\n")
        shapes = [f"-t 1 -g {self.options.gpus}"]
        if self.options.gpus >= 4 and self.options.gpus % 2 == 0:
            shapes.append(f"-t {self.options.gpus // 2} -g 2")
        else:
            self.say("`-t 2 -g 2` is left out: it needs an even number of 4 GPUs or more.\n")
        self.table([(program, ALL_TYPES, self.per_thread()) for program in self.options.programs] +
                   [(program, f"-c 1 {SOME_SIZES}", shape) for program in self.options.programs for shape in shapes])

    def options_part(self):
        self.say("## nccl-tests: options\n")
        self.table([(program, each, self.per_thread()) for program in self.options.programs for each in OPTIONS])

    def sweep(self):
        self.say("## nccl-tests: every power of two\n")
        self.table([(program, SWEEP, self.per_thread()) for program in self.options.programs], limit=SWEEP_LIMIT)

    def off(self):
        rounds = max(3, self.options.rounds)
        self.say(f"## ONEHOP_NCCL=off beside NCCL by itself: `{self.per_thread()} {FORWARDED}`, {rounds} rounds in turns\n\nRatio: the median over sizes and "
                 "places of the shortest times.\n\n| program | ratio | verdict |\n|---|---|---|")
        out, code = self.nccl_test("all_reduce", "-b 4 -e 4 -c 1 -n 1 -w 0", ONEHOP_NCCL="off", **LOG)
        problems = verdicts.off_line_problems(out) + ([verdicts.how_it_ended(code)] if code != 0 else [])
        self.say(f"| (its line) | | {self.judge('off', problems)} |")
        for program in self.options.programs:
            runs = [(self.nccl_test(program, FORWARDED, ours=False), self.nccl_test(program, FORWARDED, ONEHOP_NCCL="off")) for _ in range(rounds)]
            bare, off = ([each[side][0] for each in runs] for side in (0, 1))
            if verdicts.is_skipped(bare[0]) and verdicts.is_skipped(off[0]):
                self.say(f"| {program} | | skipped |")
                continue
            problems, ratio = verdicts.off_problems(bare, off, self.options.off_tolerance)
            problems += [f"{name}: {verdicts.how_it_ended(code)}" for each in runs for name, (_, code) in zip(("NCCL", "off"), each) if code != 0]
            self.say(f"| {program} | {f'{ratio:.3f}' if ratio else ''} | {self.judge(f'off: {program}', problems)} |")
        self.say()

    def speed(self):
        nccls = [("NCCL", self.options.nccl)] + ([("newer NCCL", self.options.newer_nccl)] if self.options.newer_nccl else [])
        for title, options in (("calls one after another", EAGER), ("the same in a CUDA graph", GRAPH)):
            self.say(f"## {title}: `{self.per_thread()} {options}`")
            self.say()
            self.say("Time in us out of place / in place; ratio: the fastest NCCL's time over ours, of each. An all-to-all in place is undefined in "
                     "NCCL, so nccl-tests does not check it, and it is left out.")
            for program in filter(TIMED.__contains__, self.options.programs):
                places = (0,) if program == "alltoall" else (0, 1)
                problems, columns = [], {}
                for name, more in [*((name, {"nccl": folder, "ours": False}) for name, folder in nccls), ("onehop", LOG)]:
                    columns[name], failed = self.times(program, options, **more)
                    problems += [f"{name}: {each}" for each in failed]
                self.say(f"\n**{program}**\n\n| bytes | {' | '.join(columns)} | ratio |\n|{'---|' * (len(columns) + 2)}")
                for size in columns["onehop"]:
                    cells = [" / ".join(f"{column[size][place]:.2f}" for place in places) if size in column else "" for column in columns.values()]
                    theirs = [column[size] for name, column in columns.items() if name != "onehop" and size in column]
                    ratios = [min(each[place] for each in theirs) / (columns["onehop"][size][place] or math.nan) for place in places] if theirs else []
                    self.say(f"| {size} | {' | '.join(cells)} | {' / '.join(f'{ratio:.2f}' for ratio in ratios)} |")
                problems += verdicts.speed_problems(columns, places, NEVER_SLOWER, self.options.slower)
                self.say(f"\n{self.judge(f'{title}: {program}', problems)}")
            self.say()

    def times(self, program, options, ours=True, **more):
        """By size: the time out of place and in place, the median of the rounds. Also what was wrong with the runs."""
        runs = [self.nccl_test(program, options, ours=ours, **more) for _ in range(self.options.rounds)]
        sweep = verdicts.sweep_of(program, options, self.options.gpus)
        problems = [each for out, code in runs for each in verdicts.timed_problems(out, code, sweep) + (self.carried_problems(out) if ours else [])]
        return verdicts.times_of(out for out, _ in runs), problems

    def torch(self):
        self.say("## torch: collectives, and calls with new random data in each\n\n| | |\n|---|---|")
        for name, arguments, variables in (
                ("communicators made at the first call", [], {}), ("made at once, groups split", ["eager"], {}),
                ("expandable segments", [], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
                ("cudaMallocAsync", [], {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})):
            out, code = self.python("collectives.py", *arguments, self.options.iterations, limit=2 * LIMIT, **LOG, **variables)
            problems = verdicts.collectives_problems(out, code, self.options.gpus) + self.carried_problems(out)
            self.say(f"| {name} | {self.judge(f'torch: {name}', problems)} |")
        self.say("\n## torch: training\n\n| | library | rank | loss | digest | ms per step |\n|---|---|---|---|---|---|")
        verdict_lines = []
        for kind in self.options.training:
            if kind == "mesh" and (self.options.gpus < 4 or self.options.gpus % 2):
                verdict_lines.append("mesh: left out: two dimensions need an even number of 4 ranks or more")
                continue
            with tempfile.TemporaryDirectory() as folder:
                ours, theirs = (Path(folder, each) for each in ("onehop", "nccl"))
                ours.mkdir(), theirs.mkdir()
                runs = {"onehop": self.python("training.py", kind, ours, **LOG), "onehop again": self.python("training.py", kind, **LOG),
                        "NCCL": self.python("training.py", kind, theirs, ours=False)}
                for name, (out, _) in runs.items():
                    for row in verdicts.trained(out):
                        self.say(f"| {kind} | {name} | {' | '.join(map(str, row))} |")
                problems = verdicts.training_problems(runs, self.options.gpus)
                problems += [f"{name}: {each}" for name in runs if name != "NCCL" for each in self.carried_problems(runs[name][0])]
                out, code = self.python("training.py", "--compare", ours, theirs, ours=False)
                # With two ranks, or one, a sum has one order.
                problems += verdicts.compared_problems(out, code, self.options.gpus, bits=self.options.gpus <= 2)
                differences = "; ".join(re.findall(r"rank \d+: losses [^\n]*", out))
                verdict_lines.append(f"{kind}: {self.judge(f'torch: {kind}', problems)}. Beside NCCL: {differences or 'not compared'}")
        self.say("\n" + "\n".join(f"- {each}" for each in verdict_lines) + "\n")

    def failures(self):
        self.say("## torch: failures\n\n| | onehop | verdict |\n|---|---|---|")
        for kind, *count in (["kill"], ["abort"], ["exit"], ["cycles", self.options.cycles], ["burst", self.options.bursts]):
            out, code = self.python("failures.py", kind, *count, limit=verdicts.limit_of(kind, *count) + 30, **LOG)
            said = [f"rank {rank}: {each}" for rank, each in enumerate(verdicts.rank_lines(out, self.options.gpus)) if each]
            said += re.findall(r"^exit codes .*", out, re.MULTILINE)
            problems = verdicts.failures_problems(kind, self.options.gpus, out, code) + self.carried_problems(out)
            self.say(f"| {' '.join(map(str, [kind, *count]))} | {cell('; '.join(said))} | {self.judge(f'failures: {kind}', problems)} |")
        self.say()


PARTS = {"check": Bench.check, "options": Bench.options_part, "speed": Bench.speed, "off": Bench.off, "sweep": Bench.sweep, "torch": Bench.torch,
         "failures": Bench.failures}
USING_NCCL_TESTS = {"check", "options", "speed", "off", "sweep"}


def parsed(arguments):
    """The options. What does not exist is an error here: ld.so only warns of a library that it cannot preload, and passes over folders."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--library", dest="ours", type=Path, required=True, help="libonehop_nccl.so")
    parser.add_argument("--nccl-tests", type=Path, required=True, help="folder with all_reduce_perf and the others")
    parser.add_argument("--nccl", type=Path, required=True, help="folder with the real libnccl.so.2")
    parser.add_argument("--newer-nccl", type=Path, help="folder with another one, only to be compared")
    parser.add_argument("--library-path", dest="more_folders", type=Path, nargs="*", default=[], help="more folders with libraries that programs need")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1, help="of each timing; the median counts")
    parser.add_argument("--training", nargs="*", default=["ddp", "fsdp", "mesh", "compile"], help="programs of training.py")
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=PROGRAMS, help="of nccl-tests")
    parser.add_argument("--iterations", type=int, default=300, help="of collectives.py, with new data in each")
    parser.add_argument("--off-tolerance", type=float, default=0.05, help="by how much ONEHOP_NCCL=off may be slower than NCCL by itself")
    parser.add_argument("--slower", type=float, default=0.05, help=f"by how much onehop may be slower than NCCL, from {NEVER_SLOWER >> 10} KB on")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--bursts", type=int, default=3)
    parser.add_argument("--parts", nargs="*", default=[each for each in PARTS if each != "sweep"], choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path("nccl-acceptance.md"))
    options = parser.parse_args(arguments)
    if not options.ours.is_file():
        parser.error(f"--library: {options.ours} is not a file")
    for folder in filter(None, (options.nccl, options.newer_nccl)):
        if not (folder / "libnccl.so.2").is_file():
            parser.error(f"there is no libnccl.so.2 in {folder}")
    for folder in options.more_folders:
        if not folder.is_dir():
            parser.error(f"--library-path: {folder} is not a folder")
    missing = [each for each in options.programs if not (options.nccl_tests / f"{each}_perf").is_file()]
    if missing and USING_NCCL_TESTS.intersection(options.parts):
        parser.error(f"--nccl-tests: there is no {missing[0]}_perf in {options.nccl_tests}")
    # A name without a slash would be looked up elsewhere, by ld.so and in PATH.
    options.ours, options.nccl_tests = options.ours.absolute(), options.nccl_tests.absolute()
    return options


def judged(bench):
    """Runs the parts; the report ends with what was wrong."""
    for part in bench.options.parts:
        try:
            PARTS[part](bench)
        except Exception as error:  # The other parts still run, and the report is written.
            bench.say()
            bench.judge(part, [f"the part itself failed: {type(error).__name__}: {error}"])
    bench.say("## Verdict\n\n" + ("\n".join(f"- {each}" for each in bench.wrong) or "Nothing is wrong."))
    bench.options.out.write_text("\n".join(bench.lines) + "\n")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(judged(Bench(parsed(sys.argv[1:]))))
