#!/usr/bin/env python3
"""Draws what bench/compare_openmpi.py measured: time per call over size, one panel per world size, as an SVG.

    bench/compare_openmpi.py --json compare.json && bench/plot_compare.py compare.json compare.svg
"""
import argparse
import html
import json
import math
import pathlib

WIDTH, HEIGHT = 420, 300  # of a panel's plotting area
LEFT, TOP, GAP, BOTTOM = 72, 84, 74, 76
SERIES = (("onehop", "onehop_us", "#0b62c4"), ("Open MPI", "openmpi_us", "#c4560b"))


def size_name(size):
    for suffix, unit in (("M", 1 << 20), ("K", 1 << 10)):
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
        return self.start + (self.end - self.start) * (math.log2(value) - self.low) / (self.high - self.low)


def text(x, y, content, style="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{html.escape(content)}</text>'


def panel(rows, left, y_scale, y_ticks):
    x_scale = Scale(rows[0]["bytes"], rows[-1]["bytes"], left, left + WIDTH)
    out = [text(left, TOP - 16, f'{rows[0]["ranks"]} ranks', "title")]
    for tick in y_ticks:
        y = y_scale(tick)
        out.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        out.append(text(left - 8, y + 4, time_name(tick), "tick", "end"))
    size = rows[0]["bytes"]
    while size <= rows[-1]["bytes"]:
        out.append(f'<line x1="{x_scale(size):.1f}" x2="{x_scale(size):.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" class="grid"/>')
        out.append(text(x_scale(size), TOP + HEIGHT + 18, size_name(size), "tick", "middle"))
        size *= 16
    for name, key, color in SERIES:
        points = " ".join(f'{x_scale(row["bytes"]):.1f},{y_scale(row[key]):.1f}' for row in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        for row in rows:
            out.append(f'<circle cx="{x_scale(row["bytes"]):.1f}" cy="{y_scale(row[key]):.1f}" r="3" fill="{color}">'
                       f'<title>{name}, {size_name(row["bytes"])}: {row[key]:.2f} µs</title></circle>')
    return out


def draw(report):
    rows = report["results"]
    panels = [[row for row in rows if row["ranks"] == ranks] for ranks in sorted({row["ranks"] for row in rows})]
    times = [row[key] for row in rows for _, key, _ in SERIES]
    low, high = 10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times)))
    y_scale = Scale(low, high, TOP + HEIGHT, TOP)
    y_ticks = [10**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]

    machine = report["machine"]
    rounds = len(rows[0]["onehop_rounds_us"])
    width = LEFT + len(panels) * (WIDTH + GAP) - GAP + 30
    height = TOP + HEIGHT + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           "<title>All-reduce between host ranks: time per call over size</title>",
           "<style>text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#333;font-size:13px}.head{font-size:17px;font-weight:600}"
           ".title{font-weight:600;font-size:15px}.tick{font-size:12px;fill:#555}.grid{stroke:#e4e4e4}</style>",
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           text(LEFT, 30, "All-reduce between processes, f32 sum: time per call (lower is better)", "head")]
    x = LEFT + WIDTH - 180
    for name, _, color in SERIES:
        out.append(f'<line x1="{x}" x2="{x + 24}" y1="{TOP - 21}" y2="{TOP - 21}" stroke="{color}" stroke-width="3"/>')
        out.append(text(x + 30, TOP - 16, name))
        x += 96
    for index, part in enumerate(panels):
        out += panel(part, LEFT + index * (WIDTH + GAP), y_scale, y_ticks)
    version = report["openmpi"].rsplit(" ", 1)[-1]
    out.append(text(LEFT, height - 30, f'{machine["cpu"]}, {machine["cores"]} cores, {machine["kernel"]}', "tick"))
    out.append(text(LEFT, height - 13, f'bench/compare_openmpi.py --rounds {rounds}: median of {rounds} round{"s" * (rounds > 1)}; '
                    f'onehop {report["onehop_commit"]}, Open MPI {version}', "tick"))
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=pathlib.Path, help="what compare_openmpi.py --json wrote")
    parser.add_argument("svg", type=pathlib.Path, help="the picture to write")
    arguments = parser.parse_args()
    arguments.svg.write_text(draw(json.loads(arguments.report.read_text())))


if __name__ == "__main__":
    main()
