# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over onehop, checked against one rank with the whole model. On GPUs if each rank has one, else on the CPU:

    onehop launch -n 2 -- python fsdp2.py

On GPUs, FSDP's all-gathers write to symmetric memory: a pool that all ranks have mapped.
"""
import onehop as oh
import onehop.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS, SAMPLES, WIDTH = 4, 8, 64


def make_model(device):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(3)]).to(device)


def train(model, device, samples):
    """`samples` is the part of each batch to train on."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(SAMPLES * dist.get_world_size(), WIDTH, generator=generator)[samples].to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.sin())
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

model = make_model(device)
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
if on_gpus:
    pool = onehop.torch.mem_pool(mesh.get_group(), 64 << 20)  # keep it: its memory is FSDP's
    for module in (*model, model):
        module.set_allocate_memory_from_process_group_for_comm(True)
loss = train(model, device, slice(rank * SAMPLES, (rank + 1) * SAMPLES))

reference = make_model(device)
train(reference, device, slice(None))
for parameter, expected in zip(model.parameters(), reference.parameters()):
    torch.testing.assert_close(parameter.full_tensor(), expected, rtol=1e-3, atol=1e-4)
print(f"rank {rank} on {device}: loss {loss:.3f}; the parameters are those of training with one rank")
dist.destroy_process_group()
