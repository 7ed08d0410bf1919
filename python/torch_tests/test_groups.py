# SPDX-License-Identifier: Apache-2.0
"""Process groups: one rank, parts of the world, splits, meshes, stores, the life of a group."""

import os
import subprocess
import sys
import textwrap
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import onehop.torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def total(size):
    return float(sum(range(size)))


def one_rank(rank, size):
    """Every call of a group of one rank is a copy; any type."""
    groups = [dist.new_group([r], backend="onehop") for r in range(size)]
    alone = groups[rank]
    for dtype in (torch.float32, torch.int16, torch.bool):
        tensor = torch.ones(5, dtype=dtype) if dtype is torch.bool else torch.arange(5, dtype=dtype)
        expected = tensor.clone()
        dist.all_reduce(tensor, group=alone)
        dist.broadcast(tensor, rank, group=alone)
        dist.reduce(tensor, rank, group=alone)
        assert torch.equal(tensor, expected)
        output = torch.empty_like(tensor)
        dist.all_gather([output], tensor, group=alone)
        assert torch.equal(output, expected)
        dist.all_gather_into_tensor(output.zero_(), tensor, group=alone)
        assert torch.equal(output, expected)
        dist.reduce_scatter_tensor(output.zero_(), tensor, group=alone)
        assert torch.equal(output, expected)
        dist.gather(tensor, [output.zero_()], dst=rank, group=alone)
        assert torch.equal(output, expected)
        dist.scatter(output.zero_(), [tensor], src=rank, group=alone)
        assert torch.equal(output, expected)
        dist.all_to_all_single(output.zero_(), tensor, group=alone)
        assert torch.equal(output, expected)
        dist.all_to_all_single(output.zero_(), tensor, [5], [5], group=alone)
        assert torch.equal(output, expected)
    image = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    for call in (dist.all_gather_into_tensor, dist.reduce_scatter_tensor, dist.all_to_all_single):
        output = torch.empty_like(image)
        call(output, image, group=alone)
        assert torch.equal(output, image)
    scaled = torch.ones(3)
    make = getattr(dist, "_make_nccl_premul_sum", None) or dist._make_premul_sum
    dist.all_reduce(scaled, make(2.0), group=alone)
    assert torch.equal(scaled, torch.full((3,), 2.0))
    objects = [None]
    dist.all_gather_object(objects, rank, group=alone)
    assert objects == [rank]
    dist.all_reduce(tensor := torch.ones(2), async_op=True, group=alone).wait()
    dist.barrier(group=alone)


def parts_of_the_world(rank, size):
    """A group of some ranks, beside the world; ranks in messages and calls are global ones."""
    pairs = [dist.new_group([0, 2], backend="onehop"), dist.new_group([1, 3], backend="onehop")]
    mine = pairs[rank % 2]
    tensor = torch.full((1000,), float(rank))
    dist.all_reduce(tensor, group=mine)
    assert torch.equal(tensor, torch.full((1000,), 2.0 + 2 * (rank % 2)))
    dist.broadcast(tensor, 2 + rank % 2, group=mine)
    dist.all_reduce(tensor)
    other = (rank + 2) % 4
    outgoing, incoming = torch.full((70_000,), float(rank)), torch.empty(70_000)
    requests = [dist.isend(outgoing, other, group=mine), dist.irecv(incoming, other, group=mine)]
    for request in requests:
        request.wait()
    assert torch.equal(incoming, torch.full((70_000,), float(other)))


def mesh(rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for name, expected in (("dp", (rank % 2) * 2 + 2), ("tp", (rank // 2) * 4 + 1)):
        tensor = torch.full((10,), float(rank))
        dist.all_reduce(tensor, group=grid.get_group(name))
        assert torch.equal(tensor, torch.full((10,), float(expected))), name
    line = init_device_mesh("cpu", (4, 1), mesh_dim_names=("dp", "one"))
    tensor = torch.full((10,), float(rank))
    dist.all_reduce(tensor, group=line.get_group("one"))
    assert torch.equal(tensor, torch.full((10,), float(rank)))


def split(rank, size):
    world = dist.distributed_c10d._get_default_group()
    if TORCH >= (2, 14):
        part = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    else:  # dist.split_group of these versions wants a CUDA device: what it calls
        half = [0, 1] if rank < 2 else [2, 3]
        part = world.split_group(
            half, timeout=timedelta(seconds=30), group_name=f"half {half}", group_desc="half"
        )
    tensor = torch.full((10,), float(rank))
    if TORCH >= (2, 14):
        dist.all_reduce(tensor, group=part)
    else:
        part.allreduce([tensor]).wait()
    assert torch.equal(tensor, torch.full((10,), 1.0 if rank < 2 else 5.0))
    options = world._get_backend(torch.device("cpu")).options
    assert options.group_name != part._get_backend(torch.device("cpu")).options.group_name


def several_worlds(rank, size, directory):
    """Create, use and destroy again and again, in one process, on one store."""
    for turn in range(4):
        dist.init_process_group(
            "onehop",
            init_method=f"file://{directory}/world{turn}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=60),
        )
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((10,), float(size)))
        dist.destroy_process_group()


def beside_gloo(rank, size):
    """One process group, two backends; and onehop for a part of a gloo world."""
    group = dist.new_group(list(range(size)), backend="onehop")
    tensor = torch.full((10,), float(rank))
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, torch.full((10,), total(size)))
    dist.all_reduce(tensor)
    dist.barrier(group=group)


def options(rank, size):
    """pg_options reach the group, and nothing else passes."""
    group = dist.new_group([0, 1], backend="onehop", pg_options=onehop.torch.Options(scratch_bytes=1 << 20))
    dist.all_reduce(torch.ones(1000), group=group)
    with pytest.raises(TypeError, match="Options"):
        dist.new_group([0, 1], backend="onehop", pg_options="fast")


def opposite_order(rank, size):
    """Ranks that first use two groups in opposite orders are told what to do."""
    pair = [dist.new_group([0, 1], timeout=timedelta(seconds=3)) for _ in range(2)]
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="in the same order on all ranks, or pass device_id"):
        dist.all_reduce(torch.ones(10), group=pair[rank])
    assert time.monotonic() - start < 20
    dist.all_reduce(torch.ones(10))


@pytest.mark.parametrize(
    "body, size",
    [(one_rank, 2), (parts_of_the_world, 4), (mesh, 4), (split, 4), (options, 2), (opposite_order, 2)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_groups(ranks, body, size):
    ranks(size, body)


def test_several_worlds(ranks, tmp_path):
    ranks(2, several_worlds, str(tmp_path), backend=None)


def test_beside_gloo(ranks):
    ranks(2, beside_gloo, backend="gloo")


def test_exit_without_destroy(tmp_path):
    """A process that exits without destroy_process_group ends, with a message under way that nobody receives."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent("""
        import sys, torch, torch.distributed as dist, onehop.torch
        rank = int(sys.argv[1])
        dist.init_process_group("onehop", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
        x = torch.ones(10)
        dist.all_reduce(x)
        assert x[0] == 2
        if rank == 0:
            dist.isend(torch.ones(1_000_000), 1)
            dist.all_reduce(x, async_op=True)
        else:
            dist.barrier()
        print("end", flush=True)
    """))
    programs = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        (first, _), (_, error) = [program.communicate(timeout=60) for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert programs[0].returncode == 0 and first == "end\n"
    # rank 1 makes another call than the unfinished one of rank 0, or is told that rank 0 has gone
    assert programs[1].returncode == 1 and "DistBackendError" in error


def test_torchrun(tmp_path):
    """The TCPStore of env://, and a program as users write it."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent("""
        import torch, torch.distributed as dist, onehop.torch
        dist.init_process_group("onehop")
        x = torch.full((3,), float(dist.get_rank()))
        dist.all_reduce(x)
        assert x.tolist() == [1.0] * 3
        group = dist.new_group([1])
        y = torch.ones(2)
        dist.send(y, 1) if dist.get_rank() == 0 else dist.recv(y, 0)
        dist.destroy_process_group()
    """))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        check=True,
        timeout=120,
        env=environment,
    )


def test_a_tuning_file_with_a_nul_byte_is_refused():
    with pytest.raises(ValueError, match=r"option tuning='a\\x00b' contains a NUL byte"):
        onehop.torch.Options(tuning="a\0b")
    assert onehop.torch.Options(tuning="a").tuning == "a"


@pytest.mark.parametrize("wrong", [-1, 1 << 63, 1.5, "1M", None])
def test_scratch_bytes_that_are_no_size_are_refused(wrong):
    with pytest.raises(ValueError, match="option scratch_bytes=.* must be a number of bytes"):
        onehop.torch.Options(scratch_bytes=wrong)
