#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python without bindings: reduces on GPUs, or on the host, through c_api.h and ctypes. Waits with a deadline, and learns
which rank died.

    onehop launch -n 2 -- ./22_ctypes.py [gpu] [/path/to/libonehop.so]

The last rank kills itself after ten sums. onehop launch then ends the job with SIGTERM, which the others ignore so that
they can print their error; their exit code is 3. Every call, including joining and leaving, ends within DEADLINE_MS. CUDA
is used only to fill and read memory.
"""
import ctypes as c
import itertools
import os
import signal
import sys

COUNT, SUMS_BEFORE_DEATH, DEADLINE_MS = 1 << 16, 10, 10_000
OK, PEER_LOST, F32, SUM = 0, 3, 2, 0


class JobInfo(c.Structure):
    _fields_ = [("size", c.c_size_t), ("rank", c.c_int), ("world_size", c.c_int), ("local_rank", c.c_int), ("launcher", c.c_char * 32)]


class JoinOptions(c.Structure):
    """The fields used here. The library takes a shorter structure for that of an older caller: the rest has its defaults."""
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("timeout_ms", c.c_int64), ("scratch_bytes", c.c_size_t),
                ("rank", c.c_int), ("world_size", c.c_int), ("device", c.c_int), ("allow_overlapping_devices", c.c_int)]


class PeerLost(Exception):
    pass


def check(status):
    """Checks the status of a call. Raises PeerLost if a peer is lost; any other error ends the program."""
    message = lib.onehop_last_error().decode()
    if status == PEER_LOST:
        raise PeerLost(f"rank {lib.onehop_last_error_rank()} is lost: {message}")
    if status != OK:
        sys.exit(message)


on_gpus = "gpu" in sys.argv[1:]
# Loads the versioned name, which only fits compatible versions and needs no development package.
lib = c.CDLL(next((argument for argument in sys.argv[1:] if "/" in argument), "libonehop.so.0.1"))
lib.onehop_last_error.restype = c.c_char_p
lib.onehop_buffer_local.restype = c.c_void_p
for name, arguments in {
        "onehop_job_info_init": [c.c_void_p, c.c_size_t], "onehop_join_options_init": [c.c_void_p, c.c_size_t],
        "onehop_buffer_local": [c.c_void_p], "onehop_group_size": [c.c_void_p],
        "onehop_group_allocate": [c.c_void_p, c.c_size_t, c.c_void_p],
        "onehop_all_reduce": [c.c_void_p] * 3 + [c.c_size_t, c.c_int, c.c_int] + [c.c_void_p] * 3,
        "onehop_group_synchronize": [c.c_void_p, c.c_void_p, c.c_int64],
        "onehop_buffer_destroy": [c.c_void_p], "onehop_group_destroy": [c.c_void_p]}.items():
    getattr(lib, name).argtypes = arguments


def use_cuda(device, ranks):
    """The driver, with the device's context current; None if there are fewer GPUs than ranks, the same on all ranks."""
    try:
        cuda = c.CDLL("libcuda.so.1")
    except OSError:
        return None
    gpus, context = c.c_int(), c.c_void_p()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(c.byref(gpus)) != 0 or gpus.value < ranks:
        return None
    if cuda.cuDevicePrimaryCtxRetain(c.byref(context), device) != 0 or cuda.cuCtxSetCurrent(context) != 0:
        sys.exit(f"GPU {device} cannot be used")
    return cuda


def copy(cuda, to, source, count):
    """`to` or `source` may be device memory."""
    if cuda is None:
        c.memmove(to, source, count)
    elif cuda.cuMemcpy(c.c_uint64(to), c.c_uint64(source), c.c_size_t(count)) != 0:
        sys.exit("cuMemcpy failed")


def sum_of_ones(group, cuda, data):
    """Sums ones over all ranks; ends the program unless the sum is right and complete in time."""
    ones = (c.c_float * COUNT)(*[1.0] * COUNT)
    copy(cuda, data, c.addressof(ones), c.sizeof(ones))
    check(lib.onehop_all_reduce(group, data, data, COUNT, F32, SUM, None, None, None))
    check(lib.onehop_group_synchronize(group, None, DEADLINE_MS))
    copy(cuda, c.addressof(ones), data, c.sizeof(ones))
    if ones[:] != [lib.onehop_group_size(group)] * COUNT:
        sys.exit(f"the sum is {ones[:8]}...")


def main():
    job, options, group, buffer = JobInfo(), JoinOptions(), c.c_void_p(), c.c_void_p()
    lib.onehop_job_info_init(c.byref(job), c.sizeof(job))
    check(lib.onehop_job_from_env(c.byref(job)))
    lib.onehop_join_options_init(c.byref(options), c.sizeof(options))
    options.timeout_ms, cuda = DEADLINE_MS, None
    if on_gpus:
        options.device, cuda = job.local_rank, use_cuda(job.local_rank, job.world_size)
        if cuda is None:
            print(f"skipped: there are no {job.world_size} GPUs")
            return 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    check(lib.onehop_group_from_env(c.byref(options), c.byref(group)))
    check(lib.onehop_group_allocate(group, COUNT * 4, c.byref(buffer)))
    try:
        for done in itertools.count():
            if job.rank == job.world_size - 1 and done == SUMS_BEFORE_DEATH:
                os.kill(os.getpid(), signal.SIGKILL)
            sum_of_ones(group, cuda, lib.onehop_buffer_local(buffer))
    except PeerLost as lost:
        print(f"rank {job.rank}: {lost}", flush=True)
    lib.onehop_buffer_destroy(buffer)
    lib.onehop_group_destroy(group)
    return 3


sys.exit(main())
