# SPDX-License-Identifier: Apache-2.0
"""Where the C library and its headers are: in the wheel, or where a developer's environment says."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def library() -> Path:
    """Path of libonehop.so.0. ONEHOP_LIBRARY overrides the one in the package."""
    return _existing("ONEHOP_LIBRARY", _PACKAGE / "lib" / "libonehop.so.0")


def include_dir() -> Path:
    """Directory that contains onehop/c_api.h. ONEHOP_INCLUDE overrides the one in the package."""
    return _existing("ONEHOP_INCLUDE", _PACKAGE / "include")


def _existing(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    path = Path(value).resolve() if value else default
    if not path.exists():
        remedy = f"correct {variable}" if value else f"reinstall onehop, or set {variable}"
        raise FileNotFoundError(f"onehop: {path} does not exist: {remedy}")
    return path
