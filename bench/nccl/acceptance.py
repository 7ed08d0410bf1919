#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares programs that use NCCL with and without libonehop_nccl.so, and writes a report in Markdown. Needs GPUs, the programs of
nccl-tests (https://github.com/NVIDIA/nccl-tests), and for the parts "torch" and "failures" a Python with torch.

    bench/nccl/acceptance.py --library LIB --nccl-tests DIR --nccl DIR [--newer-nccl DIR] [--out report.md]

Parts: `check`: nccl-tests verifies all types and reductions. `speed`: times, eager and in CUDA graphs, beside NCCL by itself. `torch`:
collectives.py and training.py. `failures`: failures.py.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "alltoallv", "gather", "scatter", "sendrecv",
            "hypercube")
TIMED = PROGRAMS[:6] + ("gather", "scatter", "sendrecv")
OPTIONS = ("-G 3", "-u 1", "-R 1", "-m 200", "-z 1", "-g {gpus}")
ALL_TYPES = "-b 4 -e 16M -f 16 -d all -o all -c 1 -n 2 -w 1"
SOME_SIZES = "-b 4 -e 64M -f 16 -d float -o all -c 1 -n 3 -w 1"
EAGER = "-b 1K -e 1G -f 4 -d bfloat16 -n 40 -w 8 -c 0"
GRAPH = "-b 1K -e 256M -f 4 -d bfloat16 -n 20 -w 5 -G 3 -c 0"
# bytes, count, type, operation (not of hypercube), root; then per column out of place and in place: time, algbw, busbw, wrong
ROW = re.compile(r"^ +(\d+) +\d+ +\w+ +(?:\w+ +)?-?\d+ +([\d.]+) +\S+ +\S+ +(\S+) +([\d.]+) +\S+ +\S+ +(\S+)")
LIMIT = 120


class Bench:
    def __init__(self, options):
        self.options = options
        self.lines = []

    def say(self, line=""):
        self.lines.append(line)
        print(line, flush=True)

    def run(self, command, nccl=None, ours=True, folders=(), **variables):
        """The output of a command, and its exit code; 124 if it took too long."""
        environment = os.environ | variables
        paths = [*folders, nccl or self.options.nccl, *self.options.more_folders, environment.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, map(str, paths)))
        if ours:
            environment["LD_PRELOAD"] = str(self.options.ours)
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired as late:
            return (late.stdout or b"").decode(errors="replace"), 124
        return done.stdout, done.returncode

    def nccl_test(self, program, options, per_thread=True, **more):
        how = f"-t {self.options.gpus} -g 1 " if per_thread else ""
        built = self.options.nccl_tests
        return self.run([str(built / f"{program}_perf"), *(how + options).split()], folders=(built, built / "verifiable"), **more)

    def python(self, program, *arguments, **more):
        return self.run([self.options.python, str(HERE / program), str(self.options.gpus), *arguments], **more)

    # --- parts ---

    def check(self):
        self.say(f"## nccl-tests: `-t {self.options.gpus} -g 1 {ALL_TYPES}`")
        self.say()
        self.say("| program | rows | wrong elements | exit code |\n|---|---|---|---|")
        bad = 0
        runs = [(each, each, ALL_TYPES, True) for each in PROGRAMS]
        runs += [(f"all_reduce `{each} {SOME_SIZES}`", "all_reduce", f"{each} {SOME_SIZES}", not each.startswith("-g"))
                 for each in (option.format(gpus=self.options.gpus) for option in OPTIONS)]
        for name, program, options, per_thread in runs:
            out, code = self.nccl_test(program, options, per_thread)
            rows = [ROW.match(line) for line in out.splitlines()]
            counts = [int(row[column]) for row in rows if row for column in (3, 5) if row[column] != "N/A"]
            self.say(f"| {name} | {sum(1 for row in rows if row)} | {sum(counts)} | {code} |")
            bad += sum(counts) + code + (not counts)
        self.say()
        return bad == 0

    def speed(self):
        nccls = [("NCCL", self.options.nccl)] + ([("newer NCCL", self.options.newer_nccl)] if self.options.newer_nccl else [])
        for title, options in (("calls one after another", EAGER), ("the same in a CUDA graph", GRAPH)):
            self.say(f"## {title}: `-t {self.options.gpus} -g 1 {options}`")
            self.say()
            self.say("Time in us out of place / in place; ratio: the fastest NCCL's time over ours, of each. An all-to-all in place is undefined in "
                     "NCCL, so nccl-tests does not check it, and it is left out.")
            for program in TIMED:
                places = (0,) if program == "alltoall" else (0, 1)
                columns = {name: self.times(program, options, nccl=folder, ours=False) for name, folder in nccls}
                columns["onehop"] = self.times(program, options)
                self.say(f"\n**{program}**\n\n| bytes | {' | '.join(columns)} | ratio |\n|{'---|' * (len(columns) + 2)}")
                for size in columns["onehop"]:
                    cells = [" / ".join(f"{column[size][place]:.2f}" for place in places) for column in columns.values() if size in column]
                    ratios = [min(column[size][place] for name, column in columns.items() if name != "onehop" and size in column) /
                              columns["onehop"][size][place] for place in places]
                    self.say(f"| {size} | {' | '.join(cells)} | {' / '.join(f'{ratio:.2f}' for ratio in ratios)} |")
            self.say()
        return True

    def times(self, program, options, **more):
        """By size: the time out of place and in place. The median of the rounds."""
        rounds = [self.nccl_test(program, options, **more)[0] for _ in range(self.options.rounds)]
        found = {}
        for out in rounds:
            for row in filter(None, map(ROW.match, out.splitlines())):
                found.setdefault(int(row[1]), []).append((float(row[2]), float(row[4])))
        return {size: [sorted(column)[len(column) // 2] for column in zip(*samples)] for size, samples in found.items()}

    def torch(self):
        good = True
        self.say("## torch: collectives\n\n| | |\n|---|---|")
        for name, arguments, variables in (
                ("communicators made at the first call", [], {}), ("made at once, groups split", ["eager"], {}),
                ("expandable segments", [], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
                ("cudaMallocAsync", [], {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})):
            out, code = self.python("collectives.py", *arguments, **variables)
            right = code == 0 and out.count(": right") == self.options.gpus
            self.say(f"| {name} | {'every element right' if right else f'WRONG ({code})'} |")
            good = good and right
        self.say("\n## torch: training\n\n| | library | rank | loss | digest | ms per step |\n|---|---|---|---|---|---|")
        for kind in self.options.training:
            digests = []
            for name, ours in (("onehop", True), ("onehop again", True), ("NCCL", False)):
                out, _ = self.python("training.py", kind, ours=ours)
                rows = sorted(re.findall(r"rank (\d+): loss (\S+ to \S+), bits (\w+), (\S+) ms", out))
                digests.append([row[2] for row in rows])
                for row in rows:
                    self.say(f"| {kind} | {name} | {' | '.join(row)} |")
            good = good and digests[0] == digests[1] and len(digests[0]) == self.options.gpus
        self.say()
        return good

    def failures(self):
        self.say("## torch: failures\n\n| | onehop |\n|---|---|")
        good = True
        for arguments in (["kill"], ["abort"], ["exit"], ["cycles", str(self.options.cycles)], ["burst", str(self.options.bursts)]):
            out, code = self.python("failures.py", *arguments)
            said = sorted(re.findall(r"rank \d+: [^\n]*", out)) + re.findall(r"exit codes .*", out)
            self.say(f"| {' '.join(arguments)} | {'; '.join(said)} |")
            good = good and code == 0 and "None" not in said[-1]
        self.say()
        return good


def main():
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
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--bursts", type=int, default=3)
    parser.add_argument("--parts", nargs="*", default=["check", "speed", "torch", "failures"],
                        choices=["check", "speed", "torch", "failures"])
    parser.add_argument("--out", type=Path, default=Path("nccl-acceptance.md"))
    options = parser.parse_args()
    bench = Bench(options)
    good = all([getattr(bench, part)() for part in options.parts])
    options.out.write_text("\n".join(bench.lines) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
