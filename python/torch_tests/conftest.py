# SPDX-License-Identifier: Apache-2.0
"""Tests of onehop.torch over CPU tensors, with real processes. Run them with `make test-torch`."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ranks as _ranks  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    """Compiles once, so that no test's deadline includes it."""
    from onehop.torch import _build

    _build.load_path(_build.BACKEND)
    _build.load_path(_build.OPS)


@pytest.fixture
def ranks(tmp_path):
    """ranks(n, body, ...): see ranks.run."""
    return functools.partial(_ranks.run, directory=tmp_path)
