# SPDX-License-Identifier: Apache-2.0
"""What measurements say about the machine, and how they print tables."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import onehop as oh
from onehop._paths import command

from ._ranks import BadInput


def usable_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """This machine's processors and kernel, named as in the reports of `onehop bench`."""
    return {"cpu": _cpu(), "cores": usable_cores(), "kernel": f"{platform.system()} {platform.release()}"}


def _commit() -> str:
    """The commit that the installed library was built from, as the command reports it; "" if unknown."""
    try:
        done = subprocess.run([str(command()), "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    found = re.search(r"\((.+)\)", done.stdout)  # onehop 0.1.0 (93553c9)
    return found.group(1) if found else ""


def origin(module: str) -> dict[str, Any]:
    """When, how and with which onehop `module` was run."""
    return {"date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
            "onehop": {"version": oh.__version__, "commit": _commit()}}


def check_target(path: Path | None) -> None:
    """BadInput if `write_json` could not write there."""
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        raise BadInput(f"--json {path}: no file can be written there; name one in a folder that exists and is yours")


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Writes all of the report or nothing."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(report, indent=2) + "\n")
    fresh.replace(path)


class Table:
    """Prints rows as they become known, in columns aligned to the right. On a terminal the head is bold."""

    def __init__(self, head: Sequence[str]) -> None:
        self._widths = [max(len(cell), 9) for cell in head]
        self._bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ
        self.row(head, range(len(head)))

    def row(self, cells: Sequence[str], emphasized: Sequence[int] = ()) -> None:
        """Prints a row. The cells with the numbers `emphasized` are bold on a terminal."""
        padded = [cell.rjust(width) for cell, width in zip(cells, self._widths)]
        print("  ".join(f"\033[1m{cell}\033[0m" if self._bold and column in emphasized else cell
                        for column, cell in enumerate(padded)), flush=True)
