# SPDX-License-Identifier: Apache-2.0
"""Runs a function as several ranks, each a process of its own."""

import glob
import os
import queue
import sys
import time
import traceback
from datetime import timedelta
from multiprocessing import get_context

import machines

_context = get_context("forkserver")
_context.set_forkserver_preload(["torch", "torch.distributed", "numpy"])


class RankFailed(AssertionError):
    """A rank raised; the message is its traceback."""


def gpu_count():
    """Without initializing CUDA in this process."""
    return len(glob.glob("/dev/nvidia[0-9]*"))


def meet(what="begun", group=None):
    """Waits in the default store until all ranks of the group are here.

    For a rank that is about to die, leave or abort: where a collective has ended on it, another rank may still be inside.
    `what` is new each time.
    """
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    store.add(what, 1)
    while store.add(what, 0) < dist.get_world_size(group):
        time.sleep(0.01)


def _main(rank, size, body, args, directory, backend, timeout, device, machine, results):
    os.environ["OMP_NUM_THREADS"] = "1"
    if backend == "gloo":
        # A rank that exits right after it has created a group closes connections that others are still making.
        os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
    try:
        if machine is not None:
            machines.enter(machine, str(directory))
        import torch
        import torch.distributed as dist

        import onehop.torch  # noqa: F401, registers the backend

        torch.set_num_threads(1)
        if device == "cuda":
            torch.cuda.set_device(rank % gpu_count())
            torch.set_default_device(torch.device("cuda", rank % gpu_count()))
        if backend is not None:
            dist.init_process_group(
                backend,
                init_method=f"file://{directory}/store",
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
            )
        value = body(rank, size, *args)
        if backend is not None and dist.is_initialized():
            dist.destroy_process_group()
        results.put((rank, "ok", value))
    except BaseException:
        results.put((rank, "error", traceback.format_exc()))
        results.close()
        results.join_thread()
        sys.stdout.flush()
        os._exit(1)


def run(
    size,
    body,
    *args,
    directory,
    backend="onehop",
    timeout=60,
    deadline=240,
    killed=(),
    device="cpu",
    on_machines=None,
):
    """body(rank, size, *args) in `size` processes; returns the results in rank order.

    `body` is a function of a module, and finds the default process group initialized unless backend is
    None, and `device` as the default device of its tensors: "cpu", or "cuda" for a GPU of each rank. `killed`
    are ranks that are expected to die without a result. `on_machines` has the number of each rank's machine;
    None: all are on this one. RankFailed if another rank raises, dies or takes longer than `deadline` seconds.
    """
    results = _context.Queue()
    processes = [
        _context.Process(
            target=_main,
            args=(
                r,
                size,
                body,
                args,
                str(directory),
                backend,
                timeout,
                device,
                on_machines[r] if on_machines else None,
                results,
            ),
            daemon=True,
        )
        for r in range(size)
    ]
    for process in processes:
        process.start()
    values, failures = {}, {}
    end = time.monotonic() + deadline
    try:
        while len(values) + len(failures) < size - len(killed) and time.monotonic() < end:
            try:
                rank, state, value = results.get(timeout=0.2)
                (values if state == "ok" else failures)[rank] = value
                if failures:
                    end = min(end, time.monotonic() + 5)
            except queue.Empty:
                dead = [r for r, p in enumerate(processes) if p.exitcode not in (None, 0) and r not in killed]
                if [r for r in dead if r not in failures]:
                    end = min(end, time.monotonic() + 2)
        for rank, process in enumerate(processes):
            process.join(timeout=max(0.1, min(20, end - time.monotonic()) if not failures else 0.1))
            if process.exitcode is None:
                failures.setdefault(rank, f"rank {rank} did not end")
            elif process.exitcode != 0 and rank not in killed:
                failures.setdefault(rank, f"rank {rank} ended with exit code {process.exitcode}")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
    if failures:
        raise RankFailed("\n".join(f"--- rank {r}\n{text}" for r, text in sorted(failures.items())))
    return [values.get(rank) for rank in range(size)]
