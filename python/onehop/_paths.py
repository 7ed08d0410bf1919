# SPDX-License-Identifier: Apache-2.0
"""Where the package keeps the command, and the C library and its headers, for what is compiled against them."""

import os
import sys
from pathlib import Path
from typing import NoReturn

_PACKAGE = Path(__file__).resolve().parent


def command() -> Path:
    """Path of the command onehop."""
    return _PACKAGE / "bin" / "onehop"


def become_command(*arguments: str) -> NoReturn:
    """Replaces this process by the command."""
    program = str(command())
    try:
        os.execv(program, ["onehop", *arguments])
    except OSError as error:
        sys.exit(f"onehop: cannot run {program}: {error.strerror}; reinstall the package")


def library() -> Path:
    """Path of libonehop.so."""
    found = sorted(_PACKAGE.glob("libonehop.so.*"))
    if not found:
        raise FileNotFoundError(f"onehop: no libonehop.so in {_PACKAGE}: reinstall onehop")
    return found[0]


def include_dir() -> Path:
    """Directory that contains onehop/c_api.h."""
    return _PACKAGE / "include"
