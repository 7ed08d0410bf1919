# SPDX-License-Identifier: Apache-2.0
"""DDP over onehop, checked against one rank that trains on the whole batch. On GPUs if each rank has one, else on the CPU:

    onehop launch -n 2 -- python ddp.py
"""
import onehop as oh
import onehop.torch  # makes backend "onehop" known
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SAMPLES = 5, 8  # of each rank


def make_model(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 4)).to(device)


def train(model, device, samples):
    """`samples` is the part of each batch to train on."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(SAMPLES * dist.get_world_size(), 32, generator=generator)[samples].to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :4].sin())
        loss.backward()
        optimizer.step()
    return loss.item()


job = oh.job()
on_gpus = torch.cuda.device_count() >= job.size
device = torch.device("cuda", job.local_rank) if on_gpus else torch.device("cpu")
if on_gpus:
    torch.cuda.set_device(device)
dist.init_process_group("onehop", device_id=device if on_gpus else None)
rank = dist.get_rank()

model = DistributedDataParallel(make_model(device))
loss = train(model, device, slice(rank * SAMPLES, (rank + 1) * SAMPLES))

reference = make_model(device)
train(reference, device, slice(None))
for parameter, expected in zip(model.parameters(), reference.parameters()):
    torch.testing.assert_close(parameter, expected)
print(f"rank {rank} on {device}: loss {loss:.3f}; the parameters are those of training with one rank")
dist.destroy_process_group()
