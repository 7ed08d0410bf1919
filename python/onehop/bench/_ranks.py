# SPDX-License-Identifier: Apache-2.0
"""The ranks of a measurement: how they start, and how they end if something hangs."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any, NoReturn

import onehop as oh
from onehop._paths import become_command


class BadInput(Exception):
    """Arguments that cannot be used. The message names the value and the remedy."""


class Parser(argparse.ArgumentParser):
    """Raises BadInput."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


def job() -> oh.Job | None:
    """This process's place in a launcher's job; None if there is no launcher."""
    try:
        return oh.job()
    except oh.NotFound:
        return None


def refuse(module: str, error: BadInput) -> NoReturn:
    """Ends the process with exit code 2 and one line, which only rank 0 prints."""
    here = job()
    if here is None or here.rank == 0:
        print(f"{module}: {error}", file=sys.stderr)
    sys.exit(2)


def launch(module: str, ranks: int) -> NoReturn:
    """Replaces this process by `onehop launch`, which starts the module with the same arguments in each rank. It ends the
    others if one fails."""
    sys.stdout.flush()
    become_command("launch", "-n", str(ranks), "--", sys.executable, "-m", module, *sys.argv[1:])


def fail(message: str) -> NoReturn:
    """Ends the process at once: what a broken job would wait for on its way out will not come."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
    os._exit(1)


class Watchdog:
    """Ends this process if one phase of the measurement takes longer than `seconds`."""

    def __init__(self, who: str, seconds: float) -> None:
        self._who, self._seconds = who, seconds
        self._what, self._end = "", float("inf")
        threading.Thread(target=self._watch, daemon=True).start()

    def phase(self, what: str) -> None:
        """The previous phase is over; this one begins."""
        self._what, self._end = what, time.monotonic() + self._seconds
        # In case that what hangs holds the GIL, so that the thread cannot run.
        faulthandler.dump_traceback_later(self._seconds + 5, exit=True)

    def _watch(self) -> None:
        while time.monotonic() < self._end:
            time.sleep(0.1)
        fail(f"{self._who}: {self._what} took longer than {self._seconds:g} s; see --timeout")


def compile_adapter() -> None:
    """Compiles onehop.torch if this is its first use. Before any deadline of a measurement: it has one of its own."""
    from onehop.torch import _build

    _build.load_path(_build.BACKEND)
    _build.load_path(_build.OPS)


def init_process_group(control: oh.Group, backend: str, timeout: timedelta) -> Any:
    """torch.distributed's default process group, of the ranks of `control`. Returns what must stay alive as long as it does."""
    import torch.distributed as dist

    server = None
    if control.rank == 0:
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout)
    port = control.broadcast_object(server.port if server is not None else None)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    dist.init_process_group(backend, store=store, rank=control.rank, world_size=control.size, timeout=timeout)
    return server
