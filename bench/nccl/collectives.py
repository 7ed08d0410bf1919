# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with backend "nccl": every collective, each element compared. Prints "right", or what is wrong.

    python collectives.py RANKS [eager]     eager: communicators are made by init_process_group, and split for groups
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.float64, torch.uint8)
COUNTS = (1, 7, 1000, 65537, 1 << 20)


def start(rank, ranks, port, eager=True):
    """Joins the default group; returns this rank's device."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60),
                            device_id=device if eager else None)
    return device


class Checker:
    """Compares results of one rank, and remembers what was wrong."""

    def __init__(self, rank, ranks, device):
        self.rank, self.ranks, self.device = rank, ranks, device
        self.wrong = []

    def check(self, what, right):
        if not right:
            self.wrong.append(what)

    def inputs(self, kind, count):
        """Those of all ranks: small integers, whose sums every type holds."""
        made = []
        for rank in range(self.ranks):
            generator = torch.Generator().manual_seed(1000 * count + rank)
            values = torch.randint(0 if kind == torch.uint8 else -8, 8, (count,), generator=generator)
            made.append(values.to(kind))
        return made

    def collectives(self, kind, count):
        all_in = self.inputs(kind, count)
        own = all_in[self.rank]
        total = sum(all_in[1:], all_in[0])
        what = f"of {count} {kind}"

        data = own.to(self.device)
        dist.all_reduce(data)
        self.check(f"all_reduce {what}", torch.equal(data.cpu(), total))
        data = own.to(self.device)
        dist.all_reduce(data, op=dist.ReduceOp.MAX)
        self.check(f"max {what}", torch.equal(data.cpu(), torch.stack(all_in).max(0)[0]))
        data = own.to(self.device)
        dist.broadcast(data, 1)
        self.check(f"broadcast {what}", torch.equal(data.cpu(), all_in[1]))
        data = own.to(self.device)
        dist.reduce(data, 1)
        if self.rank == 1:
            self.check(f"reduce {what}", torch.equal(data.cpu(), total))
        out = torch.empty(self.ranks * count, dtype=kind, device=self.device)
        dist.all_gather_into_tensor(out, own.to(self.device))
        self.check(f"all_gather {what}", torch.equal(out.cpu(), torch.cat(all_in)))
        out = torch.empty(count, dtype=kind, device=self.device)
        dist.reduce_scatter_tensor(out, own.repeat(self.ranks).to(self.device))
        self.check(f"reduce_scatter {what}", torch.equal(out.cpu(), total))
        blocks = [torch.cat([each + to for to in range(self.ranks)]) for each in all_in]
        out = torch.empty(self.ranks * count, dtype=kind, device=self.device)
        dist.all_to_all_single(out, blocks[self.rank].to(self.device))
        begin = self.rank * count
        self.check(f"all_to_all {what}", torch.equal(out.cpu(), torch.cat([each[begin:begin + count] for each in blocks])))

    def others(self):
        rank, ranks, device = self.rank, self.ranks, self.device
        sent = torch.full((5000,), float(rank), device=device)
        received = torch.empty_like(sent)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
                                            dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]):
            work.wait()
        self.check("batch_isend_irecv", bool((received == (rank - 1) % ranks).all()))
        outs = [torch.empty(10 * (each + 1), device=device) for each in range(ranks)]
        dist.all_to_all(outs, [torch.full((10 * (rank + 1),), float(rank), device=device) for _ in range(ranks)])
        self.check("all_to_all of uneven blocks", all(bool((out == each).all()) for each, out in enumerate(outs)))
        data = torch.full((1000,), float(rank), device=device)
        dist.all_reduce(data, op=dist.ReduceOp.AVG)
        self.check("average", bool((data == (ranks - 1) / 2).all()))
        data = torch.full((1000,), float(rank + 1), device=device)
        dist.all_reduce(data, op=dist._make_nccl_premul_sum(2.0))
        self.check("premultiplied sum", bool((data == ranks * (ranks + 1)).all()))
        for group in (dist.new_group(list(range(ranks))), dist.new_group(list(range(ranks)))):
            data = torch.ones(100, device=device)
            dist.all_reduce(data, group=group)
            self.check("new_group", bool((data == ranks).all()))
        with dist._coalescing_manager(device=device):
            several = [torch.full((100,), float(each + rank), device=device) for each in range(5)]
            for data in several:
                dist.all_reduce(data)
        torch.cuda.synchronize()
        self.check("coalesced", all(bool((data == each * ranks + ranks * (ranks - 1) / 2).all())
                                    for each, data in enumerate(several)))

    def graph(self):
        data = torch.ones(4096, device=self.device)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            dist.all_reduce(data)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                dist.all_reduce(data)
        data.fill_(1)
        torch.cuda.synchronize()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        self.check("CUDA graph", bool((data == float(self.ranks) ** 3).all()))


def main(rank, ranks, port, eager):
    checker = Checker(rank, ranks, start(rank, ranks, port, eager))
    for kind in TYPES:
        for count in COUNTS:
            checker.collectives(kind, count)
    checker.others()
    checker.graph()
    print(f"rank {rank}: {'right' if not checker.wrong else f'WRONG: {checker.wrong}'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (int(sys.argv[1]), 29000 + os.getpid() % 500, "eager" in sys.argv[2:]), int(sys.argv[1]))
