# SPDX-License-Identifier: Apache-2.0
"""Groups: what `_core.Group` leaves to Python."""
from __future__ import annotations

import atexit
import itertools
import weakref
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

from . import _core, _objects
from ._core import Store, SymmetricBuffer
from ._machine import job
from ._store import PyStore
from ._types import Array, Device, Path, ShareBy
from .errors import InvalidArgument

# Groups that this process has not left, in the order of joining.
_alive: dict[int, weakref.ref[Group]] = {}
_numbers = itertools.count()


def _leave_all() -> None:
    """Leaves while the interpreter still works, the newest group first, so that the peers hear a goodbye."""
    for number in sorted(_alive, reverse=True):
        reference = _alive.pop(number, None)
        group = reference() if reference is not None else None
        if group is not None:
            group.leave()


atexit.register(_leave_all)


def _ordinal(device: Device | None, local_rank: int) -> int:
    """The CUDA ordinal of a device as callers name it ("cuda" is `local_rank`'s); -1 for the host."""
    text = str(device) if device is not None and not isinstance(device, int) else device
    if text is None or text == "cpu":
        return -1
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    if text == "cuda":
        return local_rank
    if isinstance(text, str) and text.startswith("cuda:") and text[5:].isdecimal():
        return int(text[5:])
    raise InvalidArgument(f"device is {device!r}; pass \"cpu\", \"cuda\", \"cuda:N\" or N")


class Group(_core.Group):
    """One rank's handle of a group. `init`, `Group.join` and `Group.join_local` make them. Thread-safe.

    In a group of host ranks, calls wait. On GPUs they are enqueued on a stream; `synchronize` and `check` report whether they
    succeeded. All ranks make the calls on one group in the same order.

    When a rank dies, times out or aborts, the calls of all other ranks raise an error that names it. Leave the group and form
    a new one; the process need not restart. The groups of a process are left when it exits. After a fork, the child's copies
    are unusable.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        number = next(_numbers)
        _alive[number] = weakref.ref(self, lambda _: _alive.pop(number, None))

    @classmethod
    def join(cls, store: Store, rank: int, size: int, *, device: Device | None = None, name: str = "world",
             timeout: float | timedelta | None = None, scratch_bytes: int = 0, allow_overlapping_devices: bool = False,
             tuning: Path | None = None, require_verified_peers: bool = False, share_by: ShareBy = "auto") -> Group:
        """Joins the group `name` as one of `size` ranks. Returns when all have joined. Collective.

        device: a CUDA ordinal, "cuda:N", "cuda" (the GPU whose ordinal is `rank`), or "cpu" (the default).
        timeout: of joining, and the default of the group's calls; 30 s if None.
        scratch_bytes: staging memory of each rank; 0: the library's choice.
        tuning: a file that `onehop tune` wrote; share_by: "auto", "fd", "fabric" or "ipc".

        Raises `Refused` with the same reason on all ranks if the group cannot be formed.
        """
        if store is None:
            raise InvalidArgument("store is None; init() joins through the launcher's")
        return cls(store, rank, size, _ordinal(device, rank), name, timeout, scratch_bytes, allow_overlapping_devices,
                   tuning, require_verified_peers, share_by)

    @classmethod
    def join_local(cls, devices: int | Sequence[Device], *, name: str = "world", timeout: float | timedelta | None = None,
                   scratch_bytes: int = 0, allow_overlapping_devices: bool = False, tuning: Path | None = None,
                   require_verified_peers: bool = False, share_by: ShareBy = "auto") -> list[Group]:
        """Creates all ranks of a group in this process: rank r uses devices[r]. Returns them in rank order.

        devices: what `join` accepts as `device`, for each rank; or a number of host ranks. The others are those of `join`.
        Ranks make their calls in threads: `on_every_rank` runs a function for each of them. On GPUs, one thread may make the
        calls that only enqueue work for one rank after another.
        """
        if isinstance(devices, int):
            if not 1 <= devices <= _core._MAX_HOST_RANKS:
                raise InvalidArgument(f"devices is {devices}; pass 1 to {_core._MAX_HOST_RANKS} host ranks, or a list of devices")
            devices = ["cpu"] * devices
        ordinals = [_ordinal(device, rank) for rank, device in enumerate(devices)]
        parts = _core._join_local(ordinals, name, timeout, scratch_bytes, allow_overlapping_devices, tuning,
                                  require_verified_peers, share_by)
        return [cls(part) for part in parts]

    @classmethod
    def from_torch(cls, process_group: Any = None, *, device: Device | None = None, **options: Any) -> Group:
        """Joins the ranks of a torch.distributed process group (None: the default one) through its store. Collective.

        device: as in `join`, but "cuda" is torch's current one.
        `options` are those of `join`. Every rank makes these calls in the same order.
        """
        from torch.distributed import distributed_c10d as c10d

        pg = process_group if process_group is not None else c10d._get_default_group()
        if str(device) == "cuda":
            import torch

            device = torch.cuda.current_device()
        serial = next(_torch_groups.setdefault(pg.group_name, itertools.count()))
        options.setdefault("name", f"torch-{pg.group_name}-{serial}")
        return cls.join(PyStore(c10d._get_process_group_store(pg)), pg.rank(), pg.size(), device=device, **options)

    def split(self, color: int, key: int = 0) -> Group | None:
        """Ranks with the same `color` form a new group, ordered by `key`, then by rank. Collective.

        A rank with a negative color gets None. Errors name ranks by their numbers in this group.
        """
        part = self._split(color, key)
        return None if part is None else type(self)(part)

    def shrink(self, timeout: float | timedelta | None = None) -> Group:
        """Forms a new group of the ranks that are left, in the same order, after ranks have died or left, or after any other failure.

        Every rank that is alive and has not left must call it; those that are gone are found without being named. `parent_ranks` of
        the new group tells who is left. The old group stays failed; its buffers stay readable. If it has not failed yet, this call
        fails it with `Aborted`. `Timeout` names a rank that is alive but has not called it; call it again to go on.
        """
        return type(self)(self._shrink(timeout))

    def allocate(self, nbytes: int, *, channels: int = 16) -> SymmetricBuffer:
        """Allocates `nbytes` zeroed bytes on every rank, mapped by every rank. Collective."""
        return _core._allocate(self, nbytes, channels)

    def register(self, x: Array, *, channels: int = 16) -> SymmetricBuffer:
        """Makes the memory of `x`, on this rank's GPU, symmetric. Collective. The buffer keeps `x` alive.

        Before the memory is freed, delete the buffer on all ranks and make a barrier. `Unsupported` in a group of host ranks.
        """
        return _core._register(self, x, channels)

    def all_gather_object(self, obj: Any) -> list[Any]:
        """The pickled objects of all ranks, in rank order. Collective."""
        return _objects.all_gather_object(self, obj)

    def broadcast_object(self, obj: Any = None, root: int = 0) -> Any:
        """Rank `root`'s object, pickled, on every rank. Collective."""
        return _objects.broadcast_object(self, obj, root)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.leave()

    def __repr__(self) -> str:
        where = "the host" if self.device < 0 else f"cuda:{self.device}"
        return f"<onehop.Group {self.name!r}, rank {self.rank} of {self.size} on {where}>"


_torch_groups: dict[str, itertools.count[int]] = {}


def init(*, device: Device | None = None, name: str = "world", timeout: float | timedelta | None = None, scratch_bytes: int = 0,
         allow_overlapping_devices: bool = False, tuning: Path | None = None, require_verified_peers: bool = False,
         share_by: ShareBy = "auto") -> Group:
    """Joins with the rank, size and store that `onehop launch`, torchrun, mpirun or srun provide. Collective.

    device: "cuda" for the GPU of this process's local rank, a CUDA ordinal, "cuda:N", or "cpu" (the default). The others are
    those of `Group.join`. `NotFound` if the process was not started by a launcher.
    """
    ordinal = _ordinal(device, job().local_rank if device is not None and str(device) == "cuda" else 0)
    return Group(None, -1, 0, ordinal, name, timeout, scratch_bytes, allow_overlapping_devices, tuning,
                 require_verified_peers, share_by)
