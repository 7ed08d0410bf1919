# SPDX-License-Identifier: Apache-2.0
"""Arrays in symmetric memory."""
from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from . import _core
from ._arrays import dtype_for, framework_of, item_size, view
from ._core import SymmetricBuffer
from ._group import Group
from ._types import Framework
from .errors import InvalidArgument


@dataclass(frozen=True)
class DeviceView:
    """Addresses of a symmetric buffer, for kernels. peers[r] is rank r's part, signal_pads[r] its signals.

    raw: the bytes of an onehop::DeviceView, for kernels that take it by value; None on the host.
    """

    rank: int
    size: int
    nbytes: int
    peers: tuple[int, ...]
    signal_pads: tuple[int, ...]
    channels: int
    raw: bytes | None


@dataclass(frozen=True)
class SymmetricArray:
    """An array in symmetric memory, as `buffer_of` finds it: at `offset` of `buffer`, on all ranks."""

    buffer: SymmetricBuffer
    offset: int
    shape: tuple[int, ...]
    dtype: Any
    framework: str

    def peer_tensor(self, rank: int) -> Any:
        """The array of rank `rank`: same shape and type, in that rank's memory."""
        nbytes = math.prod(self.shape) * item_size(self.dtype, self.framework)
        part = self.buffer[self.offset:self.offset + nbytes] if nbytes else self.buffer
        return view(part.peer(rank), self.shape, self.dtype, self.framework)


# Buffers that symmetric_empty made, by the address of this rank's part.
_buffers: weakref.WeakValueDictionary[int, SymmetricBuffer] = weakref.WeakValueDictionary()


def extents_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    try:
        extents = tuple(map(index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError:
        raise InvalidArgument(f"shape is {shape!r}; pass an integer or a sequence of integers") from None
    if any(extent < 0 for extent in extents):
        raise InvalidArgument(f"shape is {shape!r}; extents cannot be negative")
    return extents


def symmetric_empty(group: Group, shape: int | Sequence[int], dtype: Any = "float32", like: Framework = "numpy") -> Any:
    """An array of zeros in symmetric memory: of the same shape and type on every rank, and mapped by every rank. Collective.

    like: "numpy", "torch" or "cupy". Calls whose `out` it is, as a whole, may pass symmetric=True. `buffer_of` gives the
    buffer. The memory is freed with the last array that lies in it.
    """
    try:
        extents = extents_of(shape)
        own = dtype_for(like, dtype)
        if like == "numpy" and group.device >= 0:
            raise InvalidArgument(f"like is 'numpy', but the group is on cuda:{group.device}; use 'torch' or 'cupy'")
        nbytes = math.prod(extents) * item_size(own, like)
    except Exception as error:
        _core._refuse_allocation(group, error)
        raise
    buffer = group.allocate(max(nbytes, 1))
    _buffers[buffer.local.ptr] = buffer
    return view(buffer.local, extents, own, like)


def buffer_of(x: Any) -> SymmetricArray:
    """The symmetric buffer that an array of `symmetric_empty`, or a part of one, lies in."""
    address, nbytes = _core._address(x)
    for start, buffer in list(_buffers.items()):
        if start <= address and address + nbytes <= start + buffer.nbytes:
            return SymmetricArray(buffer, address - start, tuple(x.shape), x.dtype, framework_of(x))
    raise InvalidArgument(f"x, {type(x).__qualname__}, is in no memory that symmetric_empty made")
