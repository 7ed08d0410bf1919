# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer with torch.distributed and backend "nccl": 30 steps on random tokens. Prints per rank the first and last
loss, a digest of all losses and of the parameters at the end, and the median time of a step.

    python training.py RANKS ddp|fsdp|mesh|compile [FOLDER]     FOLDER: also saves losses, and what each parameter has learned, there
    python training.py RANKS --compare FOLDER FOLDER            how much two runs differ: losses relative to the second one's, and what was
                                                                learned as norm of the difference over norm, over all parameters of a rank

mesh: FSDP in rows of a mesh of 2 x RANKS / 2 that has a replica in each row, so it needs an even number of 4 ranks or more: a mesh of 2 x 1 has
groups of one rank and of all. BACKEND=gloo runs it in host memory, to try the program itself.
"""
import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from collectives import on_gpus, say, start, synchronize

WIDTH, TOKENS, STEPS, WARMUP = 512, 1000, 30, 5


def model():
    torch.manual_seed(7)
    layers = [nn.TransformerEncoderLayer(WIDTH, 8, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(4)]
    return nn.Sequential(nn.Embedding(TOKENS, WIDTH), *layers, nn.Linear(WIDTH, TOKENS))


def parallel(net, kind, ranks):
    if kind in ("ddp", "compile"):
        net = nn.parallel.DistributedDataParallel(net)
        return torch.compile(net) if kind == "compile" else net
    shape, names = ((2, ranks // 2), ("replicas", "data")) if kind == "mesh" else ((ranks,), ("data",))
    mesh = init_device_mesh("cuda" if on_gpus() else "cpu", shape, mesh_dim_names=names)
    for layer in net:
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def local(parameter):
    return (parameter.to_local() if hasattr(parameter, "to_local") else parameter).detach().cpu()


def main(rank, ranks, port, kind, folder):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    device = start(rank, ranks, port)
    torch.use_deterministic_algorithms(True, warn_only=True)
    net = parallel(model().to(device), kind, ranks)
    first = [local(each).clone() for each in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses, seconds = [], []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        tokens = torch.randint(0, TOKENS, (8, 64), generator=generator).to(device)
        synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), ((7 * tokens + 3) % TOKENS).flatten())
        loss.backward()
        optimizer.step()
        synchronize()
        seconds.append(time.perf_counter() - begin)
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / ranks)
    digest = hashlib.sha256(repr(losses).encode())
    last = [local(each) for each in net.parameters()]
    for parameter in last:
        digest.update(parameter.numpy().tobytes())
    if folder:
        learned = [after.double() - before.double() for before, after in zip(first, last)]
        torch.save((losses, learned), Path(folder, f"{rank}.pt"))
    median = sorted(seconds[WARMUP:])[(STEPS - WARMUP) // 2]
    say(f"rank {rank}: loss {losses[0]:.6f} to {losses[-1]:.6f}, bits {digest.hexdigest()[:12]}, {1e3 * median:.1f} ms")
    dist.destroy_process_group()


def compare(ranks, one, other):
    for rank in range(ranks):
        (losses, learned), (their_losses, theirs) = (torch.load(Path(folder, f"{rank}.pt")) for folder in (one, other))
        loss = max(abs(a - b) / abs(b) for a, b in zip(losses, their_losses, strict=True))
        difference = sum((a - b).square().sum() for a, b in zip(learned, theirs, strict=True)).sqrt()
        norm = sum(each.square().sum() for each in theirs).sqrt()
        say(f"rank {rank}: losses differ by {loss:.3e}, updates by {(difference / norm).item():.3e}")


if __name__ == "__main__":
    number = int(sys.argv[1])
    if sys.argv[2] == "--compare":
        compare(number, *sys.argv[3:])
    elif sys.argv[2] == "mesh" and (number < 4 or number % 2):
        sys.exit("mesh: needs an even number of 4 ranks or more")
    else:
        mp.spawn(main, (number, 29000 + os.getpid() % 500, sys.argv[2], *(sys.argv[3:] or [None])), number)
