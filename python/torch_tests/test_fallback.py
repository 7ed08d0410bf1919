# SPDX-License-Identifier: Apache-2.0
"""Process groups that onehop cannot carry: two machines of two ranks each, connected by gloo."""

import functools
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import timedelta

import machines
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import meet
from test_workloads import digest, share, train, train_sharded, transformer
from torch import nn

import onehop.torch

TWO_MACHINES = (0, 0, 1, 1)


@pytest.fixture
def machine_ranks(ranks):
    """ranks(4, ...) on two machines."""
    reason = machines.why_not()
    if reason:
        pytest.skip(f"needs the right to mount in a namespace of its own: {reason}")
    return functools.partial(ranks, 4, on_machines=TWO_MACHINES)


def join(rank, size, directory, timeout=60, **options):
    dist.init_process_group(
        "onehop",
        init_method=f"file://{directory}/world",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
        pg_options=onehop.torch.Options(**options) if options else None,
    )


def backend_of(group=None):
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu"))


def expect_sum(group, members, rank):
    tensor = torch.full((1000,), float(rank))
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, torch.full((1000,), float(sum(members))))


def wait_for(path):
    """For ranks that must not come before another one is through."""
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


class Messages(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("onehop").addHandler(self)
        logging.getLogger("onehop").setLevel(logging.INFO)

    def emit(self, record):
        self.lines.append(record.getMessage())


def chosen_engines(rank, size):
    """Groups within a machine run on onehop, others on gloo, and the first rank of those says so, once."""
    messages = Messages()
    expect_sum(None, range(4), rank)
    assert onehop.torch.engine() == "gloo"
    expect_sum(None, range(4), rank)
    if rank == 0:
        (line,) = messages.lines
        assert "uses gloo for tensors on cpu: its 4 ranks are on 2 machines" in line
    else:
        assert not messages.lines
    messages.lines.clear()
    for members, engine in (([0, 1], "onehop"), ([2, 3], "onehop"), ([1, 3], "gloo"), ([0, 2, 3], "gloo")):
        group = dist.new_group(members)
        if rank in members:
            assert onehop.torch.engine(group, "cpu") == engine
            expect_sum(group, members, rank)
            if engine == "onehop":
                name = onehop.torch.register_group(group, "cpu")
                assert torch.ops.onehop.all_reduce(torch.ones(3), name).tolist() == [2.0] * 3
                onehop.torch.unregister_group(name)
            else:
                with pytest.raises(ValueError, match="runs on gloo"):
                    onehop.torch.register_group(group, "cpu")
    assert len(messages.lines) == {0: 1, 1: 1}.get(rank, 0)
    alone = [dist.new_group([r]) for r in range(size)][rank]
    expect_sum(alone, [rank], rank)
    assert onehop.torch.engine(alone) == "onehop"


def collectives(rank, size):
    """Each kind of call. BAND, complex products and the like are gloo's own."""
    tensor = torch.full((5,), rank, dtype=torch.int32)
    dist.all_reduce(tensor, dist.ReduceOp.BOR)
    assert tensor.tolist() == [3] * 5
    works = [dist.all_reduce(torch.full((9,), float(rank + i)), async_op=True) for i in range(5)]
    for i, work in enumerate(works):
        total = work.get_future().then(lambda f: f.value()[0].sum()).wait()
        assert total == 9 * (6 + 4 * i)
        work.wait()
        assert work.is_completed() and work.is_success()
    source = torch.full((3,), float(rank))
    dist.broadcast(source, 2)
    assert source.tolist() == [2.0] * 3
    reduced = torch.full((3,), float(rank))
    dist.reduce(reduced, 3)
    assert rank != 3 or reduced.tolist() == [6.0] * 3
    own = torch.full((2,), float(rank))
    parts = [torch.empty(2) for _ in range(size)]
    dist.all_gather(parts, own)
    assert torch.cat(parts).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    whole = torch.empty(8)
    dist.all_gather_into_tensor(whole, own)
    assert torch.equal(whole, torch.cat(parts))
    gathered = [torch.empty(2) for _ in range(size)] if rank == 1 else None
    dist.gather(own, gathered, dst=1)
    assert rank != 1 or torch.equal(torch.cat(gathered), whole)
    scattered = torch.empty(2)
    dist.scatter(scattered, [part + 1 for part in parts] if rank == 0 else None, src=0)
    assert torch.equal(scattered, own + 1)
    dist.reduce_scatter_tensor(scattered, whole)
    assert torch.equal(scattered, own * size)
    dist.reduce_scatter(scattered, parts)
    assert torch.equal(scattered, own * size)
    exchanged = torch.empty(4)
    dist.all_to_all_single(exchanged, torch.arange(4.0) + 10 * rank)
    assert exchanged.tolist() == [float(rank + 10 * r) for r in range(size)]
    received = torch.empty(size * (rank + 1))
    dist.all_to_all_single(received, torch.full((10,), float(rank)), [rank + 1] * size, [1, 2, 3, 4])
    assert received.tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
    with dist._coalescing_manager(async_ops=True) as batch_of_calls:
        tensors = [torch.full((n,), float(rank)) for n in (1, 2, 3)]
        for each in tensors:
            dist.all_reduce(each)
    batch_of_calls.wait()
    assert torch.cat(tensors).tolist() == [6.0] * 6
    (together,) = functional.all_gather_into_tensor_coalesced([own], dist.group.WORLD)
    assert torch.equal(together + 0, whole)
    dist.barrier()
    number = backend_of()._get_sequence_number_for_group()
    numbers = [None] * size
    dist.all_gather_object(numbers, number)
    assert number > 0 and len(set(numbers)) == 1, numbers
    dist.distributed_c10d._get_default_group().monitored_barrier(timeout=timedelta(seconds=30))
    assert onehop.torch.engine() == "gloo"


def timeouts(rank, size, directory):
    """That of the process group reaches gloo, and changes with it."""
    dist.barrier()
    backend_of()._set_default_timeout(timedelta(seconds=1))
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(RuntimeError, match="[Tt]imed? ?out"):
            dist.all_reduce(torch.ones(10))
        assert 0.9 < time.monotonic() - begin < 30
        (directory / "timed out").touch()
    else:
        wait_for(directory / "timed out")


def messages_between_machines(rank, size):
    """Also as the first call of a group, without the other ranks."""
    peer = 3 - rank
    for tag in (7, 8):
        if rank < 2:
            dist.send(torch.full((70_000,), float(rank + tag)), peer, tag=tag)
        else:
            buffer = torch.empty(70_000)
            dist.recv(buffer, peer, tag=tag)
            assert torch.equal(buffer, torch.full((70_000,), float(peer + tag)))
    group = dist.new_group([0, 1, 2, 3])
    mine = torch.full((3,), float(rank))
    if rank == 0:
        dist.send(mine, 3, group=group)
    elif rank == 3:
        dist.recv(mine, 0, group=group)
        assert mine.tolist() == [0.0] * 3
        dist.send(mine, 1)
        dist.send(mine, 2)
    else:
        dist.recv(mine, 3)
    expect_sum(group, range(4), rank)
    dist.barrier()
    outgoing, incoming = torch.full((50_000,), float(rank)), torch.empty(50_000)
    for _ in range(3):
        operations = [
            dist.P2POp(dist.isend, outgoing, (rank + 1) % size),
            dist.P2POp(dist.irecv, incoming, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert torch.equal(incoming, torch.full((50_000,), float((rank - 1) % size)))
    if rank == 2:  # onehop has no such call
        assert sorted(dist.recv(torch.empty(3)) for _ in range(3)) == [0, 1, 3]
    else:
        dist.send(torch.ones(3), 2)


def objects(rank, size):
    everyone = [None] * size
    dist.all_gather_object(everyone, {"rank": rank})
    assert everyone == [{"rank": r} for r in range(size)]
    shared = ["text", rank] if rank == 3 else [None, None]
    dist.broadcast_object_list(shared, src=3)
    assert shared == ["text", 3]
    collected = [None] * size if rank == 0 else None
    dist.gather_object(rank * "x", collected, dst=0)
    assert rank != 0 or collected == ["", "x", "xx", "xxx"]
    mine = [None]
    dist.scatter_object_list(mine, [(r,) for r in range(size)] if rank == 1 else None, src=1)
    assert mine == [(rank,)]


def two_dimensions(rank, size):
    """HSDP: parameters are sharded within a machine, on onehop, and replicated between machines, on gloo."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    train_sharded(mesh, rank, size)
    assert onehop.torch.engine(mesh.get_group("shard"), "cpu") == "onehop"
    assert onehop.torch.engine(mesh.get_group("replicate"), "cpu") == "gloo"


def ddp(rank, size):
    model = nn.parallel.DistributedDataParallel(transformer(), bucket_cap_mb=0.02)
    train(model, 4, share(rank, size))
    reference = train(transformer(), 4)
    for got, expected in zip(model.module.parameters(), reference.parameters()):
        torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-4)
    everyone = [None] * size
    dist.all_gather_object(everyone, digest(model.parameters()))
    assert len(set(everyone)) == 1 and onehop.torch.engine() == "gloo"


def split(rank, size):
    """Parts decide for themselves, also of a world that has not chosen yet."""
    world = dist.distributed_c10d._get_default_group()
    for halves, engine in (([[0, 1], [2, 3]], "onehop"), ([[0, 2], [1, 3]], "gloo")):
        half = halves[0] if rank in halves[0] else halves[1]
        name = f"half {half}"
        part = world.split_group(half, timeout=timedelta(seconds=30), group_name=name, group_desc="half")
        assert backend_of(part).engine(torch.device("cpu")) == engine
        tensor = torch.full((10,), float(rank))
        part.allreduce([tensor]).wait()
        assert torch.equal(tensor, torch.full((10,), float(sum(half))))


def without(rank, size, directory, how):
    """`none`, by the variable or the option: the error of onehop, on all ranks."""
    if how == "variable":
        os.environ["ONEHOP_FALLBACK"] = "none"
        join(rank, size, directory)
    else:
        os.environ["ONEHOP_FALLBACK"] = "gloo"  # the option counts
        join(rank, size, directory, fallback="none")
    assert onehop.torch.engine() == "onehop"
    with pytest.raises(dist.DistBackendError, match="refused.*ONEHOP_FALLBACK"):
        dist.all_reduce(torch.ones(3))
    own = dist.new_group([0, 1]), dist.new_group([2, 3])
    expect_sum(own[rank // 2], [[0, 1], [2, 3]][rank // 2], rank)


def different(rank, size, directory, value):
    """One rank has another setting: all are told. A value that does not exist is refused where it is, too."""
    if rank == 2:
        os.environ["ONEHOP_FALLBACK"] = value
        if value == "nxcl":
            with pytest.raises(ValueError, match="ONEHOP_FALLBACK='nxcl' must be nccl, gloo or none"):
                join(rank, size, directory)
            return
    join(rank, size, directory)
    begin = time.monotonic()
    for _ in range(2):
        with pytest.raises(dist.DistBackendError, match=f"ranks 0 and 2 differ.*'nccl' and '{value}'"):
            dist.all_reduce(torch.ones(3))
    assert time.monotonic() - begin < 30


def late(rank, size, directory):
    """Creating a process group waits for nobody. The first call does, and names those who are missing."""
    if rank == 3:
        wait_for(directory / "timed out")
    join(rank, size, directory, timeout=1 if rank == 0 else 60)
    if rank == 0:
        for other in (1, 2):
            wait_for(directory / str(other))
        with pytest.raises(dist.DistBackendError, match="after 1000 ms, it was not created by rank 3"):
            dist.all_reduce(torch.ones(3))
        (directory / "timed out").touch()
    else:
        (directory / str(rank)).touch()
        assert onehop.torch.engine() == "gloo"


def aborted(rank, size, directory, where):
    """abort() ends the wait of another thread for ranks that do not come: before the choice, and behind it."""
    if rank == 3 and where == "choosing":
        return wait_for(directory / "aborted")
    join(rank, size, directory)
    if rank != 0:
        return wait_for(directory / "aborted")
    threading.Timer(1, dist.distributed_c10d._get_default_group().abort).start()
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="aborted"):
        dist.all_reduce(torch.ones(10))
    assert time.monotonic() - begin < 30
    with pytest.raises(dist.DistBackendError, match="aborted"):
        dist.all_reduce(torch.ones(10))
    (directory / "aborted").touch()


def killed(rank, size):
    """A rank dies: the others of its groups, on either machine, get gloo's error."""
    dist.all_reduce(torch.ones(10))
    assert onehop.torch.engine() == "gloo"
    meet()
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(RuntimeError):
        while True:
            dist.all_reduce(torch.ones(10))
    return time.monotonic() - begin


BODIES = [
    chosen_engines,
    collectives,
    messages_between_machines,
    objects,
    two_dimensions,
    ddp,
    split,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_two_machines(machine_ranks, body):
    machine_ranks(body)


def test_timeouts(machine_ranks, tmp_path):
    machine_ranks(timeouts, tmp_path)


@pytest.mark.parametrize("how", ["variable", "option"])
def test_none(machine_ranks, tmp_path, how):
    machine_ranks(without, str(tmp_path), how, backend=None)


@pytest.mark.parametrize("value", ["gloo", "none", "nxcl"])
def test_different_settings(machine_ranks, tmp_path, value):
    machine_ranks(different, str(tmp_path), value, backend=None)


def test_late_rank(machine_ranks, tmp_path):
    machine_ranks(late, tmp_path, backend=None)


@pytest.mark.parametrize("where", ["choosing", "connecting"])
def test_abort(machine_ranks, tmp_path, where):
    machine_ranks(aborted, tmp_path, where, backend=None)


def test_killed_rank(machine_ranks):
    took = machine_ranks(killed, killed=(3,), deadline=60)
    assert max(seconds for seconds in took if seconds is not None) < 30, took


def test_exit_without_destroy(machine_ranks, tmp_path):
    """Calls under way that nobody answers keep no process from ending."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {os.path.dirname(machines.__file__)!r})
        import machines
        rank = int(sys.argv[1])
        machines.enter(rank, sys.argv[2])
        import torch, torch.distributed as dist, onehop.torch
        dist.init_process_group("onehop", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
        x = torch.ones(10)
        dist.all_reduce(x)
        assert x[0] == 2 and onehop.torch.engine() == "gloo"
        if rank == 0:
            works = [dist.irecv(torch.ones(1000), 1), dist.all_reduce(x, async_op=True)]
        print("end", flush=True)
        if rank == 1:
            sys.stdin.read()
    """))
    programs = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for program in programs:  # rank 1 ends when its input does, after rank 0
            output, error = program.communicate(timeout=60)
            assert (program.returncode, output) == (0, "end\n"), error
    finally:
        for program in programs:
            program.kill()


def test_torchrun(machine_ranks, tmp_path):
    """The TCPStore of env://, and a program as users write it."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {os.path.dirname(machines.__file__)!r})
        import machines
        machines.enter(int(os.environ["RANK"]) // 2, {str(tmp_path)!r})
        import torch, torch.distributed as dist, onehop.torch
        from torch.distributed.device_mesh import init_device_mesh
        dist.init_process_group("onehop")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        for name, engine, total in (("tp", "onehop", [1, 1, 5, 5]), ("dp", "gloo", [2, 4, 2, 4])):
            x = torch.full((3,), float(dist.get_rank()))
            dist.all_reduce(x, group=mesh.get_group(name))
            assert x.tolist() == [total[dist.get_rank()]] * 3
            assert onehop.torch.engine(mesh.get_group(name)) == engine
        dist.barrier()
        dist.destroy_process_group()
    """))
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", str(script)],
        check=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
