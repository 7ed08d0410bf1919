#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors in onehop's memory: a torch.cuda.MemPool over onehop_pool_malloc, and a registered tensor.

    tests/gpu/torch_pool.py build/release/src/libonehop.so [--ranks 2]

Starts a process per GPU. Needs PyTorch and as many GPUs; says "skipped: " where they are missing.
"""
import argparse
import ctypes
import subprocess
import sys
import tempfile
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p

POOL_BYTES = 512 << 20
DTYPE_F32, DTYPE_I64 = 2, 10
OP_SUM, OP_MAX = 0, 3
TIMEOUT_S = 120


class JoinOptions(ctypes.Structure):
    """onehop_join_options_t"""
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("timeout_ms", c_int64), ("scratch_bytes", c_size_t),
                ("rank", c_int), ("world_size", c_int), ("device", c_int), ("allow_overlapping_devices", c_int),
                ("tuning", c_char_p)]


class Onehop:
    """The C API as far as it is needed here: each call that fails raises."""

    SIGNATURES = {
        "store_file": (c_char_p, POINTER(c_void_p)),
        "group_join": (c_void_p, POINTER(JoinOptions), POINTER(c_void_p)),
        "group_barrier": (c_void_p, c_int64),
        "group_check": (c_void_p,),
        "group_register_buffer": (c_void_p, c_void_p, c_size_t, POINTER(c_void_p)),
        "pool_create": (c_void_p, c_size_t, POINTER(c_void_p)),
        "pool_use": (c_void_p,),
        "pool_offset": (c_void_p, c_void_p, POINTER(c_size_t)),
        "all_reduce": (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p, c_void_p),
    }

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.onehop_last_error.restype = c_char_p
        self.lib.onehop_join_options_init.argtypes = (POINTER(JoinOptions), c_size_t)
        self.lib.onehop_join_options_init.restype = None
        for name in ("buffer_destroy", "pool_destroy", "group_destroy", "store_destroy"):
            function = getattr(self.lib, "onehop_" + name)
            function.argtypes, function.restype = (c_void_p,), None
        for name, arguments in self.SIGNATURES.items():
            getattr(self.lib, "onehop_" + name).argtypes = arguments
        self.lib.onehop_pool_malloc.argtypes = (c_size_t, c_int, c_void_p)
        self.lib.onehop_pool_malloc.restype = c_void_p
        self.lib.onehop_pool_free.argtypes = (c_void_p, c_size_t, c_int, c_void_p)
        self.lib.onehop_pool_free.restype = None

    def last_error(self):
        return self.lib.onehop_last_error().decode()

    def __getattr__(self, name):
        function = getattr(self.lib, "onehop_" + name)

        def call(*arguments):
            if function(*arguments) != 0:
                raise RuntimeError(f"onehop_{name}: {self.last_error()}")

        return call

    def make(self, name, *arguments):
        """A call whose last parameter is a handle to be made."""
        handle = c_void_p()
        getattr(self, name)(*arguments, byref(handle))
        return handle


def run_rank(options):
    import torch

    rank, ranks = options.rank, options.ranks
    torch.cuda.set_device(rank)
    torch.zeros(1, device="cuda")
    onehop = Onehop(options.libonehop)
    store = onehop.make("store_file", options.store.encode())
    join = JoinOptions()
    onehop.lib.onehop_join_options_init(byref(join), ctypes.sizeof(join))
    join.rank, join.world_size, join.device = rank, ranks, rank
    group = onehop.make("group_join", store, byref(join))

    def all_reduce(tensor, dtype, op):
        stream = torch.cuda.current_stream().cuda_stream
        onehop.all_reduce(group, tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), dtype, op, stream, None, None)

    def require(condition, what):
        if not condition:
            raise AssertionError(f"rank {rank}: {what}")

    def require_sum(tensor, what):
        tensor.fill_(rank + 1)
        all_reduce(tensor, DTYPE_F32, OP_SUM)
        torch.cuda.synchronize()
        onehop.group_check(group)
        require(bool((tensor == ranks * (ranks + 1) / 2).all()), f"{what}: the sum of {tensor.numel()} floats is wrong")

    pool = onehop.make("pool_create", group, POOL_BYTES)
    onehop.pool_use(pool)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(options.libonehop, "onehop_pool_malloc", "onehop_pool_free")
    tensors_pool = torch.cuda.MemPool(allocator.allocator())

    def offset_of(tensor):
        offset = c_size_t()
        onehop.pool_offset(pool, tensor.data_ptr(), byref(offset))
        return offset.value

    kept = []
    for step, count in enumerate((1, 1000, 300_001, 2_000_000, 25_000_000, 77, 1 << 20)):
        with torch.cuda.use_mem_pool(tensors_pool):
            tensor = torch.empty(count, device="cuda")
        offset = offset_of(tensor)
        # Ranks compare the largest and the negative of the smallest offset, which must be the same on all.
        ends = torch.tensor([offset, -offset], device="cuda")
        all_reduce(ends, DTYPE_I64, OP_MAX)
        require(ends.tolist() == [offset, -offset], f"tensor {step} is at {offset} here, and elsewhere on other ranks")
        require_sum(tensor, "pool")
        if step % 2 == 0:
            kept.append(tensor)
        del tensor
    ordinary = torch.empty(1000, device="cuda")
    try:
        offset_of(ordinary)
        require(False, "a tensor made outside of the pool is in it")
    except RuntimeError as error:
        require("is not in this symmetric pool" in str(error), f"unexpected: {error}")

    try:
        with torch.cuda.use_mem_pool(tensors_pool):
            torch.empty(POOL_BYTES, device="cuda")  # four times as much as there is
        require(False, "more than the pool has was allocated from it")
    except torch.cuda.OutOfMemoryError:
        require("in one piece" in onehop.last_error(), f"unexpected: {onehop.last_error()}")

    # The pool gets its memory back from PyTorch once the last of its tensors and its MemPool are gone.
    del kept, tensors_pool
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    whole = onehop.lib.onehop_pool_malloc(POOL_BYTES, rank, None)
    require(whole is not None, f"PyTorch did not free all of its memory: {onehop.last_error()}")
    onehop.lib.onehop_pool_free(whole, POOL_BYTES, rank, None)

    # A tensor of PyTorch's own allocator, registered at its address, somewhere inside a block of cudaMalloc.
    blocks = [torch.empty(1000 + 512 * rank, device="cuda"), torch.empty(3_000_000, device="cuda")]
    for tensor in blocks:
        part = tensor[8:1000]
        buffer = onehop.make("group_register_buffer", group, part.data_ptr(), part.numel() * 4)
        require_sum(part, "registered")
        onehop.lib.onehop_buffer_destroy(buffer)
        onehop.group_barrier(group, -1)

    onehop.lib.onehop_pool_destroy(pool)
    onehop.group_barrier(group, -1)
    onehop.lib.onehop_group_destroy(group)
    onehop.lib.onehop_store_destroy(store)
    print(f"rank {rank}: tensors in the pool, at the same offsets on all ranks, and registered ones: all sums right")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libonehop", help="libonehop.so")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        return run_rank(options)

    try:
        import torch
    except ImportError:
        print("skipped: there is no PyTorch here")
        return 0
    if torch.cuda.device_count() < options.ranks:
        print(f"skipped: needs {options.ranks} GPUs, PyTorch sees {torch.cuda.device_count()}")
        return 0
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, __file__, options.libonehop, "--ranks", str(options.ranks), "--store", store, "--rank"]
        processes = [subprocess.Popen(command + [str(rank)]) for rank in range(options.ranks)]
        codes = []
        for process in processes:
            try:
                codes.append(process.wait(TIMEOUT_S))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append("timeout")
    if any(codes):
        print(f"failed: the ranks ended with {codes}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
