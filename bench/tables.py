#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of documents from the figures in bench/results, so that no page states what was not measured.

    bench/tables.py --write     rewrite the tables of all pages
    bench/tables.py --check     fail when one is not what its figures say
    bench/tables.py all-reduce 4    print a table; of other collectives: gpu all-gather, host all-gather

A table follows a line that says how it is made: <!-- bench/tables.py all-reduce 4 -->
"""
import argparse
import json
import pathlib
import re
import sys

import rounds
from bench_sizes import COLLECTIVES, SUFFIXES, format_size, parse_size

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
TABLE = re.compile(r"^(<!-- bench/tables\.py ([\w -]+) -->\n)((?:\|[^\n]*\n)*)", re.MULTILINE)
SIZES = [parse_size(size) for size in "1K 16K 64K 256K 1M 4M 16M 64M 256M 1G".split()]
SIZES_OF_PAGES = [parse_size(size) for size in "1K 4K 16K 64K 256K 1M 2M 4M".split()]  # of host ranks
KILO, MEGA = SUFFIXES["K"], SUFFIXES["M"]
# By the number of ranks: their GPUs, and the files with all-reduces and with the other collectives.
GPUS = {2: ("2 H200s", "gpu-h200x2.json", "gpu-h200x2.json"), 4: ("4 H100s", "gpu-h100-all-reduce.json", "gpu-h100-collectives.json")}
PYTORCH = ("pytorch-one-shot", "pytorch-two-shot")


def spaced(size):
    return re.sub(r"([KMG])$", r" \1", format_size(size))


def us(value):
    return "" if value is None else f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def over(value, other):
    return "" if value is None else f"{value / other:.2f}"


def markdown(head, rows):
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, *rows)).replace("\n", f"\n|{'---|' * len(head)}\n", 1)


def gpu_rows(collective, ranks):
    file = GPUS[ranks][1 if collective == "all-reduce" else 2]
    for group in json.loads((RESULTS / file).read_text())["groups"]:
        if (group.get("collective", "all-reduce"), group["ranks"], group["type"], group["mode"]) == (collective, ranks, "bf16", "chain"):
            return {row["bytes"]: row["times"] for row in group["rows"]}
    sys.exit(f"tables: {file} has no {collective} of {ranks} ranks, bf16, chain")


def best(times, names):
    """The shortest of the times that were measured, or None."""
    return min((times[name] for name in names if name in times), default=None)


def best_peer(times):
    return best(times, [name for name in times if not name.startswith("onehop")])


def all_reduce(ranks):
    """Microseconds of everybody, and ours over the best of the others: from ordinary and to symmetric memory."""
    rows = gpu_rows("all-reduce", int(ranks))
    lines = []
    for size in SIZES:
        times = rows[size]
        ours, symmetric = times["onehop"], times.get("onehop-symmetric")
        lines.append([spaced(size), us(ours), us(symmetric), *(us(best(times, names)) for names in (
            ("nccl", "nccl-2.32"), ("nccl-sym", "nccl-2.32-sym"), PYTORCH)),
                      over(ours, best_peer(times)), over(symmetric, best_peer(times))])
    return markdown(["bytes", "onehop", "onehop, symmetric", "NCCL", "NCCL, windows", "PyTorch", "onehop / best other",
                     "symmetric / best other"], lines)


def gpu(collective):
    """Microseconds of a collective, NCCL's best, and ours from ordinary memory over it, with 2 and with 4 ranks."""
    heads, lines = ["bytes"], {size: [spaced(size)] for size in SIZES}
    for ranks, (name, *_) in GPUS.items():
        rows = gpu_rows(collective, ranks)
        known = any("onehop-symmetric" in times for times in rows.values())
        heads += [f"{name}: onehop", *(["symmetric"] if known else []), "NCCL", "onehop / NCCL"]
        for size, cells in lines.items():
            ours, other = rows[size]["onehop"], best_peer(rows[size])
            cells += [us(ours), *([us(rows[size].get("onehop-symmetric"))] if known else []), us(other), over(ours, other)]
    return markdown(heads, list(lines.values()))


def host_rows():
    return json.loads((RESULTS / "host-16core-openmpi-collectives.json").read_text())["results"]


def verdict(row):
    return rounds.verdict(row["onehop_rounds_us"], row["openmpi_rounds_us"])


def verdicts(rows):
    """The numbers of rows that are ahead, even and behind."""
    found = [verdict(row) for row in rows]
    return [found.count(each) for each in rounds.VERDICTS]


def host(collective):
    """Microseconds of a collective between host ranks, and Open MPI's."""
    lines = {}
    for row in host_rows():
        if row["collective"] == collective and row["bytes"] in SIZES_OF_PAGES:
            cells = lines.setdefault(row["bytes"], [spaced(row["bytes"])])
            cells += [us(row["onehop_us"]), us(row["openmpi_us"]), over(row["onehop_us"], row["openmpi_us"])]
    heads = [f"{head}{ranks} ranks" for ranks in (2, 4) for head in ("onehop, ", "Open MPI, ", "ratio, ")]
    return markdown(["bytes", *heads], list(lines.values()))


def span(values):
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def gpu_collectives():
    """Ours over NCCL's best: from ordinary memory, short and long, and to symmetric memory where it was measured."""
    heads, lines = [""], [[collective] for collective in COLLECTIVES[1:]]
    for ranks, (gpus, *_) in GPUS.items():
        for head, name, low, high in (("up to 4 MB", "onehop", 0, 4 * MEGA), ("16 MB to 1 GB", "onehop", 16 * MEGA, 1024 * MEGA),
                                      ("256 MB to 1 GB, symmetric", "onehop-symmetric", 256 * MEGA, 1024 * MEGA)):
            columns = [[times[name] / best_peer(times) for size, times in gpu_rows(line[0], ranks).items() if low <= size <= high and name in times]
                       for line in lines]
            if any(columns):
                heads.append(f"{gpus}: {head}")
                for line, ratios in zip(lines, columns):
                    line.append(span(ratios) if ratios else "")
    return markdown(heads, lines)


def host_collectives():
    """Ours over Open MPI's."""
    results = host_rows()
    lines = []
    for collective in COLLECTIVES:
        cells = [collective]
        for ranks in (2, 4):
            for low, high in ((0, 16 * KILO), (64 * KILO, 4 * MEGA)):
                ratios = [row["onehop_us"] / row["openmpi_us"] for row in results
                          if (row["collective"], row["ranks"]) == (collective, ranks) and low <= row["bytes"] <= high]
                cells.append(span(ratios))
        lines.append(cells)
    return markdown(["", *(f"{ranks} ranks: {size}" for ranks in (2, 4) for size in ("1 to 16 KB", "64 KB to 4 MB"))], lines)


def host_verdicts():
    """In how many rows we are ahead of Open MPI, even with it, and behind."""
    results = host_rows()
    lines = []
    for collective in (*COLLECTIVES, "all"):
        cells = [collective]
        for ranks in (2, 4):
            cells += map(str, verdicts(row for row in results if row["ranks"] == ranks and collective in (row["collective"], "all")))
        lines.append(cells)
    return markdown(["", *(f"{ranks} ranks: {each}" for ranks in (2, 4) for each in rounds.VERDICTS)], lines)


def summary():
    """Ours over the best of the others, in a line for each kind of call."""
    lines = []

    def line(what, ratios, peers):
        faster = sum(ratio < 1 for ratio in ratios)
        lines.append([what, span(ratios), f"{faster} of {len(ratios)} sizes", peers])

    for ranks, (gpus, *_) in GPUS.items():
        # Without PyTorch at some sizes, ratios there would flatter us.
        rows = {size: times for size, times in gpu_rows("all-reduce", ranks).items() if best(times, PYTORCH)}
        for what, low, high in (("1 KB to 4 MB", 0, 4 * MEGA), ("over 4 MB to 1 GB", 4 * MEGA + 1, 1024 * MEGA)):
            line(f"all-reduce, {what}, {gpus}", [times["onehop"] / best_peer(times) for size, times in rows.items() if low <= size <= high],
                 "NCCL, PyTorch")
    for ranks, (gpus, *_) in GPUS.items():
        ratios = [times["onehop"] / best_peer(times) for collective in COLLECTIVES[1:] for times in gpu_rows(collective, ranks).values()]
        line(f"seven other collectives, 1 KB to 1 GB, {gpus}", ratios, "NCCL")
    results = host_rows()
    ahead, even, behind = verdicts(results)
    lines.append(["all eight collectives, 1 KB to 4 MB, 2 and 4 processes", span([row["onehop_us"] / row["openmpi_us"] for row in results]),
                  f"{ahead} of {len(results)} sizes, even at {even}, slower at {behind}", "Open MPI"])
    return markdown(["", "onehop's time / the fastest peer's", "faster at", "peers"], lines)


TABLES = {"summary": summary, "all-reduce": all_reduce, "gpu": gpu, "host": host, "gpu-collectives": gpu_collectives, "host-collectives": host_collectives,
          "host-verdicts": host_verdicts}


def make(command):
    name, *arguments = command.split()
    if name not in TABLES:
        sys.exit(f"tables: there is no table '{name}'; known: {' '.join(TABLES)}")
    return TABLES[name](*arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", nargs="*", help=f"a table to print: {' '.join(TABLES)}, with what it is of")
    parser.add_argument("--check", action="store_true", help="compare the tables of all pages with their figures")
    parser.add_argument("--write", action="store_true", help="rewrite them")
    arguments = parser.parse_args()
    if arguments.table:
        print(make(" ".join(arguments.table)), end="")
    if not (arguments.check or arguments.write):
        return
    seen = wrong = 0
    for page in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]):
        text = page.read_text()
        made = TABLE.sub(lambda match: match[1] + make(match[2]), text)
        seen += len(TABLE.findall(text))
        if made == text:
            continue
        if arguments.write:
            page.write_text(made)
        else:
            wrong += 1
            print(f"{page.relative_to(ROOT)}: a table is not what its figures say; run bench/tables.py --write")
    print(f"{seen} tables")
    if wrong or not seen:
        sys.exit(1)


if __name__ == "__main__":
    main()
