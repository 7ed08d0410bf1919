# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python that need NumPy only, started as their first lines say."""
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/python"
COMMAND = str(Path(sysconfig.get_path("scripts")) / "onehop")

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the repository is not here")


def launch(ranks, name, *options):
    """The finished launcher of `ranks` ranks."""
    command = [COMMAND, "launch", "-n", str(ranks), *options, "--", sys.executable, str(EXAMPLES / name)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("ranks", [2, 3])
def test_numpy_host(ranks):
    result = launch(ranks, "numpy_host.py")
    assert result.returncode == 0, result.stderr
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: all results are right" in result.stdout


def test_numpy_host_alone():
    result = launch(1, "numpy_host.py")
    assert result.returncode != 0 and "needs at least 2 ranks" in result.stderr


@pytest.mark.parametrize("ranks", [2, 4])
def test_survive_dead_rank(ranks):
    result = launch(ranks, "survive_dead_rank.py", "--keep-going")
    assert result.returncode == 137, result.stderr
    for rank in range(ranks - 1):
        assert f"rank {rank} of {ranks - 1} has done 20 steps" in result.stdout
    assert result.stdout.count(f"rank {ranks - 1} died") == ranks - 1


def test_all_programs_are_listed():
    page = (EXAMPLES / "README.md").read_text()
    for program in EXAMPLES.glob("*.py"):
        first = next(line for line in program.read_text().splitlines() if "onehop launch" in line)
        command = first[first.index("onehop launch"):].removesuffix('"""').strip()
        assert f"[`{command}`]({program.name})" in page
