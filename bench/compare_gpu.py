#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lays reports of `onehop bench --device cuda` and of bench/peers/torch_symm_mem.py side by side.

Reports of the same collective, ranks, type, op and mode become one table: microseconds per call, and ours over the best of the others.

    bench/compare_gpu.py results/*.json [--json compared.json]
"""
import argparse
import json
import pathlib

from bench_sizes import MEASURABLE, format_size
from plot_compare import draw, gpu_picture, group_name, is_peer, openmpi_picture
from report_files import made_of, read_report, stop, write

OURS = "onehop"
ORDER = (OURS, "nccl", "nccl-sym", "pytorch-one-shot", "pytorch-two-shot")


def own_name(run):
    """Of our figures in a report: the plain call is "onehop", anything else says in what it differs."""
    special = []
    if run["algorithm"] != "auto":
        special.append(run["algorithm"])
    if run["buffers"] != "ordinary":
        special.append(run["buffers"])
    if run["in_place"]:
        special.append("in-place")
    if run.get("cold"):
        special.append("cold")
    if run.get("parts", 1) != 1:
        special.append(f'{run["parts"]}-parts')
    if run.get("root"):
        special.append(f'root-{run["root"]}')
    return "-".join([OURS, *special])


def merge(reports):
    """Groups of {"collective", "ranks", "type", "op", "mode", "names", "rows"}; a row's times are {name: us}."""
    groups = {}
    for report in reports:
        run = report["run"]
        key = (MEASURABLE.index(run["collective"]), run["ranks"], run["type"], run["op"], run.get("mode", "chain"))
        rows = groups.setdefault(key, {})
        for result in report["results"]:
            times = rows.setdefault(result["bytes"], {})
            if "time_us" in result:
                times[own_name(run)] = result["time_us"]["median"]
            for name, peer in result.get("peers", {}).items():
                # The same peer may have been measured beside several of ours: the faster counts for it.
                times[name] = min(peer["time_us"]["median"], times.get(name, float("inf")))
    merged = []
    for (collective, ranks, dtype, op, mode), rows in sorted(groups.items(), key=lambda item: item[0]):
        seen = {name for times in rows.values() for name in times}
        names = [name for name in ORDER if name in seen] + sorted(seen - set(ORDER))
        names.sort(key=is_peer)
        merged.append({"collective": MEASURABLE[collective], "ranks": ranks, "type": dtype, "op": op, "mode": mode, "names": names,
                       "rows": [{"bytes": size, "times": rows[size], "ratio": ratio(rows[size])} for size in sorted(rows)]})
    return merged


def ratio(times):
    """Our plain call (or the best of what else we have) over the best of the others; None when one side is missing."""
    ours = [us for name, us in times.items() if not is_peer(name)]
    others = [us for name, us in times.items() if is_peer(name)]
    return times.get(OURS, min(ours)) / min(others) if ours and others else None


def table(group):
    lines = [f"{group_name(group)}: us per call"]
    widths = [max(len(name), 9) for name in group["names"]]
    lines.append(f'{"bytes":>7} ' + " ".join(f"{name:>{width}}" for name, width in zip(group["names"], widths)) + f' {"ours/best":>9}')
    for row in group["rows"]:
        cells = [f'{row["times"][name]:{width}.2f}' if name in row["times"] else f'{"-":>{width}}'
                 for name, width in zip(group["names"], widths)]
        best = f'{row["ratio"]:9.2f}' if row["ratio"] else f'{"-":>9}'
        lines.append(f'{format_size(row["bytes"]):>7} ' + " ".join(cells) + f" {best}")
    return "\n".join(lines)


def machines(reports):
    """What measured, one line for each that differs."""
    lines = []
    for report in reports:
        gpus = report["machine"].get("gpus", {})
        names = gpus.get("names", [])
        version = report.get("onehop") or report.get("library")
        line = f'{version.get("name", "onehop")} {version["version"]}'
        if version.get("commit"):
            line += f' ({version["commit"]})'
        if names:
            line += f": {names[0]}, CUDA {gpus.get('cuda', '?')}"
        line += "".join(f", {label} {gpus[key]}" for key, label in (("driver", "driver"), ("nccl", "NCCL")) if gpus.get(key))
        if line not in lines:
            lines.append(line)
    return lines


def read_reports(paths):
    reports = []
    for path in paths:
        report = read_report(path)
        if report.get("format") != "onehop-bench":
            stop(f"{path} is no report of onehop bench")
        reports.append(report)
    return reports


def self_test():
    def report(results, **run):
        plain = {"collective": "all-reduce", "ranks": 4, "type": "bf16", "op": "sum", "mode": "chain", "algorithm": "auto", "buffers": "ordinary", "in_place": False}
        gpus = {"names": ["GPU"], "cuda": "13.0", "driver": "580", "nccl": "2.28.9"}
        return {"format": "onehop-bench", "onehop": {"version": "1", "commit": "abc"}, "machine": {"gpus": gpus},
                "run": plain | run, "results": results}

    def us(value):
        return {"time_us": {"median": value}}

    reports = [
        report([{"bytes": 1024, **us(2.0), "peers": {"nccl": us(8.0), "nccl-sym": us(5.0)}}, {"bytes": 4096, **us(3.0)}]),
        report([{"bytes": 1024, **us(1.5), "peers": {"nccl": us(9.0)}}], buffers="symmetric"),
        report([{"bytes": 1024, "peers": {"pytorch-one-shot": us(6.0)}}], buffers="symmetric"),
        report([{"bytes": 1024, **us(7.0)}], mode="isolated"),
        report([{"bytes": 1024, **us(4.0)}], collective="broadcast", op="none", root=0),
        report([{"bytes": 1024, **us(6.0)}], collective="broadcast", op="none", root=3),
    ]
    merged = merge(reports)
    assert machines(reports) == ["onehop 1 (abc): GPU, CUDA 13.0, driver 580, NCCL 2.28.9"], machines(reports)
    chain, isolated, broadcast = merged
    assert chain["names"] == ["onehop", "onehop-symmetric", "nccl", "nccl-sym", "pytorch-one-shot"], chain["names"]
    first, second = chain["rows"]
    assert first["times"]["nccl"] == 8.0 and first["ratio"] == 2.0 / 5.0, first
    assert second["ratio"] is None and isolated["mode"] == "isolated"
    text = table(chain).splitlines()
    assert text[0] == "4 ranks, bf16 sum, chain: us per call" and text[2].split() == "1K 2.00 1.50 8.00 5.00 6.00 0.40".split(), text
    assert text[3].split() == "4K 3.00 - - - - -".split(), text
    text = table(broadcast).splitlines()
    assert text[0] == "broadcast, 4 ranks, bf16, chain: us per call" and text[1].split()[1:3] == ["onehop", "onehop-root-3"], text
    of_all_reduce = gpu_picture({"groups": [chain, {name: isolated[name] for name in isolated if name != "collective"}]})
    assert of_all_reduce["head"].startswith("All-reduce between GPUs"), "as files from before there were others are read"
    assert gpu_picture({"groups": [broadcast]})["head"].startswith("Broadcast between GPUs")
    rows = [{"ranks": 2, "bytes": 1024, "onehop_us": 1.0, "openmpi_us": 2.0, "onehop_rounds_us": [1.0]}]
    host = {"machine": {"cpu": "CPU", "cores": 2, "kernel": "Linux"}, "openmpi": "Open MPI 4", "onehop_commit": "abc"}
    assert [title for title, _ in openmpi_picture(host | {"results": rows})["panels"]] == ["all-reduce"]
    rows.append(rows[0] | {"collective": "scatter"})
    assert [title for title, _ in openmpi_picture(host | {"results": rows})["panels"]] == ["all-reduce", "scatter"]
    picture = draw(gpu_picture({"groups": merged, "machines": machines(reports)}))
    assert picture.count("class=\"mark") == 5 and ">PyTorch<" in picture and "Collectives between GPUs" in picture, picture
    print("ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", type=pathlib.Path, nargs="*", help="JSON files")
    parser.add_argument("--json", type=pathlib.Path, help="also write the tables here")
    parser.add_argument("--self-test", action="store_true", help="check this script")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not arguments.reports:
        parser.error("no reports given")
    reports = read_reports(arguments.reports)
    with made_of(arguments.reports):
        merged = merge(reports)
        lines = machines(reports)
        tables = "\n\n".join(table(group) for group in merged)
    print("\n".join(lines) + "\n")
    print(tables)
    if arguments.json:
        write(arguments.json, json.dumps({"format": "onehop-comparison", "machines": lines, "groups": merged}, indent=1) + "\n")


if __name__ == "__main__":
    main()
