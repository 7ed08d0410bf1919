# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python that need torch. On GPUs if there are enough."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/python"
COMMAND = str(Path(sysconfig.get_path("scripts")) / "onehop")


def launch(ranks, name):
    """The output of `ranks` ranks, which must succeed."""
    command = [COMMAND, "launch", "-n", str(ranks), "--", sys.executable, str(EXAMPLES / name)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", ["ddp.py", "fsdp2.py"])
def test_training(name):
    output = launch(2, name)
    assert output.count("the parameters are those of training with one rank") == 2


@pytest.mark.parametrize("ranks", [2, 4])
def test_decode(ranks):
    output = launch(ranks, "decode.py")
    assert output.count("4 x 32 tokens") == ranks
    assert len({part.split("]")[0] for part in output.split("begins [")[1:]}) == 1


def test_triton_peers():
    output = launch(2, "triton_peers.py")
    if "skipped: " in output:
        pytest.skip(output.splitlines()[0].removeprefix("skipped: "))
    assert output.count("3 steps over 2 ranks' memory are right") == 2
