# SPDX-License-Identifier: Apache-2.0
"""Groups of calls."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ._core import _group_call_begin, _group_call_end


class _Open(threading.local):
    blocks = 0


_open = _Open()


def in_group_call() -> bool:
    """Whether this thread is in a block of `group_call`."""
    return _open.blocks > 0


@contextmanager
def group_call() -> Iterator[None]:
    """Queues the sends, receives and collectives that this thread makes in the `with` block, and makes them at its end.

    First come each group's sends and receives, which progress together in any order, then its collectives. The end raises
    the first failure. If the block raises, its calls are dropped. Arrays must keep their contents until the end. Blocks nest:
    only the outermost one makes the calls.
    """
    _group_call_begin()
    _open.blocks += 1
    try:
        yield
    except BaseException:
        _group_call_end(drop=True)
        raise
    finally:
        _open.blocks -= 1
    _group_call_end(drop=False)
