# SPDX-License-Identifier: Apache-2.0
"""Threads as ranks."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ._group import Group

Result = TypeVar("Result")


def on_every_rank(groups: Sequence[Group], function: Callable[[Group], Result]) -> list[Result]:
    """Runs function(group) for each of `groups` at the same time, in threads, and returns the results in their order.

    If one raises, its group is aborted, so that the calls of the other ranks end as well. When all have ended, the first error
    is raised, with a note that names its rank.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    errors: list[BaseException] = []

    def run(group: Group) -> Result:
        try:
            return function(group)
        except BaseException as error:
            errors.append(error)
            error.add_note(f"onehop: raised on rank {group.rank} of group {group.name!r}")
            group.abort(" ".join(f"{type(error).__name__}: {error}".split()))
            raise

    if not groups:
        return []
    with ThreadPoolExecutor(len(groups), "onehop rank") as threads:
        try:
            results = [threads.submit(run, group) for group in groups]
            wait(results)
        except BaseException as error:  # Ctrl-C, or no more threads
            for group in groups:
                group.abort(f"{type(error).__name__} in the thread that waits for all ranks")
            raise
    if errors:
        raise errors[0]
    return [each.result() for each in results]
