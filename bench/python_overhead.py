#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python adds to a call: microseconds of an all-reduce of 16 floats in place between host ranks, through the
package and through the C API.

    bench/python_overhead.py [--ranks 2]   in an environment with onehop and NumPy; PyTorch if it is there

The C API's own time is that of a loop in C, compiled with cc against the library of the package, so it has no ctypes in it.
"""
import argparse
import ctypes
import multiprocessing
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onehop as oh

C_LOOP = r"""
#include <stddef.h>
#include <time.h>
typedef int (*all_reduce_t)(void*, const void*, void*, size_t, int, int, void*, void*, void*);
double loop(void* function, void* group, float* data, long calls) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (long i = 0; i < calls; ++i) {
    if (((all_reduce_t)function)(group, data, data, 16, 2, 3, 0, 0, 0) != 0) return -1;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) * 1e-3;
}
"""


class Options(ctypes.Structure):
    """The first fields of onehop_join_options_t, which are enough for the library."""
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("timeout_ms", ctypes.c_int64), ("scratch", ctypes.c_size_t),
                ("rank", ctypes.c_int), ("world_size", ctypes.c_int), ("device", ctypes.c_int), ("policy", ctypes.c_int)]


def c_group(store, rank, size):
    library = ctypes.CDLL(str(next(Path(oh.__file__).parent.glob("libonehop.so.*"))))
    handle, group, options = ctypes.c_void_p(), ctypes.c_void_p(), Options()
    library.onehop_join_options_init(ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options)))
    options.rank, options.world_size, options.name = rank, size, b"c"
    assert library.onehop_store_file(store.encode(), ctypes.byref(handle)) == 0
    assert library.onehop_group_join(handle, ctypes.byref(options), ctypes.byref(group)) == 0
    return library, group


def python_loop(call, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) * 1e6


def measure(rank, size, store, loop_library, results):
    """Medians of many short rounds, which alternate."""
    calls, rounds = 2000, 41
    x = np.ones(16, np.float32)
    library, handle = c_group(store, rank, size)
    loop = ctypes.CDLL(loop_library).loop
    loop.restype, loop.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    function = ctypes.cast(library.onehop_all_reduce, ctypes.c_void_p)
    group = oh.Group.join(oh.FileStore(store), rank, size)
    bodies = {"C": lambda: loop(function, handle, x.ctypes.data, calls),
              "NumPy": lambda: python_loop(lambda: group.all_reduce(x, op="max"), calls)}
    try:
        import torch

        tensor = torch.ones(16)
        bodies["PyTorch"] = lambda: python_loop(lambda: group.all_reduce(tensor, op="max"), calls)
    except ImportError:
        pass
    times = {name: [] for name in bodies}
    for _ in range(rounds):
        for name, body in bodies.items():
            times[name].append(body() / calls)
    if rank == 0:
        results.put({name: statistics.median(each) for name, each in times.items()})
    group.leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    size = parser.parse_args().ranks
    with tempfile.TemporaryDirectory() as folder:
        source, loop = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(C_LOOP)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", loop], check=True)
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        ranks = [context.Process(target=measure, args=(r, size, f"{folder}/store", str(loop), results)) for r in range(size)]
        for each in ranks:
            each.start()
        median = results.get()
        for each in ranks:
            each.join()
    for name, value in median.items():
        extra = "" if name == "C" else f"  C + {value - median['C']:.2f}"
        print(f"{size} ranks  {name:8} {value:6.2f} us{extra}")


if __name__ == "__main__":
    main()
