#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of the command on GPUs: every collective, in turns, so that both see the same machine.

    bench/compare_builds.py OLD NEW [--ranks N] [--rounds N] [--threads] [--seconds S] [--json FILE]

OLD and NEW are `onehop` commands. Prints the fastest median of each size with either, their ratio, and how many sizes
became more than 1% slower. Results are verified in the first round. Exit code 1 if a run fails.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from report_files import write

# Collective, type, sizes and further options.
CALLS = [
    ("all-reduce", "bf16", "1K:1G:4", []),
    ("all-reduce", "i32", "1K:256M:4", []),
    ("all-reduce", "f32", "1K:64M:4", ["--in-place"]),
    ("all-reduce", "bf16", "64M:1G:4", ["--buffers", "symmetric"]),
    ("reduce-scatter", "bf16", "1K:256M:4", []),
    ("all-gather", "bf16", "1K:256M:4", []),
    ("broadcast", "bf16", "1K:256M:4", []),
    ("reduce", "bf16", "1K:256M:4", []),
    ("all-to-all", "bf16", "1K:256M:4", []),
    ("all-gather", "bf16", "64M:1G:4", ["--buffers", "symmetric"]),
]
TOLERANCE = 1.01


def measure(command, ranks, call, further):
    """Times in us by size."""
    collective, dtype, sizes, extra = call
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "report.json")
        line = [command, "bench", collective, "--device", "cuda", "--ranks", str(ranks), "--type", dtype, "--sizes",
                sizes, "--iters", "20", "--json", str(out), *extra, *further]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(line)}: {done.stdout[-400:]}{done.stderr[-400:]}")
        return {row["bytes"]: row["time_us"]["median"] for row in json.loads(out.read_text(encoding="utf-8"))["results"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", action="store_true", help="ranks are threads, as they must be to share a GPU")
    parser.add_argument("--seconds", type=float, default=300, help="no further run begins after this time")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go")
    options = parser.parse_args()
    begin = time.monotonic()
    best = {}
    for number in range(options.rounds):
        further = (["--threads"] if options.threads else []) + (["--no-check"] if number > 0 else [])
        for call in CALLS:
            builds = [("old", options.old), ("new", options.new)]
            for name, command in builds if number % 2 == 0 else reversed(builds):
                if time.monotonic() - begin > options.seconds:
                    continue
                for size, us in measure(command, options.ranks, call, further).items():
                    times = best.setdefault((call[0], call[1], " ".join(call[3]), size), {})
                    times[name] = min(us, times.get(name, us))
    rows = [(*key, times["old"], times["new"]) for key, times in best.items() if len(times) == 2]
    print(f"{'collective':14} {'type':4} {'options':20} {'bytes':>11} {'old us':>9} {'new us':>9}  ratio")
    for collective, dtype, extra, size, old, new in rows:
        print(f"{collective:14} {dtype:4} {extra:20} {size:11} {old:9.2f} {new:9.2f} {new / old:6.3f}"
              f"{'  slower' if new > TOLERANCE * old else ''}")
    print(f"{sum(new > TOLERANCE * old for *_, old, new in rows)} of {len(rows)} sizes are more than 1% slower, "
          f"{sum(old > TOLERANCE * new for *_, old, new in rows)} more than 1% faster")
    if options.json:
        write(options.json, json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        sys.exit(f"compare_builds: {error}")
