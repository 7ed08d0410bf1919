# SPDX-License-Identifier: Apache-2.0
"""python -m onehop.bench.*, as far as it needs no torch. Figures are not looked at."""
import json
import os
import subprocess
import sys

import onehop as oh
import pytest


def run(*arguments, **environment):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=100, env={**os.environ, **environment})


@pytest.mark.parametrize("ranks", [1, 2])
def test_overhead_without_torch(ranks, tmp_path):
    program = "import sys; sys.modules['torch'] = None; from onehop.bench import overhead; overhead.main()"
    environment = {"ONEHOP_RANK": "0", "ONEHOP_SIZE": "1", "ONEHOP_STORE": f"file:{tmp_path}/store"}
    if ranks == 1:
        result = run("-c", program, "--rounds", "3", "--calls", "20", "--json", str(tmp_path / "overhead.json"), **environment)
        assert "not measured: tensors" in result.stdout
    else:
        result = run("-m", "onehop.bench.overhead", "--rounds", "3", "--calls", "20", "--json", str(tmp_path / "overhead.json"))
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "overhead.json").read_text())
    assert (report["format"], report["onehop"]["version"], report["run"]["ranks"]) == ("onehop-overhead", oh.__version__, ranks)
    assert "numpy" in report["versions"] and report["machine"]["cpu"]
    figures = report["us_per_call"]
    assert {"C API, a loop in C", "g.all_reduce(x), x of NumPy"} <= set(figures) and min(figures.values()) > 0
    for name, value in figures.items():
        assert any(line.startswith(name) and f" {value:.2f}" in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("options, message", [
    (["--ranks", "65"], "--ranks is 65; it must be from 1 to 64"),
    (["--calls", "0"], "--calls is 0; it must be at least 1"),
    (["--timeout", "0.5"], "--timeout is 0.5"),
    (["--json", "/nowhere/at/all.json"], "--json /nowhere/at/all.json: no file can be written there"),
    (["more"], "unrecognized arguments: more"),
])
def test_bad_input_is_refused_in_one_line(options, message):
    result = run("-m", "onehop.bench.overhead", *options)
    assert result.returncode == 2 and result.stdout == ""
    assert message in result.stderr and result.stderr.count("\n") == 1


def test_a_compiler_is_needed():
    result = run("-m", "onehop.bench.overhead", PATH="/nowhere")
    assert result.returncode == 2 and "there is no cc on PATH" in result.stderr and result.stderr.count("\n") == 1


def test_decode_needs_torch():
    result = run("-c", "import sys; sys.modules['torch'] = None; from onehop.bench import decode; decode.main()")
    assert result.returncode == 2 and "onehop.bench.decode: needs PyTorch" in result.stderr and result.stderr.count("\n") == 1


def test_a_stopped_rank_ends_the_measurement():
    result = run("-m", "onehop.bench.overhead", "--timeout", "10", ONEHOP_FAULT="all_reduce#300:1:stop")
    assert result.returncode == 1 and "rank 0 waited 10000 ms for rank 1" in result.stderr
