# SPDX-License-Identifier: Apache-2.0
"""Stores of the caller's own, and the launcher's."""
from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Protocol

from . import _core
from ._core import Store


class StoreLike(Protocol):
    """What `PyStore` needs: the methods of torch.distributed's stores, which may be called from several threads."""

    def set(self, key: str, value: bytes) -> Any: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def add(self, key: str, amount: int) -> int: ...
    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes: ...
    def delete_key(self, key: str) -> bool: ...


class _Callbacks:
    """Called by the extension, with times in milliseconds."""

    def __init__(self, store: StoreLike) -> None:
        self._store = store

    def _set(self, key: str, value: bytes, timeout: int) -> None:
        self._store.set(key, value)

    def _get(self, key: str, timeout: int) -> bytes:
        # By looking again and again, since a blocking get of TCPStore keeps other threads out.
        deadline = time.monotonic() + timeout / 1000
        pause = 0.001
        while not self._store.check([key]):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(key)
            time.sleep(min(pause, left))
            pause = min(pause * 2, 0.02)
        return bytes(self._store.get(key))

    def _add(self, key: str, delta: int, timeout: int) -> int:
        return int(self._store.add(key, delta))

    def _compare_set(self, key: str, expected: bytes, desired: bytes, timeout: int) -> bytes:
        value = self._store.compare_set(key, expected, desired)
        return value.encode() if isinstance(value, str) else bytes(value)

    def _delete(self, key: str, timeout: int) -> bool:
        return bool(self._store.delete_key(key))


def PyStore(store: StoreLike) -> Store:
    """A store that is a Python object with the methods of torch.distributed's stores: set, get, check, add, compare_set and
    delete_key.

    What they raise becomes the cause of the call's error. They get no timeout and run in the thread of the call, which cannot end
    before they do: each must return at once or raise. An error of a join says so if they kept it waiting.
    """
    missing = [name for name in ("set", "get", "check", "add", "compare_set", "delete_key")
               if not callable(getattr(store, name, None))]
    if missing:
        raise TypeError(f"{type(store).__qualname__} lacks {', '.join(missing)}, which PyStore needs")
    return _core._callback_store(_Callbacks(store), f"Python store {type(store).__qualname__}")


def store_from_env(timeout: float | timedelta | None = None) -> Store:
    """Opens the store through which `init` joins, to form further groups. `NotFound` without a launcher."""
    return _core._store_from_env(timeout)
