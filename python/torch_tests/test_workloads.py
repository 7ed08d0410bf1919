# SPDX-License-Identifier: Apache-2.0
"""What people run: DDP, FSDP2, tensor parallelism, functional collectives, torch.compile, checkpoints."""

import copy
import hashlib
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn

import onehop.torch


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(x)))


def transformer(width=32, layers=3):
    torch.manual_seed(7)
    return nn.Sequential(*[Block(width) for _ in range(layers)])


def batch(step, width=32):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 5, width, generator=generator, device="cpu").to(torch.get_default_device())


def digest(tensors):
    result = hashlib.sha256()
    for tensor in tensors:
        result.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return result.hexdigest()


def train(model, steps, part=slice(None)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step)[part]).square().mean().backward()
        optimizer.step()
    return model


def share(rank, size):
    return slice(rank * 8 // size, (rank + 1) * 8 // size)


def ddp(rank, size):
    digests = []
    for _ in range(2):
        model = nn.parallel.DistributedDataParallel(
            transformer(), bucket_cap_mb=0.02, find_unused_parameters=False
        )
        train(model, 4, share(rank, size))
        digests.append(digest(model.parameters()))
    assert digests[0] == digests[1], "two runs differ in their bits"
    reference = train(transformer(), 4)
    for got, expected in zip(model.module.parameters(), reference.parameters()):
        torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-4)
    everyone = [None] * size
    dist.all_gather_object(everyone, digests[0])
    assert len(set(everyone)) == 1
    return digests[0]


def ddp_hook(rank, size):
    """A communication hook in Python: futures with callbacks."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = nn.parallel.DistributedDataParallel(transformer(layers=1))
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    train(model, 2, share(rank, size))
    everyone = [None] * size
    dist.all_gather_object(everyone, digest(model.parameters()))
    assert len(set(everyone)) == 1


def train_sharded(mesh, rank, size):
    """Trains a model whose parameters are sharded over the mesh, and compares it with one that is not."""
    from torch.distributed.fsdp import fully_shard

    model = transformer()
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(step)[share(rank, size)]).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()
    reference = train(transformer(), 3)
    for got, expected in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(got.full_tensor(), expected, rtol=2e-3, atol=2e-4)


def fsdp2(rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    train_sharded(init_device_mesh(torch.get_default_device().type, (size,)), rank, size)


def tensor_parallel(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(16)
            self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x):
            return self.down(torch.relu(self.up(self.norm(x))))

    torch.manual_seed(3)
    model = Mlp()
    reference = copy.deepcopy(model)
    mesh = init_device_mesh(torch.get_default_device().type, (size,))
    model = parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    x = torch.randn(4, 16)
    dist.broadcast(x, 0)
    torch.testing.assert_close(model(x), reference(x))
    model(x).sum().backward()
    reference(x).sum().backward()
    torch.testing.assert_close(model.up.weight.grad.full_tensor(), reference.up.weight.grad)

    from torch.distributed.tensor import Replicate, Shard

    torch.manual_seed(3)
    sequence = parallelize_module(
        Mlp(),
        mesh,
        {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Replicate()),
        },
    )
    y = torch.randn(2, 8, 16)
    dist.broadcast(y, 0)
    torch.testing.assert_close(sequence(y.chunk(size, dim=1)[rank]), reference(y))


def functionals(rank, size):
    """Eager and compiled."""
    group = dist.distributed_c10d._get_default_group()
    x = torch.arange(8.0 * size).view(2 * size, 4) + rank

    def program(x):
        a = functional.all_reduce(x, "sum", group)
        b = functional.all_gather_tensor(a, 0, group)
        c = functional.reduce_scatter_tensor(b, "avg", 0, group)
        d = functional.all_to_all_single(c, None, None, group)
        e = functional.broadcast(d * (rank + 1), 0, group)
        f, g = functional.all_reduce_coalesced([e, e + rank], "max", group)
        (h,) = functional.all_gather_into_tensor_coalesced([f], group)
        (i,) = functional.reduce_scatter_tensor_coalesced([h], "sum", [0], group)
        return torch.relu(i) + g

    eager = program(x)
    eager = eager.wait() if hasattr(eager, "wait") else eager
    base = sum(torch.arange(8.0 * size).view(2 * size, 4) + r for r in range(size))
    exchanged = torch.cat([base.chunk(size)[rank]] * size)
    f = torch.cat([base.chunk(size)[0]] * size)  # of rank 0, by broadcast
    torch.testing.assert_close(eager, f * size + f + size - 1)
    assert exchanged.shape == f.shape
    compiled = torch.compile(program, fullgraph=True)(x)
    torch.testing.assert_close(compiled, eager)


def operators(rank, size):
    name = onehop.torch.register_group()
    x = torch.arange(8.0 * size).view(2 * size, 4) + rank
    parts = [torch.arange(8.0 * size).view(2 * size, 4) + r for r in range(size)]
    total = sum(parts[1:], parts[0])
    assert torch.equal(torch.ops.onehop.all_reduce(x, name), total)
    assert torch.equal(torch.ops.onehop.all_reduce(x.t(), name, "max"), torch.stack(parts).amax(0).t())
    assert torch.equal(torch.ops.onehop.all_gather(x, name), torch.cat(parts))
    assert torch.equal(torch.ops.onehop.reduce_scatter(x, name, "avg"), (total / size).chunk(size)[rank])
    assert torch.equal(
        torch.ops.onehop.all_to_all_single(x, name), torch.cat([p.chunk(size)[rank] for p in parts])
    )
    y = x.clone()
    torch.ops.onehop.all_reduce_(y, name)
    assert torch.equal(y, total)
    torch.ops.onehop.all_reduce_out(x, name, out=y.zero_())
    assert torch.equal(y, total)
    for wrong, message in (
        (lambda: torch.ops.onehop.all_reduce(x, "nobody"), "no group is registered as 'nobody'"),
        (lambda: torch.ops.onehop.all_reduce(x, name, "sam"), "sam"),
        (lambda: torch.ops.onehop.all_reduce(x.bool(), name), "not supported"),
        (lambda: torch.ops.onehop.all_reduce(x.to_sparse(), name), "x of layout torch.sparse_coo .* pass a dense"),
        (lambda: torch.ops.onehop.reduce_scatter(torch.ones(2 * size + 1), name), "divisible"),
    ):
        with pytest.raises(RuntimeError, match=message):
            wrong()
    def program(x):
        y = torch.ops.onehop.all_reduce(x * 2, name)
        torch.ops.onehop.all_reduce_(y, name)
        z = torch.ops.onehop.reduce_scatter(torch.ops.onehop.all_gather(y, name), name)
        return torch.relu(torch.ops.onehop.all_to_all_single(z, name)) + 1

    compiler = "inductor" if size == 2 else "aot_eager"  # the latter is quick
    torch.testing.assert_close(torch.compile(program, fullgraph=True, backend=compiler)(x), program(x))
    torch.library.opcheck(
        torch.ops.onehop.all_reduce.default, (x, name), test_utils=("test_schema", "test_faketensor")
    )
    torch.library.opcheck(
        torch.ops.onehop.all_reduce_.default, (x, name), test_utils=("test_schema", "test_faketensor")
    )
    torch.library.opcheck(
        torch.ops.onehop.all_gather.default, (x, name), test_utils=("test_schema", "test_faketensor")
    )
    onehop.torch.unregister_group(name)
    with pytest.raises(RuntimeError, match="no group"):
        torch.ops.onehop.all_reduce(x, name)


def add_rms_norm(rank, size):
    """Every element against float64: the residual, and the norm of the residual that came out."""
    name = onehop.torch.register_group()
    norm = torch.ops.onehop.all_reduce_add_rms_norm_
    device = torch.empty(0).device
    sampler = torch.Generator(device).manual_seed(7)

    def random(*shape):
        return torch.randn(*shape, generator=sampler, device=device)

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        info = torch.finfo(dtype)
        # An operation's rounding, relative and where numbers are subnormal; that of a few in float32.
        half, least, few = 0.5 * info.eps, 0.5 * info.smallest_normal * info.eps, 8 * torch.finfo(torch.float32).eps
        for shape in ((5,), (1, 1), (3, 7), (2, 5, 33), (17, 1001), (4, 4096), (0, 8), (3, 0)):
            parts = [random(*shape).to(dtype) for _ in range(size)]
            before, weight, eps = random(*shape).to(dtype), random(shape[-1]).to(dtype), 1e-5
            wide = torch.empty(*shape[:-1], 2 * shape[-1], dtype=dtype)
            for residual in (before.clone(), wide[..., : shape[-1]].copy_(before)):  # the latter has gaps
                x = parts[rank].clone()
                assert norm(x, residual, weight, eps, name) is None
                exact = [part.double() for part in parts]
                total, magnitude = sum(exact), sum(part.abs() for part in exact)
                wanted = before.double() + total
                bound = half * (total.abs() + wanted.abs()) * (1 + few) + half * half * total.abs()
                bound += few * magnitude + 2 * least
                assert ((residual.double() - wanted).abs() <= bound).all(), (dtype, shape)
                y = residual.double()
                y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight.double()
                assert ((x.double() - y).abs() <= (half + few) * y.abs() + least).all(), (dtype, shape)

    x, residual, weight = random(6, 32), random(6, 32), random(32)
    dist.broadcast(residual, 0)
    expected, first = x.clone(), residual.clone()
    norm(expected, first, weight, 1e-6, name)
    x.requires_grad_(), weight.requires_grad_()  # as parameters do outside of no_grad: no gradients, no error
    y, second = x.detach().clone(), residual.clone()
    norm(y, second, weight, 1e-6, name)
    assert torch.equal(y, expected) and torch.equal(second, first) and not y.requires_grad
    x, weight = x.detach(), weight.detach()

    def program(x, residual):
        x = x * 1.0
        residual = residual + 0.0
        norm(x, residual, weight, 1e-6, name)
        return x * 2, residual

    compiler = "inductor" if size == 2 else "aot_eager"
    twice, second = torch.compile(program, fullgraph=True, backend=compiler)(x, residual)
    assert torch.equal(twice, expected * 2) and torch.equal(second, first)
    torch.library.opcheck(
        norm.default, (x, residual, weight, 1e-6, name), test_utils=("test_schema", "test_faketensor")
    )
    onehop.torch.unregister_group(name)


def operator_refusals(rank, size):
    """A mistake of one rank ends the call on the others, too, at once. The group stays usable."""
    name = onehop.torch.register_group()
    x = torch.arange(8.0).view(2, 4)
    one = torch.ones(4)
    norm = torch.ops.onehop.all_reduce_add_rms_norm_
    for wrong, message in (
        (lambda: norm(x.double(), x.double(), one.double(), 0.0, name), "x is of type Double: convert to float16"),
        (lambda: norm(torch.tensor(1.0), x, one, 0.0, name), "x has 0 dimensions: pass rows"),
        (lambda: norm(x.t(), x.t(), one, 0.0, name), r"x of sizes \[4, 2\] .* is not contiguous"),
        (lambda: norm(x, x[:1], one, 0.0, name), r"residual has sizes \[1, 4\].*needs one of sizes \[2, 4\]"),
        (lambda: norm(x, x.half(), one, 0.0, name), "residual has .* type Half .* and type Float"),
        (lambda: norm(x, x.clone(), one[:3], 0.0, name), r"weight has sizes \[3\].*needs one of sizes \[4\]"),
        (lambda: norm(x, x, one, 0.0, name), r"share memory: pass residual.clone\(\)"),
        (lambda: norm(x, x.clone(), one, -1.0, name), "eps is -1: "),
        (lambda: norm(x, x.clone(), one, float("nan"), name), "eps is nan: "),
        (lambda: torch.ops.onehop.all_reduce(x.bool(), name), "type Bool are not supported"),
        (lambda: torch.ops.onehop.all_reduce_(x.t(), name), r"strides \[1, 4\] is not contiguous"),
        (lambda: torch.ops.onehop.all_reduce_out(x, name, out=x[1:]), "pass an out like x"),
    ):
        y, residual = x.clone(), x.clone()
        begin = time.monotonic()
        with pytest.raises(RuntimeError, match=message if rank == 0 else "rank 0"):
            wrong() if rank == 0 else norm(y, residual, one, 0.0, name)
        assert time.monotonic() - begin < 10 and torch.equal(y, x) and torch.equal(residual, x)
        assert torch.equal(torch.ops.onehop.all_reduce(x, name), x * size)
    onehop.torch.unregister_group(name)


def checkpoint(rank, size, directory):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    mesh = init_device_mesh(torch.get_default_device().type, (size,))
    whole = torch.arange(40.0).view(8, 5)
    state = {"weight": distribute_tensor(whole, mesh, [Shard(0)]), "step": torch.tensor(3)}
    dcp.save(state, checkpoint_id=directory)
    empty = {"weight": distribute_tensor(torch.zeros(8, 5), mesh, [Shard(0)]), "step": torch.tensor(0)}
    dcp.load(empty, checkpoint_id=directory)
    assert isinstance(empty["weight"], DTensor) and torch.equal(empty["weight"].full_tensor(), whole)
    assert empty["step"].item() == 3


def uneven_inputs(rank, size):
    """DDP's join: a rank runs out of data before the others."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    with model.join():
        for _ in range(3 + rank):
            model(torch.ones(2, 4)).sum().backward()


def zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(transformer(layers=1))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
    for step in range(2):
        optimizer.zero_grad()
        model(batch(step)[share(rank, size)]).square().mean().backward()
        optimizer.step()
    everyone = [None] * size
    dist.all_gather_object(everyone, digest(model.parameters()))
    assert len(set(everyone)) == 1


def pipeline(rank, size):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    layers = transformer(layers=size)
    stage = PipelineStage(layers[rank], rank, size, torch.get_default_device())
    schedule = ScheduleGPipe(stage, n_microbatches=4)
    x = batch(0)
    output = schedule.step(x) if rank == 0 else schedule.step()
    if rank == size - 1:
        torch.testing.assert_close(output, layers(x), rtol=1e-4, atol=1e-5)


def test_ddp_matches_a_single_rank_and_repeats_its_bits(ranks, tmp_path):
    first = ranks(2, ddp)
    (tmp_path / "again").mkdir()
    second = ranks(2, ddp, directory=tmp_path / "again")
    assert first == second, "two jobs differ in their bits"


@pytest.mark.parametrize(
    "body, size",
    [
        (ddp_hook, 2),
        (fsdp2, 2),
        (fsdp2, 4),
        (tensor_parallel, 2),
        (functionals, 2),
        (operators, 2),
        (operators, 3),
        (operator_refusals, 3),
        (add_rms_norm, 2),
        (add_rms_norm, 3),
        (uneven_inputs, 2),
        (zero, 2),
        (pipeline, 2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_workload(ranks, body, size):
    ranks(size, body)


def test_checkpoint(ranks, tmp_path):
    ranks(2, checkpoint, str(tmp_path / "checkpoint"))
