#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/compare_openmpi.py or bench/compare_gpu.py wrote: time per call over size, as an SVG.

    bench/compare_openmpi.py --json compare.json && bench/plot_compare.py compare.json compare.svg
    bench/compare_gpu.py results/*.json --json compared.json && bench/plot_compare.py compared.json compared.svg
"""
import argparse
import html
import json
import math
import pathlib
import sys

from bench_sizes import COLLECTIVES, name_of

WIDTH, HEIGHT = 420, 300  # of a panel's plotting area
LEFT, TOP, GAP, BOTTOM = 72, 96, 74, 48
COLUMNS = 2
COLORS = {"onehop": "#0b62c4", "Open MPI": "#c4560b", "nccl": "#c4560b", "nccl-sym": "#7a3fb5", "pytorch-one-shot": "#2b8a3e",
          "pytorch-two-shot": "#8a6d1d"}
SPARE_COLORS = ("#4a9be8", "#123f73", "#6a737d", "#b5307a")


def size_name(size):
    for suffix, unit in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size % unit == 0:
            return f"{size // unit} {suffix}B"
    return f"{size} B"


def time_name(us):
    return f"{us:g} µs" if us < 1000 else f"{us / 1000:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


class Scale:
    """Logarithmic, from the range of the data to that of the picture."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = math.log2(low), math.log2(high), start, end

    def __call__(self, value):
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((math.log2(value) - self.low) / span if span else 0.5)


def text(x, y, content, style="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{html.escape(content)}</text>'


def collective_of(part):
    """Of a row or group; files from before there were others say nothing."""
    return part.get("collective", COLLECTIVES[0])


def group_name(group):
    return f'{name_of(collective_of(group), group["ranks"], group["type"], group["op"])}, {group["mode"]}'


def headline(parts):
    """What the picture is of: "All-reduce", or whatever there are several of."""
    names = {collective_of(part) for part in parts}
    return names.pop().capitalize() if len(names) == 1 else "Collectives"


def openmpi_picture(report):
    rows = report["results"]
    subject = headline(rows)
    panels = []
    for collective, ranks in sorted({(COLLECTIVES.index(collective_of(row)), row["ranks"]) for row in rows}):
        part = [row for row in rows if row["ranks"] == ranks and collective_of(row) == COLLECTIVES[collective]]
        title = f"{ranks} ranks" if subject != "Collectives" else f"{COLLECTIVES[collective]}, {ranks} ranks"
        panels.append((title, {"onehop": [(row["bytes"], row["onehop_us"]) for row in part],
                               "Open MPI": [(row["bytes"], row["openmpi_us"]) for row in part]}))
    machine, rounds = report["machine"], len(rows[0]["onehop_rounds_us"])
    version = report["openmpi"].rsplit(" ", 1)[-1]
    elements = "f32 sum" if "reduce" in subject.lower() else "f32"
    return {"title": f"{subject} between host ranks: time per call over size",
            "head": f"{subject} between processes, {elements}: time per call (lower is better)", "panels": panels,
            "feet": [f'{machine["cpu"]}, {machine["cores"]} cores, {machine["kernel"]}',
                     f'bench/compare_openmpi.py --rounds {rounds}: median of {rounds} round{"s" * (rounds > 1)}; '
                     f'onehop {report["onehop_commit"]}, Open MPI {version}']}


def gpu_picture(comparison):
    panels = []
    for group in comparison["groups"]:
        series = {name: [(row["bytes"], row["times"][name]) for row in group["rows"] if name in row["times"]]
                  for name in group["names"]}
        panels.append((group_name(group), series))
    subject = headline(comparison["groups"])
    return {"title": f"{subject} between GPUs: time per call over size",
            "head": f"{subject} between GPUs: time per call (lower is better)", "panels": panels,
            "feet": ["The slowest rank, median over replays.", *comparison.get("machines", [])]}


def panel(title, series, colors, left, top, y_range):
    sizes = sorted({size for points in series.values() for size, _ in points if size > 0})
    x_scale = Scale(sizes[0], sizes[-1], left, left + WIDTH)
    y_scale = Scale(*y_range, top + HEIGHT, top)
    out = [text(left, top - 16, title, "title")]
    for power in range(round(math.log10(y_range[0])), round(math.log10(y_range[1])) + 1):
        y = y_scale(10**power)
        out.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        out.append(text(left - 8, y + 4, time_name(10**power), "tick", "end"))
    size = sizes[0]
    while size <= sizes[-1]:
        out.append(f'<line x1="{x_scale(size):.1f}" x2="{x_scale(size):.1f}" y1="{top}" y2="{top + HEIGHT}" class="grid"/>')
        out.append(text(x_scale(size), top + HEIGHT + 18, size_name(size), "tick", "middle"))
        size *= 16
    for name, points in series.items():
        points = [(size, us) for size, us in points if size > 0]
        line = " ".join(f"{x_scale(size):.1f},{y_scale(us):.1f}" for size, us in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colors[name]}" stroke-width="2.5"/>')
        for size, us in points:
            out.append(f'<circle cx="{x_scale(size):.1f}" cy="{y_scale(us):.1f}" r="3" fill="{colors[name]}">'
                       f"<title>{html.escape(name)}, {size_name(size)}: {us:.2f} µs</title></circle>")
    return out


def lay_out(names, width):
    """Where each name of the legend begins, and in which of its rows."""
    places, x, row = [], LEFT, 0
    for name in names:
        needed = 56 + 7.5 * len(name)
        if x + needed > width and x > LEFT:
            x, row = LEFT, row + 1
        places.append((x, row))
        x += needed
    return places


def draw(picture):
    panels = picture["panels"]
    names = list(dict.fromkeys(name for _, series in panels for name in series))
    spare = iter(SPARE_COLORS * len(names))
    colors = {name: COLORS.get(name) or next(spare) for name in names}
    times = [us for _, series in panels for points in series.values() for size, us in points if size > 0]
    y_range = 10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times)))

    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    width = LEFT + columns * (WIDTH + GAP) - GAP + 30
    legend = lay_out(names, width)
    top = TOP + 20 * max(row for _, row in legend)
    height = top + lines * (HEIGHT + GAP) - GAP + BOTTOM + 17 * len(picture["feet"])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           f'<title>{html.escape(picture["title"])}</title>',
           "<style>text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#333;font-size:13px}.head{font-size:17px;font-weight:600}"
           ".title{font-weight:600;font-size:15px}.tick{font-size:12px;fill:#555}.grid{stroke:#e4e4e4}</style>",
           f'<rect width="{width}" height="{height}" fill="#fff"/>', text(LEFT, 30, picture["head"], "head")]
    for name, (x, row) in zip(names, legend):
        y = 51 + 20 * row
        out.append(f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{colors[name]}" stroke-width="3"/>')
        out.append(text(x + 30, y + 5, name))
    for index, (title, series) in enumerate(panels):
        out += panel(title, series, colors, LEFT + index % columns * (WIDTH + GAP), top + index // columns * (HEIGHT + GAP), y_range)
    for index, line in enumerate(picture["feet"]):
        out.append(text(LEFT, height - 13 - 17 * (len(picture["feet"]) - 1 - index), line, "tick"))
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=pathlib.Path, help="what compare_openmpi.py --json or compare_gpu.py --json wrote")
    parser.add_argument("svg", type=pathlib.Path, help="the picture to write")
    parser.add_argument("--only", default="", metavar="TEXT", help="panels whose title has this in it, such as 'bf16 sum, chain'")
    arguments = parser.parse_args()
    report = json.loads(arguments.report.read_text())
    if report.get("format") == "onehop-comparison":
        picture = gpu_picture(report)
    elif "openmpi" in report:
        picture = openmpi_picture(report)
    else:
        sys.exit(f"plot_compare: {arguments.report} is neither comparison; run compare_gpu.py on reports of onehop bench first")
    picture["panels"] = [panel for panel in picture["panels"] if arguments.only in panel[0]]
    if not picture["panels"]:
        sys.exit(f"plot_compare: no panel of {arguments.report} has '{arguments.only}' in its title")
    arguments.svg.write_text(draw(picture))


if __name__ == "__main__":
    main()
