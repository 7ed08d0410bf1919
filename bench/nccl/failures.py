# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with backend "nccl" when something ends: each prints what happened, per rank.

    python failures.py RANKS kill          the last rank is killed
    python failures.py RANKS abort         rank 0 aborts a communicator whose all-reduce waits for the others
    python failures.py RANKS exit          the last rank exits without destroying anything
    python failures.py RANKS cycles N      N groups, one after another
    python failures.py RANKS burst N       52 groups at a time, N times
"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from collectives import start

LIMIT = 150
BURST = 52


def free_mib():
    return torch.cuda.mem_get_info()[0] >> 20


def expect_sum(ranks, device, group=None):
    data = torch.ones(100, device=device)
    dist.all_reduce(data, group=group)
    torch.cuda.synchronize()
    assert (data == ranks).all()


def kill(rank, ranks, device):
    if rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    failed = 0
    for _ in range(200):
        data = torch.ones(100, device=device)
        try:
            dist.all_reduce(data)
            torch.cuda.synchronize()
        except Exception as error:  # torch has several types for it
            nan = f"NaN from {failed} calls, " if failed else ""
            return f"{nan}{type(error).__name__} after {time.monotonic() - begin:.2f} s"
        assert ((data == ranks) | data.isnan()).all(), "a failed call's data looks right"
        failed += bool(data.isnan().any())
        time.sleep(0.1)
    return "noticed nothing"


def abort(rank, _, device):
    begin = time.monotonic()
    if rank == 0:
        dist.all_reduce(torch.ones(1000, device=device))
        dist.distributed_c10d._get_default_group()._get_backend(device).abort()
        torch.cuda.synchronize()
    return f"{time.monotonic() - begin:.2f} s"


def exit_early(rank, ranks, _):
    if rank == ranks - 1:
        return "exits"
    time.sleep(1)
    return "goes on"


def cycles(_, ranks, device, count):
    begin, free = time.monotonic(), []
    for _ in range(count):
        group = dist.new_group(list(range(ranks)))
        expect_sum(ranks, device, group)
        dist.destroy_process_group(group)
        free.append(free_mib())
    return f"{count} in {time.monotonic() - begin:.1f} s, free MiB {free[count // 10]} after a tenth, {free[-1]} at the end"


def burst(_, ranks, device, count):
    begin = time.monotonic()
    for _ in range(count):
        groups = [dist.new_group(list(range(ranks))) for _ in range(BURST)]
        for group in groups:
            expect_sum(ranks, device, group)
        for group in groups:
            dist.destroy_process_group(group)
    return f"{count} times {BURST} in {time.monotonic() - begin:.1f} s"


BODIES = {"kill": kill, "abort": abort, "exit": exit_early, "cycles": cycles, "burst": burst}


def main(rank, ranks, port, kind, arguments):
    device = start(rank, ranks, port)
    expect_sum(ranks, device)
    print(f"rank {rank}: {BODIES[kind](rank, ranks, device, *arguments)}", flush=True)
    if kind in ("cycles", "burst"):
        dist.destroy_process_group()
    elif kind != "exit":
        os._exit(0)


if __name__ == "__main__":
    ranks, kind = int(sys.argv[1]), sys.argv[2]
    started = mp.spawn(main, (ranks, 29000 + os.getpid() % 500, kind, [int(each) for each in sys.argv[3:]]), ranks, join=False)
    limit = time.monotonic() + LIMIT
    for process in started.processes:
        process.join(max(1, limit - time.monotonic()))
    print("exit codes", [process.exitcode for process in started.processes], flush=True)
    for process in started.processes:
        process.kill()
