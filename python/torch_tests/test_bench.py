# SPDX-License-Identifier: Apache-2.0
"""python -m onehop.bench.decode, with tiny models on the CPU, and onehop.bench.overhead. Figures are not
looked at."""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import onehop
from onehop.bench import _decoder, _engines, decode

TINY = (
    "--device cpu --hidden 64 --layers 2 --heads 4 --kv-heads 4 --inner 128 --vocabulary 96 --context 8 "
    "--rounds 2 --steps 2"
)


def run(module, options, **environment):
    command = [sys.executable, "-m", f"onehop.bench.{module}", *options.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)


@pytest.mark.parametrize("ranks", [2, 4])
def test_decode(ranks, tmp_path):
    result = run("decode", f"--ranks {ranks} {TINY} --batches 1,5,3 --json {tmp_path}/decode.json")
    assert result.returncode == 0, result.stderr
    assert "multicast (NVLS) off" in result.stdout and "\033" not in result.stdout
    assert "not measured: nccl: it sums on GPUs only" in result.stdout
    report = json.loads((tmp_path / "decode.json").read_text())
    assert (report["format"], report["onehop"]["version"]) == ("onehop-decode", onehop.__version__)
    assert report["versions"]["torch"] == torch.__version__ and report["machine"]["cpu"]
    assert (report["run"]["ranks"], report["run"]["batches"], report["run"]["multicast"]) == (ranks, [1, 3, 5], False)
    assert set(report["engines"]) == {"onehop", "onehop-dist", "gloo"}
    assert set(report["unavailable"]) == {"nccl", "symm-one-shot", "symm-two-shot"}
    assert report["engines"]["onehop"]["batch_invariant"] and report["engines"]["onehop-dist"]["batch_invariant"]
    assert [row["batch"] for row in report["results"]] == [1, 3, 5]
    for row in report["results"]:
        for figures in row["engines"].values():
            rounds = figures["rounds_us"]
            assert len(rounds) == 2 and min(rounds) > 0 and figures["relative_error"] < 1e-3
            assert figures["tokens_per_s"] == pytest.approx(row["batch"] * 1e6 / (sum(rounds) / 2))
    assert len([line for line in result.stdout.splitlines() if line.split()[:1] in (["1"], ["3"], ["5"])]) == 3


def test_decode_under_torchrun():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "onehop.bench.decode"]
    command += [*TINY.split(), "--batches", "2", "--engines", "onehop"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert "gloo" not in result.stdout and "onehop op" in result.stdout


def test_decode_lists_engines():
    result = run("decode", "--list --device cpu")
    assert result.returncode == 0, result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines()[1:]}
    assert set(lines) == set(_engines.ENGINES)
    assert "not available, it sums on GPUs only" in lines["symm-two-shot"] and "available" not in lines["onehop"]


@pytest.mark.parametrize(
    "options, message",
    [
        ("--ranks 1", "--ranks is 1; it must be from 2 to 64"),
        ("--ranks 3 --device cpu", "--kv-heads 8 is not divisible by 3 ranks"),
        ("--hidden 100", "--hidden 100 is not divisible by --heads 32"),
        ("--kv-heads 5", "--heads 32 is not divisible by --kv-heads 5"),
        ("--steps 0", "--steps is 0"),
        ("--batches 4,0", "--batches has 0"),
        ("--batches 4,x", "'4,x' is no list of numbers; write it like 1,4,16"),
        ("--timeout nan", "--timeout is nan"),
        ("--engines onehop,magic --device cpu", "--engines has 'magic'; known: onehop,"),
        ("--engines nccl --device cpu", "'nccl', which cannot be used here: it sums on GPUs only"),
        ("--json /nowhere/at/all.json", "--json /nowhere/at/all.json: no file can be written there"),
        ("--layers 1000000 --device cpu", "use a smaller --layers"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
    ],
)
def test_bad_input_is_refused_in_one_line(options, message, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["decode", *options.split()])
    with pytest.raises(SystemExit) as ended:
        decode.main()
    out, err = capfd.readouterr()
    assert ended.value.code == 2 and out == ""
    assert message in err and err.count("\n") == 1


def test_more_gpus_than_there_are():
    result = run("decode", "--ranks 8 --device cuda")
    if torch.cuda.device_count() >= 8:
        pytest.skip("this machine has 8 GPUs")
    assert result.returncode == 2 and result.stdout == ""
    assert "use --device cpu" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "action, timeout, message",
    [("kill", 100, "rank 1 was killed by SIGKILL"), ("stop", 10, "rank 0 waited 10000 ms for rank 1")],
)
def test_a_failing_rank_ends_the_bench(action, timeout, message):
    """The library's own fault: rank 1 dies, or stops, in its 20th all-reduce."""
    begin = time.monotonic()
    fault = f"all_reduce#20:1:{action}"
    result = run("decode", f"--ranks 2 {TINY} --batches 1 --timeout {timeout}", ONEHOP_FAULT=fault)
    assert result.returncode not in (0, 2)
    assert message in result.stderr
    assert time.monotonic() - begin < 90  # less than the limit of a killed rank's peers


class Wrong(_engines.Engine):
    """Adds nothing, and depends on the number of rows."""

    name = "onehop"

    def all_reduce(self, x):
        return x * (1 + 1e-3 * len(x))


class Right(_engines.Engine):
    name = "onehop"

    def all_reduce(self, x):
        return x.clone()


@pytest.fixture
def rank(monkeypatch):
    """A Rank without a job: one rank that has everything. What would end the process raises instead."""

    def fail(message):
        raise AssertionError(message)

    monkeypatch.setattr(decode, "fail", fail)
    options = decode.parse(f"{TINY} --batches 1,4".split())
    options.dtype = "f32"
    rank = SimpleNamespace(
        options=options,
        decoder=_decoder.Decoder(decode.shape_of(options), 0, 1, 4, torch.device("cpu"), torch.float32),
        watchdog=SimpleNamespace(phase=lambda what: None),
        control=SimpleNamespace(barrier=lambda: None),
        reference=Right(None),
        invariant={},
        agree=lambda value: [value],
    )
    for name in ("bits", "capture", "error_of", "time"):
        member = getattr(decode.Rank, name)
        setattr(rank, name, member if name == "bits" else member.__get__(rank))
    return rank


def test_the_check_of_batches_finds_a_sum_that_depends_on_them(rank):
    rank.engines = {"onehop": Right(None), "other": Wrong(None)}
    decode.Rank.check_invariance(rank)
    assert rank.invariant == {"onehop": True, "other": False}
    rank.engines = {"onehop": Wrong(None)}
    with pytest.raises(AssertionError, match="differ in their bits between batches of 1 and 4"):
        decode.Rank.check_invariance(rank)


def test_the_check_of_logits_finds_a_wrong_sum(rank):
    rank.engines = {"onehop": Right(None)}
    assert decode.Rank.measure(rank, 4)["engines"]["onehop"]["relative_error"] == 0
    rank.engines = {"onehop": Wrong(None)}
    with pytest.raises(AssertionError, match="the logits are off by"):
        decode.Rank.measure(rank, 4)


def test_overhead_of_tensors(tmp_path):
    result = run("overhead", f"--ranks 2 --rounds 3 --calls 20 --json {tmp_path}/overhead.json")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "overhead.json").read_text())["us_per_call"]
    assert len(figures) == 5 and {"torch.ops.onehop.all_reduce_(x)", "dist.all_reduce(x)"} < set(figures)
    assert all(value > 0 for value in figures.values())
