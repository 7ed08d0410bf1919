# SPDX-License-Identifier: Apache-2.0
"""Tests of onehop.torch with real processes: `make test-torch`. Those marked `gpu` need 2 GPUs, or one and
ONEHOP_ALLOW_OVERLAPPING_DEVICES=1."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ranks as _ranks  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    """Compiles once, so that no test's deadline includes it."""
    from onehop.torch import _build

    with ThreadPoolExecutor() as pool:
        list(pool.map(_build.load_path, (_build.BACKEND, _build.OPS)))


@pytest.fixture
def ranks(tmp_path):
    """ranks(n, body, ...): see ranks.run. Skips the test if there are GPUs, but not one for each rank."""

    def run(size, *arguments, device="cpu", **options):
        found = _ranks.gpu_count()
        if device == "cuda" and found < size and os.environ.get("ONEHOP_ALLOW_OVERLAPPING_DEVICES") != "1":
            pytest.skip(f"needs {size} GPUs, this machine has {found}")
        return _ranks.run(size, *arguments, device=device, **{"directory": tmp_path, **options})

    return run


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs GPUs")


def pytest_collection_modifyitems(items):
    needed = 1 if os.environ.get("ONEHOP_ALLOW_OVERLAPPING_DEVICES") == "1" else 2
    found = _ranks.gpu_count()
    if found < needed:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPUs, this machine has {found}"))
