# SPDX-License-Identifier: Apache-2.0
"""Host cost of dist.all_reduce over CPU tensors, beside gloo: python bench_host.py [ranks].

Microseconds per call, median of several blocks. Meaningful on an idle machine only.
"""

import statistics
import sys
import tempfile
import time
from multiprocessing import get_context

SIZES = [4, 1 << 10, 256 << 10, 4 << 20, 64 << 20]


def main(rank, size, backend, directory):
    import torch
    import torch.distributed as dist

    import onehop.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{directory}/{backend}", rank=rank, world_size=size)
    alone = dist.new_group([0], backend=backend)
    for nbytes in SIZES:
        tensor = torch.ones(nbytes // 4)
        repeat = max(3, min(2000, (16 << 20) // nbytes))
        blocks = {"sync": [], "async": []}
        for _ in range(7):
            for name in blocks:
                dist.barrier()
                begin = time.perf_counter()
                for _ in range(repeat):
                    work = dist.all_reduce(tensor, async_op=name == "async")
                    if work is not None:
                        work.wait()
                blocks[name].append((time.perf_counter() - begin) / repeat * 1e6)
        if rank == 0:
            sync, other = (statistics.median(blocks[name][1:]) for name in ("sync", "async"))
            print(f"{backend:8} {nbytes:>10} bytes: {sync:10.1f} us, async_op {other:10.1f} us", flush=True)
    if rank == 0:
        tensor = torch.ones(1)
        for _ in range(2):
            begin = time.perf_counter()
            for _ in range(20_000):
                dist.all_reduce(tensor, group=alone)
            cost = (time.perf_counter() - begin) / 20_000 * 1e6
        print(f"{backend:8} group of one rank, the cost of c10d and the adapter: {cost:.2f} us", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    context = get_context("spawn")
    for name in ("onehop", "gloo"):
        with tempfile.TemporaryDirectory() as where:
            workers = [context.Process(target=main, args=(r, count, name, where)) for r in range(count)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
