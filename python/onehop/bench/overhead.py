# SPDX-License-Identifier: Apache-2.0
"""What Python adds to a call: microseconds of an all-reduce of 16 floats in place between host ranks.

    python -m onehop.bench.overhead --ranks 2

Needs NumPy and a C compiler; with PyTorch it also measures tensors, torch.ops.onehop and torch.distributed, for 2 ranks or more.
The C API's own time is that of a loop in C, compiled with cc against the library of the package, so it has no ctypes in it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import onehop as oh

from . import _ranks, _report
from ._ranks import BadInput, fail

NAME = "onehop.bench.overhead"
ELEMENTS = 16
C_LOOP = r"""
#include <stddef.h>
#include <time.h>
typedef int (*all_reduce_t)(void*, const void*, void*, size_t, int, int, void*, void*, void*);
double loop(void* function, void* group, float* data, size_t count, long calls) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (long i = 0; i < calls; ++i) {
    if (((all_reduce_t)function)(group, data, data, count, 2, 3, 0, 0, 0) != 0) return -1;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) * 1e-3;
}
"""


class JoinOptions(ctypes.Structure):
    """The first fields of onehop_join_options_t, which are enough for the library."""

    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("timeout_ms", ctypes.c_int64), ("scratch", ctypes.c_size_t),
                ("rank", ctypes.c_int), ("world_size", ctypes.c_int), ("device", ctypes.c_int),
                ("allow_overlapping_devices", ctypes.c_int)]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line. BadInput if a value makes no sense, or something that is needed is missing."""

    parser = _ranks.Parser(prog=f"python -m {NAME}", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, help="processes, 1 to 64 (default 2, or that of the launcher)")
    parser.add_argument("--calls", type=int, default=2000, help="calls of a round (default 2000)")
    parser.add_argument("--rounds", type=int, default=41, help="rounds of which the median is taken (default 41)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that a rank waits for another (default 60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions, settings and all figures")
    options = parser.parse_args(arguments)
    job = _ranks.job()
    if job is not None and options.ranks not in (None, job.size):
        raise BadInput(f"--ranks is {options.ranks}, but the launcher started {job.size}; leave it out")
    options.ranks = options.ranks if options.ranks is not None else 2 if job is None else job.size
    if not 1 <= options.ranks <= 64:
        raise BadInput(f"--ranks is {options.ranks}; it must be from 1 to 64")
    for name in ("calls", "rounds"):
        if getattr(options, name) < 1:
            raise BadInput(f"--{name} is {getattr(options, name)}; it must be at least 1")
    if not 1 <= options.timeout <= 86400:
        raise BadInput(f"--timeout is {options.timeout:g}; it must be from 1 to 86400 seconds")
    if shutil.which("cc") is None:
        raise BadInput("needs a C compiler, and there is no cc on PATH; install one (such as the package gcc)")
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise BadInput(f"needs NumPy, and importing it failed: {error}") from None
    _report.check_target(options.json)
    return options


def c_loop(group: oh.Group, timeout: timedelta) -> Callable[[Any, int], float]:
    """A function that makes calls of the C API on an array of NumPy and returns their microseconds. Collective."""
    library = ctypes.CDLL(str(next(Path(oh.__file__).parent.glob("libonehop.so.*"))))
    handle, options = ctypes.c_void_p(), JoinOptions()
    library.onehop_join_options_init(ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options)))
    options.name, options.timeout_ms = b"overhead-c", int(timeout.total_seconds() * 1000)
    library.onehop_last_error.restype = ctypes.c_char_p
    if library.onehop_group_from_env(ctypes.byref(options), ctypes.byref(handle)) != 0:
        raise RuntimeError(f"the C API cannot join: {library.onehop_last_error().decode()}")
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(C_LOOP)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", compiled], check=True, timeout=timeout.total_seconds())
        loop = ctypes.CDLL(str(compiled)).loop
    loop.restype = ctypes.c_double
    loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
    function = ctypes.cast(library.onehop_all_reduce, ctypes.c_void_p)

    def run(x: Any, calls: int) -> float:
        took = float(loop(function, handle, x.ctypes.data, ELEMENTS, calls))
        if took < 0:
            raise RuntimeError(f"a call of the C API failed: {library.onehop_last_error().decode()}")
        return took

    return run


def python_loop(call: Callable[[], Any], calls: int) -> float:
    """Microseconds of `calls` calls."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) * 1e6


def has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Medians of many short rounds, which alternate, in microseconds per call of rank 0. Collective."""
    import numpy as np

    with_torch = has_torch()
    if with_torch and options.ranks > 1:
        _ranks.compile_adapter()
    job = oh.job()
    watchdog = _ranks.Watchdog(f"{NAME}: rank {job.rank}", 2 * options.timeout)
    watchdog.phase("starting")
    timeout, calls = timedelta(seconds=options.timeout), options.calls
    group = oh.init(name="overhead", timeout=timeout)
    x = np.ones(ELEMENTS, np.float32)
    run_c = c_loop(group, timeout)
    bodies: dict[str, Callable[[], float]] = {
        "C API, a loop in C": lambda: run_c(x, calls),
        "g.all_reduce(x), x of NumPy": lambda: python_loop(lambda: group.all_reduce(x, op="max"), calls)}
    if with_torch:
        import torch
        import torch.distributed as dist

        tensor = torch.ones(ELEMENTS)
        bodies["g.all_reduce(x), x of PyTorch"] = lambda: python_loop(lambda: group.all_reduce(tensor, op="max"), calls)
        if group.size > 1:
            import onehop.torch

            watchdog.phase("setting up torch.distributed")
            server = _ranks.init_process_group(group, "onehop", timeout)  # noqa: F841
            registered = onehop.torch.register_group(device="cpu")
            operator, largest = torch.ops.onehop.all_reduce_, dist.ReduceOp.MAX
            bodies["torch.ops.onehop.all_reduce_(x)"] = lambda: python_loop(lambda: operator(tensor, registered, "max"), calls)
            bodies["dist.all_reduce(x)"] = lambda: python_loop(lambda: dist.all_reduce(tensor, largest), calls)
    elif group.rank == 0:
        print("not measured: tensors, torch.ops.onehop, torch.distributed: there is no PyTorch", flush=True)
    times: dict[str, list[float]] = {name: [] for name in bodies}
    for turn in range(options.rounds):
        for name, body in bodies.items():
            watchdog.phase(f"round {turn + 1} of {name}")
            times[name].append(body() / calls)
    watchdog.phase("the end")
    group.barrier()
    group.leave()
    return {name: statistics.median(each) for name, each in times.items()}


def show(medians: dict[str, float], ranks: int) -> None:
    """Prints the table."""
    base = next(iter(medians.values()))
    width = max(map(len, medians))
    print(f"{f'{ranks} rank' + 's' * (ranks > 1):{width}}  us per call  over C")
    for name, value in medians.items():
        print(f"{name:{width}}  {value:11.2f}  {'' if value == base else f'+{value - base:.2f}':>6}")


def report(options: argparse.Namespace, medians: dict[str, float]) -> dict[str, Any]:
    """What --json writes."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    versions |= {name: sys.modules[name].__version__ for name in ("numpy", "torch") if sys.modules.get(name)}
    return {"format": "onehop-overhead", "format_version": 1, **_report.origin(NAME), "versions": versions,
            "machine": _report.machine(), "run": {name: getattr(options, name) for name in ("ranks", "calls", "rounds")},
            "us_per_call": medians}


def main() -> None:
    try:
        options = parse()
    except BadInput as error:
        _ranks.refuse(NAME, error)
    job = _ranks.job()
    if job is None:
        _ranks.launch(NAME, options.ranks)
    try:
        medians = measure(options)
    except (oh.Error, RuntimeError, OSError, subprocess.SubprocessError) as error:
        fail(f"{NAME}: rank {job.rank}: {error}")
    if job.rank == 0:
        show(medians, options.ranks)
        if options.json is not None:
            _report.write_json(options.json, report(options, medians))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(0)  # torch.distributed is not taken down


if __name__ == "__main__":
    main()
