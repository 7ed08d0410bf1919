# SPDX-License-Identifier: Apache-2.0
"""Groups of calls."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ._core import _group_call_begin, _group_call_end


@contextmanager
def group_call() -> Iterator[None]:
    """Queues the sends, receives and collectives that this thread makes in the `with` block, and makes them at its end.

    First come each group's sends and receives, which progress together in any order, then its collectives. The end raises
    the first failure. If the block raises, its calls are dropped. Arrays must keep their contents until the end. Blocks nest:
    only the outermost one makes the calls.
    """
    _group_call_begin()
    try:
        yield
    except BaseException:
        _group_call_end(drop=True)
        raise
    _group_call_end(drop=False)
