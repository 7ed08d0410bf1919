# SPDX-License-Identifier: Apache-2.0
"""Ranks as real processes: the fixture `ranks` runs a function of the test's module in several of them."""
from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import pytest

LIMIT_S = 60  # of a whole test, in case something hangs


@dataclass
class Outcome:
    """How one rank ended: `value` is what its function returned."""

    exit_code: int | None = None
    value: Any = None
    error: str | None = None
    at: float = 0.0  # time.monotonic() when it reported


def _member(body, connection, directory, rank, size, options, arguments):
    """The process of one rank."""
    import onehop as oh

    try:
        if options is None:
            value = body(rank, size, directory, *arguments)
        else:
            group = oh.Group.join(oh.FileStore(directory), rank, size, **options)
            value = body(group, *arguments)
            group.leave()
        connection.send((value, None))
    except BaseException:
        connection.send((None, traceback.format_exc()))
        raise SystemExit(1) from None


class Ranks:
    """Starts ranks, and ends those that are left when the test is over."""

    def __init__(self, directory):
        self._directory = directory
        self._processes: list[multiprocessing.Process] = []

    def __call__(self, size, body, *arguments, may_fail=False, join=True, **options):
        """Runs body(group, *arguments) on every rank and returns the outcomes.

        join=False: runs body(rank, size, directory, *arguments) instead. Fails the test if a rank fails, unless `may_fail`.
        """
        context = multiprocessing.get_context("spawn")
        directory = str(self._directory / f"store{len(self._processes)}")
        pipes, processes = [], []
        for rank in range(size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_member, args=(body, sender, directory, rank, size, options if join else None, arguments))
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
        self._processes += processes
        outcomes = [Outcome() for _ in range(size)]
        waiting = dict(zip(pipes, outcomes))
        deadline = time.monotonic() + LIMIT_S
        while waiting:
            ready = wait(list(waiting), timeout=max(deadline - time.monotonic(), 0))
            assert ready, f"after {LIMIT_S} s ranks have not ended: {[p.pid for p in processes if p.is_alive()]}"
            for pipe in ready:
                outcome = waiting.pop(pipe)
                try:
                    outcome.value, outcome.error = pipe.recv()
                except EOFError:
                    pass  # killed
                outcome.at = time.monotonic()
        for process, outcome in zip(processes, outcomes):
            process.join(max(deadline - time.monotonic(), 0))
            outcome.exit_code = process.exitcode
        if not may_fail:
            failed = [f"rank {r}: exit code {o.exit_code}\n{o.error}" for r, o in enumerate(outcomes) if o.error or o.exit_code]
            assert not failed, "\n".join(failed)
        return outcomes

    def end(self):
        for process in self._processes:
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join()


def meet(directory, size, what="begun"):
    """Waits until `size` ranks are here, in the store that they have in common.

    For a rank that is about to die, leave or abort: where a collective has ended on it, another rank may still be inside.
    """
    import onehop as oh

    store = oh.FileStore(directory)
    store.add(what, 1)
    while store.add(what, 0) < size:
        time.sleep(0.01)


@pytest.fixture
def ranks(tmp_path):
    runner = Ranks(tmp_path)
    yield runner
    runner.end()


@pytest.fixture
def alone():
    """A group of one rank, in this process."""
    import onehop as oh

    with oh.Group.join(oh.MemoryStore(), 0, 1) as group:
        yield group


def gpu_count():
    """Without initializing CUDA in this process."""
    import glob

    return len(glob.glob("/dev/nvidia[0-9]*"))


def pytest_collection_modifyitems(items):
    needed = 1 if os.environ.get("ONEHOP_ALLOW_OVERLAPPING_DEVICES") == "1" else 2
    if gpu_count() < needed:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPUs, this machine has {gpu_count()}"))
