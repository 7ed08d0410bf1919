# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer with torch.distributed and backend "nccl": 30 steps on random tokens. Prints per rank the first and last
loss, a digest of all losses and of the parameters at the end, and the median time of a step.

    python training.py RANKS ddp|fsdp|mesh|compile
"""
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from collectives import start

WIDTH, TOKENS, STEPS, WARMUP = 512, 1000, 30, 5


def model():
    torch.manual_seed(7)
    layers = [nn.TransformerEncoderLayer(WIDTH, 8, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(4)]
    return nn.Sequential(nn.Embedding(TOKENS, WIDTH), *layers, nn.Linear(WIDTH, TOKENS))


def parallel(net, kind, ranks):
    if kind in ("ddp", "compile"):
        net = nn.parallel.DistributedDataParallel(net)
        return torch.compile(net) if kind == "compile" else net
    shape, names = ((ranks, 1), ("data", "tensor")) if kind == "mesh" else ((ranks,), ("data",))
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=names)["data"]
    for layer in net:
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def main(rank, ranks, port, kind):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    device = start(rank, ranks, port)
    torch.use_deterministic_algorithms(True, warn_only=True)
    net = parallel(model().to(device), kind, ranks)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses, seconds = [], []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        tokens = torch.randint(0, TOKENS, (8, 64), generator=generator).to(device)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), ((7 * tokens + 3) % TOKENS).flatten())
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / ranks)
    digest = hashlib.sha256(repr(losses).encode())
    for parameter in net.parameters():
        own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        digest.update(own.detach().cpu().numpy().tobytes())
    median = sorted(seconds[WARMUP:])[(STEPS - WARMUP) // 2]
    print(f"rank {rank}: loss {losses[0]:.6f} to {losses[-1]:.6f}, bits {digest.hexdigest()[:12]}, {1e3 * median:.1f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (int(sys.argv[1]), 29000 + os.getpid() % 500, sys.argv[2]), int(sys.argv[1]))
