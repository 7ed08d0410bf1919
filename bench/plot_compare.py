#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/compare_openmpi.py, bench/compare_gpu.py or `python -m onehop.bench.decode` wrote, as an SVG.

    bench/compare_openmpi.py --json compare.json && bench/plot_compare.py compare.json compare.svg
    bench/compare_gpu.py results/*.json --json compared.json && bench/plot_compare.py compared.json compared.svg
    python -m onehop.bench.decode --ranks 2 --json decode.json && bench/plot_compare.py decode.json decode.svg

Curves are of time over size, or of tokens per second over the batch, relative to the fastest peer. Several reports of decode make a
picture with a panel for each: bench/plot_compare.py two.json four.json decode.svg.

Each curve has a color, a mark and its name at its end; a browser that prefers dark pages gets other colors. A panel has at most
five curves; what else was measured is named below the picture.
"""
import argparse
import contextlib
import html
import io
import json
import math
import pathlib
import re
import sys
import tempfile
import textwrap
import unittest.mock

from bench_sizes import MEASURABLE, name_of, sizes_of
from report_files import made_of, read_report, stop, write

MARGIN = 16
AXIS = 50  # left of a panel's plotting area, for the labels of the values
WIDTH, HEIGHT = 330, 250  # of the plotting area
NAMES = 18  # right of it, before the names of the curves
TITLE, SIZES = 34, 30  # above and below it
GAP = 14
LINE = 18
MOST_CURVES = 5
SIZE = {"head": 17, "title": 15, "tick": 13, "name": 14}  # of the fonts, in pixels
# The mean width of a character over the font's size; of wide fonts, since nobody knows what a browser has.
CHARACTER = {"head": 0.64, "title": 0.64, "tick": 0.57, "name": 0.64}

# Name, color on light and on dark pages, mark.
LOOKS = {
    "onehop": ("onehop", "#0b62c4", "#5aa6ff", "circle"),
    "onehop-symmetric": ("onehop (sym.)", "#00757a", "#3fd0c4", "square"),
    "nccl": ("NCCL", "#b4460b", "#ff9a5c", "triangle"),
    "nccl-sym": ("NCCL, windows", "#7a3fb5", "#c39bf0", "diamond"),
    "pytorch": ("PyTorch", "#2b7a38", "#69db7c", "cross"),
    "onehop-dist": ("onehop, dist", "#00757a", "#3fd0c4", "square"),
    "symm-one-shot": ("PyTorch, one-shot", "#2b7a38", "#69db7c", "cross"),
    "symm-two-shot": ("PyTorch, two-shot", "#7a3fb5", "#c39bf0", "diamond"),
    "gloo": ("gloo", "#b4460b", "#ff9a5c", "triangle"),
    "2 ranks": ("2 ranks", "#0b62c4", "#5aa6ff", "circle"),
    "4 ranks": ("4 ranks", "#b4460b", "#ff9a5c", "triangle"),
}
SPARE_LOOKS = (("#57606a", "#adb5bd", "square"), ("#a3286c", "#f284bd", "diamond"))
# Which of our curves to leave out first: the last ones.
OURS = ("onehop", "onehop-symmetric")

STYLE = """text{font:13px system-ui,'DejaVu Sans',sans-serif;fill:#24292f}.head{font-size:17px;font-weight:600}
.title{font-weight:600;font-size:15px}.tick{fill:#57606a}.name{font-size:14px;font-weight:600}
.page{fill:#fff}.grid{stroke:#e4e7eb}.peer{stroke:#57606a;stroke-width:1.5;stroke-dasharray:5 3}.lead{stroke-width:1;opacity:.6}
polyline{fill:none;stroke-width:2.2;stroke-linejoin:round}.mark{stroke:none}.cross{fill:none;stroke-width:2.4}"""
DARK = """text{fill:#e6edf3}.tick{fill:#9aa4af}.page{fill:#0d1117}.grid{stroke:#2b3138}.peer{stroke:#9aa4af}"""


def size_name(size):
    for suffix, unit in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size % unit == 0:
            return f"{size // unit} {suffix}B"
    return f"{size} B"


# How the values of the horizontal axis are written, and the factor from one label to the next.
BYTES = (size_name, 16)
BATCHES = (str, 2)


class Scale:
    """Logarithmic, from the range of the data to that of the picture."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = math.log2(low), math.log2(high), start, end

    def __call__(self, value):
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((math.log2(value) - self.low) / span if span else 0.5)


def text(x, y, content, style="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{html.escape(content)}</text>'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def mark(kind, x, y, style, title):
    inside = f"<title>{html.escape(title)}</title>"
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="mark {style}">{inside}</circle>'
    path = {"square": "m-3.7-3.7h7.4v7.4h-7.4z", "triangle": "m0-4.9l4.7 8.2h-9.4z", "diamond": "m0-5l5 5-5 5-5-5z",
            "cross": "m-3.6-3.6l7.2 7.2m0-7.2l-7.2 7.2"}[kind]
    return f'<path d="M{x:.1f} {y:.1f}{path}" class="mark {kind} {style}">{inside}</path>'


def taken(content, style):
    return len(content) * SIZE[style] * CHARACTER[style]


def wrapped(content, width, style):
    return textwrap.wrap(content, max(int(width / (CHARACTER[style] * SIZE[style])), 20))


def collective_of(part):
    """Of a row or group; files from before there were others say nothing."""
    return part.get("collective", MEASURABLE[0])


def group_name(group):
    return f'{name_of(collective_of(group), group["ranks"], group["type"], group["op"])}, {group["mode"]}'


def titles(groups):
    """Of their panels. If there are other collectives, all-reduce does not go without saying."""
    several = len({collective_of(group) for group in groups}) > 1
    return [("all-reduce, " if several and collective_of(group) == "all-reduce" else "") + group_name(group) for group in groups]


def headline(parts):
    """What the picture is of: "All-reduce", or whatever there are several of."""
    names = {collective_of(part) for part in parts}
    return names.pop().capitalize() if len(names) == 1 else "Collectives"


def openmpi_picture(report):
    rows = report["results"]
    subject = headline(rows)
    panels = []
    for collective in sorted({collective_of(row) for row in rows}, key=MEASURABLE.index):
        series = {}
        for row in rows:
            if collective_of(row) == collective:
                series.setdefault(f'{row["ranks"]} ranks', []).append((row["bytes"], row["onehop_us"] / row["openmpi_us"]))
        panels.append((collective, series))
    machine, rounds = report["machine"], len(rows[0]["onehop_rounds_us"])
    version = report["openmpi"].rsplit(" ", 1)[-1]
    elements = "f32 sum" if "reduce" in subject.lower() else "f32"
    return {"head": f"{subject} between processes, {elements}: onehop's time relative to Open MPI's", "panels": panels,
            "baseline": f"Open MPI {version}", "left_out": [],
            "feet": [f'{machine["cpu"]}, {machine["cores"]} cores, {machine["kernel"]}. Median of {rounds} '
                     f'round{"s" * (rounds > 1)}; onehop {report["onehop_commit"]}.']}


def is_peer(name):
    return not name.startswith("onehop")


def curve_of(name):
    """Both ways of PyTorch are one curve, and so are versions of NCCL ("nccl", "nccl-2.32"): the faster one counts."""
    return "pytorch" if name.startswith("pytorch") else re.sub(r"^nccl-\d[\d.]*", "nccl", name)


def relative(group):
    """{name: [(bytes, time over that of the fastest peer)]} of a group of compare_gpu.py, at sizes at which all peers were measured."""
    series = {}
    everybody = {curve_of(name) for row in group["rows"] for name in row["times"] if is_peer(name)}
    for row in group["rows"]:
        times = {}
        for name, us in row["times"].items():
            times[curve_of(name)] = min(us, times.get(curve_of(name), us))
        if not everybody <= times.keys():
            continue
        peers = [us for name, us in times.items() if is_peer(name)]
        for name, us in times.items() if peers and row["bytes"] > 0 else ():
            series.setdefault(name, []).append((row["bytes"], us / min(peers)))
    return series


def most_telling(series):
    """At most MOST_CURVES: ours in the order of OURS as far as there is room beside the peers; and the names of the rest."""
    rank = {name: index for index, name in enumerate((*OURS, *(name for name in LOOKS if name not in OURS)))}
    names = sorted(series, key=lambda name: (rank.get(name, len(rank)), name))
    peers = [name for name in names if is_peer(name)][:MOST_CURVES - 1]
    ours = [name for name in names if not is_peer(name)][:MOST_CURVES - len(peers)]
    if "onehop-symmetric" in ours and "onehop-registered" in ours:
        ours.remove("onehop-registered")  # the same to within a percent
    chosen = ours + peers
    return {name: series[name] for name in chosen}, [name for name in names if name not in chosen]


def merged(machines):
    """Lines that differ in the commit only, as one: "onehop 0.1.0 (abc, def): GPU, CUDA 13.0"."""
    lines = {}
    for machine in machines:
        found = re.fullmatch(r"([^(]*)\((\w+)\)(:.*)", machine)
        lines.setdefault((found[1], found[3]) if found else machine, []).append(found[2] if found else "")
    return [f"{key[0]}({', '.join(commits)}){key[1]}" if isinstance(key, tuple) else key for key, commits in lines.items()]


def gpu_picture(comparison, only=""):
    groups = [(title, group) for title, group in zip(titles(comparison["groups"]), comparison["groups"]) if only in title]
    panels, left_out = [], []
    for title, group in groups:
        series, rest = most_telling(relative(group))
        if series:
            panels.append((title, series))
        left_out += [name for name in rest if name not in left_out]
    return {"head": f"{headline([group for _, group in groups])} between GPUs: time relative to the fastest peer", "panels": panels,
            "baseline": "the fastest peer at that size", "left_out": left_out,
            "feet": ["The slowest rank, median over replays. No side used multicast (NVLS). sym.: symmetric memory is promised; windows: NCCL's "
                     "symmetric windows. Of several versions the faster one.", *merged(comparison.get("machines", []))]}


def decode_title(report):
    run = report["run"]
    return f'{run["ranks"]} ranks, {run["dtype"]}, hidden {run["hidden"]}, {run["layers"]} layers'


def decode_picture(reports):
    """Tokens per second over those of the fastest peer: more is better."""
    panels, machines = [], []
    for report in reports:
        series = {}
        for row in report["results"]:
            rates = {name: each["tokens_per_s"] for name, each in row["engines"].items()}
            peers = [rate for name, rate in rates.items() if is_peer(name)]
            for name, rate in rates.items() if peers else ():
                series.setdefault(name, []).append((row["batch"], rate / max(peers)))
        if series:
            panels.append((decode_title(report), most_telling(series)[0]))
        machine, versions, onehop = report["machine"], report["versions"], report["onehop"]
        place = f'{machine["gpus"]["names"][0]}, driver {machine["gpus"]["driver"]}' if "gpus" in machine else machine["cpu"]
        known = ", ".join(f"{name} {versions[name]}" for name in ("torch", "nccl") if name in versions)
        machines.append(f'onehop {onehop["version"]} ({onehop["commit"] or "unknown"}): {place}; {known}')
    run = reports[0]["run"]
    graphs = "a CUDA graph per step" if run["graphs"] else "no CUDA graphs"
    return {"head": "Decoding: tokens per second relative to the fastest peer, by sequences in the batch", "panels": panels,
            "baseline": "the fastest peer with that batch, and more is better", "left_out": [], "x": BATCHES,
            "feet": [f'The slowest rank, median of {run["rounds"]} rounds; {graphs}. No side used multicast (NVLS).',
                     *dict.fromkeys(machines)]}


def looks_of(names):
    spare = iter(SPARE_LOOKS * len(names))
    return {name: LOOKS.get(name) or (name.replace("onehop-", "onehop, ").replace("-", " "), *next(spare)) for name in names}


def value_range(values):
    """Out to half powers of two."""
    return (2 ** (math.floor(2 * math.log2(min(*values, 1) * 0.98)) / 2), 2 ** (math.ceil(2 * math.log2(max(*values, 1) * 1.02)) / 2))


def apart(wanted, low, high):
    """Places near those wanted, in ascending order, a line's height apart where there is room."""
    places = []
    for place in wanted:
        places.append(max(place, places[-1] + LINE if places else low))
    for index in reversed(range(len(places))):
        places[index] = min(places[index], high - LINE * (len(places) - 1 - index))
    return places


def runs(points, sizes):
    """Parts of a curve without a gap: none of `sizes` was left out in them."""
    parts = [points[:1]]
    for before, point in zip(points, points[1:]):
        if sizes.index(point[0]) == sizes.index(before[0]) + 1:
            parts[-1].append(point)
        else:
            parts.append([point])
    return [part for part in parts if len(part) > 1]


def panel(title, series, looks, styles, left, top, y_range, x_axis):
    """`left` and `top` are those of the plotting area."""
    label, step = x_axis
    sizes = sorted({size for points in series.values() for size, _ in points})
    x_scale = Scale(sizes[0], sizes[-1], left, left + WIDTH)
    y_scale = Scale(*y_range, top + HEIGHT, top)
    out = [text(left - AXIS, top - 12, title, "title")]
    for power in range(math.ceil(math.log2(y_range[0]) - 1e-9), math.floor(math.log2(y_range[1]) + 1e-9) + 1):
        y = y_scale(2**power)
        out.append(line(left, y, left + WIDTH, y, "grid"))
        out.append(text(left - 8, y + 4, f"{2**power:g}×", "tick", "end"))
    size = sizes[0]
    while size <= sizes[-1]:
        out.append(line(x_scale(size), top, x_scale(size), top + HEIGHT, "grid"))
        out.append(text(x_scale(size), top + HEIGHT + 17, label(size), "tick", "middle"))
        size *= step
    out.append(line(left, y_scale(1), left + WIDTH, y_scale(1), "peer"))
    # Ours last, so that they are on top.
    for name, points in reversed(series.items()):
        for run in runs(points, sizes):
            out.append(f'<polyline points="{" ".join(f"{x_scale(size):.1f},{y_scale(value):.1f}" for size, value in run)}" '
                       f'class="{styles[name]}"/>')
        for size, value in points:
            out.append(mark(looks[name][3], x_scale(size), y_scale(value), styles[name],
                            f"{looks[name][0]}, {label(size)}: {value:.2f}×"))
    ends = sorted((y_scale(points[-1][1]), x_scale(points[-1][0]), name) for name, points in series.items())
    for (y, x, name), place in zip(ends, apart([end[0] for end in ends], top + 4, top + HEIGHT - 2)):
        out.append(line(x + 6, y, left + WIDTH + 14, place, f"lead {styles[name]}"))
        out.append(text(left + WIDTH + NAMES, place + 4, looks[name][0], f"name {styles[name]}"))
    return out


def style_sheet(looks, styles):
    """Colors for light and for dark pages, by the classes of `styles`."""
    def colors(index):
        return "".join(f".{styles[name]}{{stroke:{look[index]}}}text.{styles[name]}{{stroke:none;fill:{look[index]}}}"
                       f".mark.{styles[name]}{{fill:{look[index]}}}.cross.{styles[name]}{{fill:none}}" for name, look in looks.items())

    return f"<style>{STYLE}\n{colors(1)}\n@media(prefers-color-scheme:dark){{{DARK}\n{colors(2)}}}</style>"


def draw(picture, columns=1):
    panels = picture["panels"]
    columns = min(columns, len(panels))
    names = list(dict.fromkeys(name for _, series in panels for name in series))
    looks = looks_of(names)
    styles = {name: f"s{index}" for index, name in enumerate(names)}
    y_range = value_range([value for _, series in panels for points in series.values() for _, value in points])

    panel_width = AXIS + WIDTH + NAMES + math.ceil(max(taken(look[0], "name") for look in looks.values()))
    width = 2 * MARGIN + columns * (panel_width + GAP) - GAP
    out, y = [], MARGIN
    for row in wrapped(picture["head"], width - 2 * MARGIN, "head"):
        y += 22
        out.append(text(MARGIN, y - 6, row, "head"))
    for row in wrapped(f"1× is {picture['baseline']}. Both axes are logarithmic.", width - 2 * MARGIN, "tick"):
        y += LINE
        out.append(text(MARGIN, y, row, "tick"))
    y += 8
    for index, (title, series) in enumerate(panels):
        left = MARGIN + index % columns * (panel_width + GAP) + AXIS
        top = y + index // columns * (TITLE + HEIGHT + SIZES) + TITLE
        out += panel(title, series, looks, styles, left, top, y_range, picture.get("x", BYTES))
    y += math.ceil(len(panels) / columns) * (TITLE + HEIGHT + SIZES) + 4
    left_out = [look[0] for look in looks_of(picture["left_out"]).values()]
    feet = picture["feet"] + ([f"Measured, and not drawn: {'; '.join(left_out)}."] if left_out else [])
    for row in (row for foot in feet for row in wrapped(foot, width - 2 * MARGIN, "tick")):
        y += LINE
        out.append(text(MARGIN, y, row, "tick"))
    height = y + MARGIN
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
                      f'<title>{html.escape(picture["head"])}</title>', style_sheet(looks, styles),
                      f'<rect width="{width}" height="{height}" class="page"/>', *out, "</svg>"]) + "\n"


def drawing(reports, files, arguments):
    formats = {report.get("format") for report in reports}
    if formats == {"onehop-decode"}:
        picture = decode_picture(reports)
        picture["panels"] = [panel for panel in picture["panels"] if arguments.only in panel[0]]
    elif len(reports) > 1:
        stop("several reports, and not all of them are of onehop.bench.decode; draw each by itself")
    elif formats == {"onehop-comparison"}:
        picture = gpu_picture(reports[0], arguments.only)
    elif "openmpi" in reports[0]:
        picture = openmpi_picture(reports[0])
        picture["panels"] = [panel for panel in picture["panels"] if arguments.only in panel[0]]
    else:
        stop(f"{files[0]} is no comparison; run compare_gpu.py on reports of onehop bench first")
    if not picture["panels"]:
        stop(f"{files[0]} has no panel with '{arguments.only}' in its title and a peer to compare with")
    return draw(picture, arguments.columns)


def refusal(*words):
    """What main() says about a command line that it refuses."""
    out = io.StringIO()
    with unittest.mock.patch.object(sys, "argv", ["plot_compare.py", *words]), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as end:
            return f"{out.getvalue()}{end.code}"
    return "accepted"


def refuses_what_is_no_report():
    row = {"ranks": 2, "bytes": 1024, "onehop_us": 1.0, "openmpi_us": 2.0, "onehop_rounds_us": [1.0]}
    report = {"machine": {"cpu": "CPU", "cores": 2, "kernel": "Linux"}, "openmpi": "Open MPI 4", "onehop_commit": "abc", "results": [row]}
    with tempfile.TemporaryDirectory() as folder:
        file, other, svg = (pathlib.Path(folder, name) for name in ("report.json", "other.json", "picture.svg"))
        for text, why in (("", "is no JSON"), ("[]", "has to be an object"), ("[" * 100000, "is no JSON"), ("\xff", "is no JSON"), ("{}", "is no comparison"),
                          (json.dumps(report | {"results": [row | {"bytes": 0}]}), "a value that cannot be: math domain error"),
                          (json.dumps(report | {"results": [row | {"openmpi_us": 0}]}), "a value that cannot be: float division by zero"),
                          (json.dumps(report | {"machine": {}}), "the field 'cpu' is missing")):
            file.write_text(text, encoding="latin-1")
            said = refusal(str(file), str(svg))
            assert why in said and str(file) in said and not svg.exists(), said
        file.write_text(json.dumps(report))
        other.write_text("kept")
        assert "ends in .svg" in refusal(str(file), str(other)) and other.read_text() == "kept", "a report was replaced by a picture"
        assert "--columns 0" in refusal(str(file), str(svg), "--columns", "0")
        assert "cannot read" in refusal(str(svg), str(svg)) and "cannot write" in refusal(str(file), f"{folder}/none/p.svg")
        assert refusal(str(file), str(svg)) == "accepted" and svg.exists()
    for sizes in ("1K:1M:1", "0:1M:2", "1K:1M:0", "", "1Q", "-1"):
        try:
            sizes_of(sizes)
        except ValueError:
            continue
        raise AssertionError(f"{sizes} is accepted")


def self_test():
    names = ("onehop", "onehop-symmetric", "onehop-registered", "onehop-in-place", "nccl", "nccl-sym",
             "pytorch-one-shot", "pytorch-two-shot")
    rows = [{"bytes": 1 << power, "times": {name: 1.0 + 0.01 * index for index, name in enumerate(names)}} for power in range(10, 31, 2)]
    rows[0]["times"] |= {"nccl": 4.0, "nccl-sym": 2.0, "pytorch-one-shot": 3.0, "pytorch-two-shot": 5.0}
    rows.append({"bytes": 1 << 31, "times": {"onehop": 1.0}})  # nothing to compare with
    group = {"ranks": 2, "type": "bf16", "op": "sum", "mode": "chain", "names": names, "rows": rows}
    versions = {"onehop": 1.0, "nccl": 4.0, "nccl-2.32": 2.0, "nccl-sym": 4.0, "nccl-2.32-sym": 8.0}
    assert relative(group | {"rows": [{"bytes": 1024, "times": versions}]}) == {
        "onehop": [(1024, 0.5)], "nccl": [(1024, 1.0)], "nccl-sym": [(1024, 2.0)]}, "the faster version"
    both = gpu_picture({"groups": [group, group | {"collective": "broadcast"}]}, "all-reduce, 2 ranks")
    assert [title for title, _ in both["panels"]] == ["all-reduce, 2 ranks, bf16 sum, chain"] and both["head"].startswith("All-reduce")
    assert gpu_picture({"groups": [group]}, "2 ranks")["panels"][0][0] == "2 ranks, bf16 sum, chain"
    assert relative(group)["onehop"][0] == (1024, 0.5) and relative(group)["pytorch"][0] == (1024, 1.5), "of the fastest peer"
    assert len(relative(group)["onehop"]) == len(rows) - 1
    series, left_out = most_telling(relative(group))
    assert list(series) == ["onehop", "onehop-symmetric", "nccl", "nccl-sym", "pytorch"], series
    assert left_out == ["onehop-in-place", "onehop-registered"], left_out
    assert runs([(1, "a"), (2, "b"), (8, "c"), (16, "d"), (64, "e")], [1, 2, 4, 8, 16, 32, 64]) == [[(1, "a"), (2, "b")], [(8, "c"), (16, "d")]]
    assert merged(["a (1): x", "b: y", "a (2): x", "a (3): z"]) == ["a (1, 2): x", "b: y", "a (3): z"]
    assert apart([10, 11, 12], 0, 100) == [10, 28, 46] and apart([98, 99], 0, 100) == [82, 100]
    # As onehop.bench.decode writes it.
    engines = {"onehop": 300.0, "onehop-dist": 200.0, "nccl": 100.0, "symm-one-shot": 150.0, "symm-two-shot": 50.0}
    decode = {"run": {"ranks": 2, "dtype": "bf16", "hidden": 4096, "layers": 32, "rounds": 9, "graphs": True},
              "machine": {"gpus": {"names": ["a GPU"], "driver": "580"}}, "versions": {"torch": "2.11.0", "nccl": "2.28.9"},
              "onehop": {"version": "0.1.0", "commit": "abc"},
              "results": [{"batch": batch, "engines": {name: {"tokens_per_s": rate} for name, rate in engines.items()}}
                          for batch in (1, 8)]}
    decoding = decode_picture([decode, decode | {"run": decode["run"] | {"ranks": 4}}])
    assert decoding["panels"][0][1]["onehop"] == [(1, 2.0), (8, 2.0)] and decoding["panels"][0][1]["nccl"][0] == (1, 100 / 150)
    assert ">4</text>" in draw(decoding) and " B<" not in draw(decoding), "batches are no sizes"
    alone = decode | {"results": [{"batch": 1, "engines": {"onehop": {"tokens_per_s": 1.0}}}]}
    assert not decode_picture([alone])["panels"], "nothing to compare with"
    gpus = gpu_picture({"groups": [group, group | {"ranks": 4}], "machines": ["a machine " + "with a long name " * 20]})
    for picture, columns in ((gpus, 1), (gpus, 2), (decoding, 1), (decoding, 2)):
        drawn = draw(picture, columns)
        assert drawn.count("<polyline") == 10 and "@media(prefers-color-scheme:dark)" in drawn
        assert not re.search(r'(fill|stroke)="#', drawn), "a color that stays on dark pages"
        width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', drawn).groups())
        texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)" class="([^"]*)">([^<]*)', drawn)
        for x, y, anchor, style, content in texts:
            room = taken(html.unescape(content), style.split()[0])
            left, right = {"start": (0, room), "middle": (room / 2, room / 2), "end": (room, 0)}[anchor]
            assert float(x) >= left and float(x) + right <= width and float(y) < height, f"cut off: {content}"
        named = [(float(x) // (width / columns), float(y)) for x, y, _, style, _ in texts if style.startswith("name")]
        for column in range(columns):
            places = sorted(y for at, y in named if at == column)
            assert all(b - a >= LINE for a, b in zip(places, places[1:])), "names over each other"
    refuses_what_is_no_report()
    print("ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=pathlib.Path, nargs="*", metavar="FILE",
                        help="the report, or reports of decode, and then the picture to write")
    parser.add_argument("--only", default="", metavar="TEXT", help="panels whose title has this in it, such as 'bf16 sum, chain'")
    parser.add_argument("--columns", type=int, default=1, help="panels side by side (default 1, for narrow pages)")
    parser.add_argument("--self-test", action="store_true", help="check this script")
    arguments = parser.parse_intermixed_args()
    if arguments.self_test:
        return self_test()
    if len(arguments.files) < 2:
        parser.error("no report and picture given")
    *files, svg = arguments.files
    if svg.suffix != ".svg":
        parser.error(f"the picture is the last file, and its name ends in .svg; got '{svg}'")
    if arguments.columns < 1:
        parser.error(f"--columns {arguments.columns}: there is at least one")
    reports = [read_report(file) for file in files]
    with made_of(files):
        drawn = drawing(reports, files, arguments)
    write(svg, drawn)


if __name__ == "__main__":
    main()
