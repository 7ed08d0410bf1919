# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks, pickled. Small ones travel in one message; large ones by collectives where the ranks are on the host."""
from __future__ import annotations

import io
import operator
import pickle
import struct
from typing import TYPE_CHECKING, Any

from ._calls import in_group_call
from .errors import InvalidArgument

if TYPE_CHECKING:
    from ._group import Group

_PIECE = 60 << 10  # the C API passes at most 64 KiB in a message
# The payload's bytes, and whether this rank can make collectives on host memory now. The payload follows if it fits.
# -1: this rank failed, and its reason follows.
_HEADER = struct.Struct("<q?")


def _exchange(group: Group, payload: memoryview, refusal: InvalidArgument | None) -> list[memoryview]:
    """The payloads of all ranks. Raises the same failure on all ranks if one of them could not make its payload."""
    if refusal is not None:
        first = _HEADER.pack(-1, False) + str(refusal).encode(errors="replace")[:_PIECE]
    else:
        can = group.device < 0 and not in_group_call()  # whose collectives would wait until its end
        first = _HEADER.pack(len(payload), can) + (payload if len(payload) <= _PIECE else b"")
    received = group._all_gather_bytes(first)
    sizes, able = zip(*(_HEADER.unpack_from(each) for each in received))
    parts = [memoryview(each)[_HEADER.size:] for each in received]
    for rank, size in enumerate(sizes):
        if size < 0:
            raise InvalidArgument(bytes(parts[rank]).decode(errors="replace"), rank) from (refusal and refusal.__cause__)
    large = [rank for rank, size in enumerate(sizes) if size > _PIECE]
    for rank in large:
        parts[rank] = payload if rank == group.rank else memoryview(bytearray(sizes[rank]))
    if all(able):
        for rank in large:
            group.broadcast(parts[rank], root=rank)
        return parts
    for at in range(0, max((sizes[rank] for rank in large), default=0), _PIECE):
        pieces = group._all_gather_bytes(bytes(payload[at:at + _PIECE]) if group.rank in large else b"")
        for rank in large:
            if rank != group.rank:
                parts[rank][at:at + len(pieces[rank])] = pieces[rank]
    return parts


def _pickled(group: Group, obj: Any) -> tuple[memoryview, InvalidArgument | None]:
    buffer = io.BytesIO()
    try:
        pickle.dump(obj, buffer, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # pickling runs the object's code
        refusal = InvalidArgument(f"an object cannot be pickled: rank {group.rank}: {type(error).__name__}: {error}")
        refusal.__cause__ = error
        return memoryview(b""), refusal
    return buffer.getbuffer(), None


def all_gather_object(group: Group, obj: Any) -> list[Any]:
    payload, refusal = _pickled(group, obj)
    return [pickle.loads(each) for each in _exchange(group, payload, refusal)]


def broadcast_object(group: Group, obj: Any, root: int) -> Any:
    payload, refusal = memoryview(b""), None
    try:
        number = operator.index(root)
    except TypeError:
        number = -1
    if not 0 <= number < group.size:
        shown = " ".join(repr(root).split())
        refusal = InvalidArgument(f"root is {shown} on rank {group.rank}; pass the number of a rank, 0 to {group.size - 1}")
    elif group.rank == number:
        payload, refusal = _pickled(group, obj)
    return pickle.loads(_exchange(group, payload, refusal)[number])
