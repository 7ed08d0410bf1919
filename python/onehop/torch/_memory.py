# SPDX-License-Identifier: Apache-2.0
"""Symmetric memory for torch's caching allocator."""

import ctypes
import functools
import weakref

import torch
import torch.distributed as dist

from .. import _paths
from . import _backend


@functools.cache
def _api() -> ctypes.CDLL:
    api = ctypes.CDLL(str(_paths.library().resolve()))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, arguments in {
        "onehop_pool_create": [pointer, size, ctypes.POINTER(pointer)],
        "onehop_pool_use": [pointer],
        "onehop_pool_offset": [pointer, pointer, ctypes.POINTER(size)],
    }.items():
        getattr(api, name).argtypes = arguments
        getattr(api, name).restype = ctypes.c_int
    api.onehop_pool_destroy.argtypes = [pointer]
    api.onehop_pool_destroy.restype = None
    api.onehop_last_error.restype = ctypes.c_char_p
    return api


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"onehop: {_api().onehop_last_error().decode()}")


class _Pool:
    """A pool of the library, and the process group that it belongs to. Lives until the process ends: the
    caching allocator may hold its memory beyond every MemPool."""

    def __init__(self, group: dist.ProcessGroup, backend, nbytes: int, device: torch.device):
        self.group = group
        self.backend = backend
        self.handle = ctypes.c_void_p()
        _check(_api().onehop_pool_create(backend.group_handle(device), nbytes, ctypes.byref(self.handle)))

    def offset(self, tensor: torch.Tensor) -> int:
        """Bytes from the beginning of the pool; -1 if the tensor lies elsewhere."""
        offset = ctypes.c_size_t()
        if _api().onehop_pool_offset(self.handle, tensor.data_ptr(), ctypes.byref(offset)) != 0:
            return -1
        return offset.value


_pools: dict[int, _Pool] = {}  # by device ordinal: the library has one pool in use for each device


def mem_pool(group: dist.ProcessGroup | None = None, nbytes: int = 1 << 30) -> torch.cuda.MemPool:
    """A torch.cuda.MemPool of `nbytes` bytes of symmetric memory on the current device. Collective.

    Tensors that are allocated in it are at the same offset on all ranks, as long as all ranks allocate and
    free in the same order: then the fastest algorithms apply to them (`symmetric=True` of the group's
    calls). Freeing that depends on the timing of a stream (Tensor.record_stream) can differ between ranks;
    `is_symmetric` tells.

        pool = onehop.torch.mem_pool(group, 1 << 30)
        with torch.cuda.use_mem_pool(pool):
            weights = torch.empty(...)

    FSDP2 takes its all-gather buffers from here after
    `set_allocate_memory_from_process_group_for_comm(True)`.

    One pool per process and device. Its memory stays allocated until the process ends. RuntimeError with
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in versions of torch that ignore other allocators then.
    """
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    device = torch.device("cuda", torch.cuda.current_device())
    if device.index in _pools:
        raise RuntimeError(f"onehop: {device} already has a pool; one per process and device is possible")
    backend = _backend.backend_of(group, device)
    pool = _Pool(group, backend, nbytes, device)
    _check(_api().onehop_pool_use(pool.handle))
    _pools[device.index] = pool
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        str(_paths.library().resolve()), "onehop_pool_malloc", "onehop_pool_free"
    )
    pool.allocator = allocator  # torch keeps only a pointer to it
    memory = torch.cuda.MemPool(allocator.allocator(), no_split=True)
    used = weakref.ref(memory)

    def allocate(size: int, dtype: torch.dtype, where: torch.device) -> torch.Tensor:
        alive = used()
        if alive is None:
            raise RuntimeError(
                "onehop: the MemPool of this process group was deleted: keep what mem_pool returned"
            )
        with torch.cuda.use_mem_pool(alive):
            return torch.empty(size, dtype=dtype, device=where)

    backend.set_allocator(allocate)
    with torch.cuda.use_mem_pool(memory):
        probe = torch.empty(1, device=device)
    if pool.offset(probe) < 0:
        raise RuntimeError(
            "onehop: torch does not allocate from the pool. Unset expandable_segments in "
            "PYTORCH_CUDA_ALLOC_CONF"
        )
    return memory


def is_symmetric(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> bool:
    """Whether `tensor` lies in a pool of `group`, at the same offset on all ranks. `group` defaults to that
    of the tensor's pool, or of this process's only pool. Collective over the group; waits for all ranks on the
    host. All ranks get the same answer."""
    pool = _pools.get(tensor.device.index) if tensor.is_cuda else None
    if group is None and (pool is not None or len(_pools) == 1):
        group = (pool or next(iter(_pools.values()))).group
    mine = pool.offset(tensor) if pool is not None and pool.group is group else -1
    offsets = [None] * dist.get_world_size(group)
    dist.all_gather_object(offsets, mine, group=group)
    return mine >= 0 and all(offset == mine for offset in offsets)
