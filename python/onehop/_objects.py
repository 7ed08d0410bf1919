# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks, pickled, in as many small messages as they need."""
from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

from .errors import InvalidArgument

if TYPE_CHECKING:
    from ._group import Group

_PIECE = 60 << 10  # the C API passes at most 64 KiB at a time
_HEADER = struct.Struct("<q")  # total bytes; -1: this rank failed, and its reason follows


def _exchange(group: Group, payload: bytes | None, error: Exception | None) -> list[bytes]:
    """The payloads of all ranks. Raises the same failure on all ranks if one of them could not make its payload."""
    if error is not None:
        text = f"rank {group.rank}: {type(error).__name__}: {error}".encode(errors="replace")[:_PIECE]
        first, rest = _HEADER.pack(-1) + text, b""
    else:
        payload = payload or b""
        first, rest = _HEADER.pack(len(payload)) + payload[:_PIECE], payload[_PIECE:]
    received = group._all_gather_bytes(first)
    sizes = [_HEADER.unpack_from(each)[0] for each in received]
    parts = [bytearray(each[_HEADER.size:]) for each in received]
    for rank, size in enumerate(sizes):
        if size < 0:
            raise InvalidArgument(f"an object cannot be pickled: {parts[rank].decode(errors='replace')}", rank) from error
    for at in range(0, max(sizes) - _PIECE, _PIECE):
        for part, piece in zip(parts, group._all_gather_bytes(rest[at:at + _PIECE])):
            part += piece
    return [bytes(part) for part in parts]


def _pickled(obj: Any) -> tuple[bytes | None, Exception | None]:
    try:
        return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL), None
    except Exception as error:  # pickling runs the object's code
        return None, error


def all_gather_object(group: Group, obj: Any) -> list[Any]:
    payload, error = _pickled(obj)
    return [pickle.loads(each) for each in _exchange(group, payload, error)]


def broadcast_object(group: Group, obj: Any, root: int) -> Any:
    if not 0 <= root < group.size:
        raise InvalidArgument(f"root is {root}, no rank of a group of {group.size}")
    payload, error = _pickled(obj) if group.rank == root else (None, None)
    return pickle.loads(_exchange(group, payload, error)[root])
