#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares onehop's host collectives with Open MPI's shared-memory ones on the same cores in the same session.

Both are measured in the same way (see bench/peers/mpi_collective.c) and take turns, so that a busy machine hurts both; the
figure of each is the median over the rounds of its median time per call, with the spread of the rounds (the slowest over
the fastest). A row whose rounds overlap is even. Where there is a core for every rank, both pin each rank to one.

    bench/compare_openmpi.py [--collectives all-reduce] [--ranks 2,4] [--sizes 1K:64M:4] [--rounds 7] [--json FILE]
"""
import argparse
import collections
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from bench_sizes import COLLECTIVES, format_size, name_of, sizes_of
from report_files import write
from rounds import VERDICTS, spread, verdict

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if result.returncode != 0:
        sys.exit(f"compare_openmpi: {' '.join(map(str, command))} failed:\n{result.stderr.strip()}")
    return result.stdout


def has_core_each(ranks):
    return ranks <= len(os.sched_getaffinity(0))


def measure_onehop(build, collective, ranks, sizes):
    binding = ["--bind", "cores"] if has_core_each(ranks) else []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "report.json")
        run([build / "tools/onehop/onehop", "bench", collective, "--device", "host", "--ranks", str(ranks), "--sizes",
             ",".join(map(str, sizes)), "--json", file, *binding])
        report = json.loads(file.read_text())
    return {row["bytes"]: row["time_us"]["median"] for row in report["results"]}, report


def measure_openmpi(build, collective, ranks, sizes):
    command = ["mpirun", "-n", str(ranks)]
    command += ["--bind-to", "core"] if has_core_each(ranks) else ["--oversubscribe"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    rows = run(command + [build / "bench/mpi_collective", collective] + list(map(str, sizes))).splitlines()
    return {int(row.split()[0]): float(row.split()[1]) for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collectives", default="all-reduce", help="a list, or all (default all-reduce)")
    parser.add_argument("--ranks", default="2,4", help="world sizes (default 2,4)")
    parser.add_argument("--sizes", default="1K:64M:4", help="bytes, a list or first:last:factor (default 1K:64M:4)")
    parser.add_argument("--rounds", type=int, default=7, help="turns each side takes (default 7)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="build directory")
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures here")
    arguments = parser.parse_args()
    try:
        sizes = sizes_of(arguments.sizes)
    except ValueError as error:
        parser.error(f"--sizes: {error}")
    collectives = COLLECTIVES if arguments.collectives == "all" else arguments.collectives.split(",")

    version = run(["mpirun", "--version"]).splitlines()[0]
    figures = []
    machine = commit = None
    for collective, ranks in itertools.product(collectives, map(int, arguments.ranks.split(","))):
        # By the size that was measured, which is a whole number of blocks; both sides round in the same way.
        ours, theirs = collections.defaultdict(list), collections.defaultdict(list)
        for _ in range(arguments.rounds):
            times, report = measure_onehop(arguments.build, collective, ranks, sizes)
            machine, commit = report["machine"], report["onehop"]["commit"]
            for size, time in times.items():
                ours[size].append(time)
            for size, time in measure_openmpi(arguments.build, collective, ranks, sizes).items():
                theirs[size].append(time)
        what = name_of(collective, ranks, "f32", report["run"]["op"])
        print(f"\n{what}, {arguments.rounds} rounds: onehop {commit} and {version}")
        print(f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}")
        print(f"{'bytes':>8} {'onehop us':>12} {'Open MPI us':>12} {'ours/theirs':>12} {'spreads':>11}  rounds")
        verdicts = collections.Counter()
        for size in ours:
            mine, other = statistics.median(ours[size]), statistics.median(theirs[size])
            said = verdict(ours[size], theirs[size])
            verdicts[said] += 1
            spreads = spread(ours[size]), spread(theirs[size])
            print(f"{format_size(size):>8} {mine:12.2f} {other:12.2f} {mine / other:12.2f} {spreads[0]:5.2f} {spreads[1]:5.2f}  {said}", flush=True)
            figures.append({"collective": collective, "ranks": ranks, "bytes": size, "onehop_us": mine, "openmpi_us": other,
                            "onehop_rounds_us": ours[size], "openmpi_rounds_us": theirs[size],
                            "onehop_spread": spreads[0], "openmpi_spread": spreads[1], "verdict": said})
        print(f"onehop is {', '.join(f'{each} at {verdicts[each]}' for each in VERDICTS)} of {len(ours)} sizes")
    if arguments.json:
        write(arguments.json, json.dumps(
            {"machine": machine, "onehop_commit": commit, "openmpi": version, "results": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
