# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with backend "nccl", a process per rank: every collective, each element compared. Prints "right", or what is wrong, and
exits with 1 then.

    python collectives.py RANKS [eager] [ITERATIONS]     eager: communicators are made by init_process_group, and split for groups

Then ITERATIONS (300) calls of random collectives, counts and types, with new random data in each: programs that fill their buffers once do not
see a result that is left from the call before. Groups of some of the ranks: of one, of pairs, of all but one.
BACKEND=gloo runs it in host memory, to try the program itself, without what only NCCL has.
"""
import datetime
import os
import random
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.float64, torch.uint8)
COUNTS = (1, 7, 1000, 65537, 1 << 20)
BACKEND = os.environ.get("BACKEND", "nccl")
COLLECTIVES = ("all_reduce", "max", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all")


def on_gpus():
    return BACKEND == "nccl"


def synchronize():
    if on_gpus():
        torch.cuda.synchronize()


def say(text):
    """A line in one piece: other ranks write to the same pipe."""
    os.write(1, f"{text}\n".encode())


def start(rank, ranks, port, eager=True):
    """Joins the default group; returns this rank's device."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpus() else torch.device("cpu")
    if on_gpus():
        torch.cuda.set_device(device)
    dist.init_process_group(BACKEND, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60),
                            device_id=device if eager and on_gpus() else None)
    return device


class Checker:
    """Compares results of one rank, and remembers what was wrong."""

    def __init__(self, rank, ranks, device):
        self.rank, self.ranks, self.device = rank, ranks, device
        self.wrong = []

    def check(self, what, right):
        if not right:
            self.wrong.append(what)

    def inputs(self, kind, count, ranks, seed):
        """Those of all ranks: small integers, whose sums every type holds. Made on the device, so that calls follow each other closely: GPUs of one
        kind make the same ones."""
        made = []
        for rank in ranks:
            generator = torch.Generator(self.device).manual_seed(1000 * seed + rank)
            made.append(torch.randint(0 if kind == torch.uint8 else -8, 8, (count,), generator=generator, device=self.device).to(kind))
        return made

    def call(self, name, kind, count, seed, group=None):
        """Makes one call, and returns whether each element is right, on the device: nothing waits for it."""
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        own, root = ranks.index(self.rank), ranks[min(1, len(ranks) - 1)]
        all_in = self.inputs(kind, count, ranks, seed)
        total = sum(all_in[1:], all_in[0])
        data = all_in[own].clone()
        if name in ("all_reduce", "max"):
            dist.all_reduce(data, op=dist.ReduceOp.MAX if name == "max" else dist.ReduceOp.SUM, group=group)
            return (data == (torch.stack(all_in).max(0)[0] if name == "max" else total)).all()
        if name == "broadcast":
            dist.broadcast(data, root, group=group)
            return (data == all_in[ranks.index(root)]).all()
        if name == "reduce":
            dist.reduce(data, root, group=group)
            return (data == total).all() if self.rank == root else torch.ones((), dtype=torch.bool, device=self.device)
        if name == "all_gather":
            out = torch.empty(len(ranks) * count, dtype=kind, device=self.device)
            dist.all_gather_into_tensor(out, data, group=group)
            return (out == torch.cat(all_in)).all()
        if name == "reduce_scatter":
            out = torch.empty(count, dtype=kind, device=self.device)
            dist.reduce_scatter_tensor(out, torch.cat([data + to for to in range(len(ranks))]), group=group)
            return (out == total + len(ranks) * own).all()
        blocks = [torch.cat([each + to for to in range(len(ranks))]) for each in all_in]
        out = torch.empty(len(ranks) * count, dtype=kind, device=self.device)
        dist.all_to_all_single(out, blocks[own], group=group)
        return (out == torch.cat([each[own * count:(own + 1) * count] for each in blocks])).all()

    def collectives(self, kind, count, group=None, what=""):
        for name in COLLECTIVES:
            self.check(f"{name} of {count} {kind}{what}", bool(self.call(name, kind, count, count, group)))

    def iterations(self, number):
        """Calls of which nothing is waited for until the end, each with data of its own. All ranks choose the same ones."""
        chosen = random.Random(7)
        calls = [(chosen.choice(COLLECTIVES), chosen.choice(TYPES), int(2 ** chosen.uniform(0, 18))) for _ in range(number)]
        right = [self.call(*each, seed=10**6 + iteration) for iteration, each in enumerate(calls)]
        for iteration, (name, kind, count) in enumerate(calls):
            self.check(f"iteration {iteration}: {name} of {count} {kind}", bool(right[iteration]))

    def groups(self):
        """Of some of the ranks. The calls of groups that share no rank run at the same time. torch sorts the ranks of a group."""
        world = list(range(self.ranks))
        subsets = [[rank] for rank in world]
        if self.ranks > 2:
            subsets += [world[:-1], world[1:], world[::2], world[:1] + world[-1:], list(reversed(world))[:-1]]
        if self.ranks > 3:
            subsets += [world[begin:begin + 2] for begin in range(0, self.ranks - 1, 2)]
        made = [(each, dist.new_group(each)) for each in subsets]  # all ranks make all of them
        for each, group in made:
            if self.rank not in each:
                continue
            self.check(f"order of group {each}", dist.get_process_group_ranks(group) == sorted(each))
            for kind in (torch.float32, torch.int64):
                for count in (7, 65537):
                    self.collectives(kind, count, group, f" in group {each}")
        for each, group in made:
            if self.rank in each:
                dist.destroy_process_group(group)

    def others(self):
        rank, ranks, device = self.rank, self.ranks, self.device
        sent = torch.full((5000,), float(rank), device=device)
        received = torch.empty_like(sent)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
                                            dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]):
            work.wait()
        self.check("batch_isend_irecv", bool((received == (rank - 1) % ranks).all()))
        for group in (dist.new_group(list(range(ranks))), dist.new_group(list(range(ranks)))):
            data = torch.ones(100, device=device)
            dist.all_reduce(data, group=group)
            self.check("new_group", bool((data == ranks).all()))

    def only_nccl(self):
        rank, ranks, device = self.rank, self.ranks, self.device
        outs = [torch.empty(10 * (each + 1), device=device) for each in range(ranks)]
        dist.all_to_all(outs, [torch.full((10 * (rank + 1),), float(rank), device=device) for _ in range(ranks)])
        self.check("all_to_all of uneven blocks", all(bool((out == each).all()) for each, out in enumerate(outs)))
        data = torch.full((1000,), float(rank), device=device)
        dist.all_reduce(data, op=dist.ReduceOp.AVG)
        self.check("average", bool((data == (ranks - 1) / 2).all()))
        data = torch.full((1000,), float(rank + 1), device=device)
        dist.all_reduce(data, op=dist._make_nccl_premul_sum(2.0))
        self.check("premultiplied sum", bool((data == ranks * (ranks + 1)).all()))
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


def main(rank, ranks, port, eager, iterations):
    checker = Checker(rank, ranks, start(rank, ranks, port, eager))
    for kind in TYPES:
        for count in COUNTS:
            checker.collectives(kind, count)
    checker.others()
    checker.groups()
    checker.iterations(iterations)
    if on_gpus():
        checker.only_nccl()
        checker.graph()
    say(f"rank {rank}: {'right' if not checker.wrong else f'WRONG: {checker.wrong}'}")
    dist.destroy_process_group()
    sys.exit(1 if checker.wrong else 0)


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[2:] if each != "eager"]
    mp.spawn(main, (int(sys.argv[1]), 29000 + os.getpid() % 500, "eager" in sys.argv[2:], *(numbers or [300])), int(sys.argv[1]))
