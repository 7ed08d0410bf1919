# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors: the tests of CPU tensors once more, and streams, graphs, symmetric memory."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import machines
import pytest
import ranks as _ranks
import test_async
import test_collectives
import test_failures
import test_groups
import test_shrink
import test_workloads
import torch
import torch.distributed as dist
from torch import nn

import onehop
import onehop.torch

pytestmark = pytest.mark.gpu

SLEEP = 100_000_000  # cycles: about 50 ms


def everything(value):
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(
    "body, size",
    [
        (test_collectives.reductions, 2),
        (test_collectives.movements, 2),
        (test_collectives.uneven, 2),
        (test_collectives.layouts, 2),
        (test_collectives.coalesced, 2),
        (test_collectives.booleans_and_complex, 2),
        (test_collectives.rest, 2),
        (test_async.ring, 2),
        (test_async.dropped, 2),
        (test_async.threads, 2),
        (test_groups.one_rank, 2),
        (test_groups.options, 2),
        (test_failures.rejected, 2),
        (test_workloads.ddp, 2),
        (test_workloads.ddp_hook, 2),
        (test_workloads.fsdp2, 2),
        (test_workloads.tensor_parallel, 2),
        (test_workloads.functionals, 2),
        (test_workloads.operators, 2),
        (test_workloads.add_rms_norm, 2),
        (test_workloads.uneven_inputs, 2),
        (test_workloads.zero, 2),
        (test_workloads.pipeline, 2),
        (test_collectives.reductions, 4),
        (test_collectives.movements, 4),
        (test_groups.parts_of_the_world, 4),
        (test_workloads.fsdp2, 4),
    ],
    ids=everything,
)
def test_as_on_cpus(ranks, body, size):
    ranks(size, body, device="cuda")


def test_checkpoint(ranks, tmp_path):
    ranks(2, test_workloads.checkpoint, str(tmp_path / "checkpoint"), device="cuda")


def asynchronous(rank, size):
    """A call returns at once, wait() does not block the host, and what follows on the stream sees the result."""
    x = torch.zeros(100_000)
    for _ in range(2):  # the first use of a kernel may wait for the GPU
        dist.all_reduce(x.fill_(rank + 1), async_op=True).wait()
        y = x * 2
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
    begin = time.monotonic()
    torch.cuda._sleep(4 * SLEEP)
    x.fill_(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    assert not work.is_completed()
    work.wait()
    y = x * 2
    enqueued = time.monotonic() - begin
    torch.cuda.synchronize()
    assert enqueued < (time.monotonic() - begin) / 2, "the host waited"
    assert work.is_completed() and work.is_success()
    assert torch.equal(y, torch.full_like(y, size * (size + 1.0)))
    future = dist.all_reduce(x.fill_(1), async_op=True).get_future()
    tripled = future.then(lambda f: f.value()[0] * 3).wait()
    assert torch.equal(tripled, torch.full_like(x, 3.0 * size))

    begin = time.monotonic()  # a barrier orders behind what was enqueued, and blocks the host
    torch.cuda._sleep(4 * SLEEP)
    done = torch.cuda.Event()
    done.record()
    dist.barrier()
    assert done.query(), f"the barrier returned after {time.monotonic() - begin:.3f} s"


def side_stream(rank, size):
    """A synchronous call runs on the stream that is current."""
    side = torch.cuda.Stream()
    x = torch.zeros(100_000)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLEEP)
        x.fill_(rank)
        dist.all_reduce(x)
    side.synchronize()
    assert torch.equal(x, torch.full_like(x, sum(range(size))))


def freed(rank, size):
    """Memory of tensors that are dropped while their call runs is not given to others before its end."""
    results = []
    for turn in range(20):
        torch.cuda._sleep(SLEEP // 50)
        x = torch.full((1_000_000,), float(turn))
        works = [dist.all_reduce(x, async_op=True)]
        if turn % 2:
            works.clear()
        y = torch.empty(1_000_000)
        dist.all_gather_into_tensor(torch.empty(size * 1_000_000), x * 2, async_op=True)
        y.fill_(-1.0)
        for work in works:
            work.wait()
            results.append((turn, x))
        del x
    for turn, x in results:
        assert torch.equal(x, torch.full_like(x, float(turn * size))), turn


def graphs(rank, size):
    """dist calls, synchronous and asynchronous, and operators in one CUDA graph."""
    name = onehop.torch.register_group()
    x, whole = torch.zeros(5000), torch.zeros(5000 * size)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def step():
        y = x * 2
        dist.all_reduce(y)
        work = dist.all_gather_into_tensor(whole, y, async_op=True)
        z = torch.ops.onehop.all_reduce(y, name)
        work.wait()
        part = torch.ops.onehop.reduce_scatter(whole, name)
        torch.ops.onehop.all_reduce_(part, name)
        return y, z, part

    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, z, part = step()
    for turn in range(5):
        x.fill_(rank + turn)
        graph.replay()
        torch.cuda.synchronize()
        total = 2.0 * sum(r + turn for r in range(size))
        for got, expected in ((y, total), (whole, total), (z, total * size), (part, total * size * size)):
            assert torch.equal(got, torch.full_like(got, expected)), turn
    dist.barrier()
    del graph
    onehop.torch.unregister_group(name)


def invariant(rank, size):
    """The bits of a row do not depend on how many rows are reduced with it: all sizes add in the order of ranks."""
    name = onehop.torch.register_group()
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randn(512, 4096, generator=generator, device="cpu").to(torch.bfloat16).cuda()
    one = torch.cat([torch.ops.onehop.all_reduce(rows[i : i + 1], name) for i in range(0, 512, 37)])
    for count in (2, 16, 64, 256, 512):
        whole = torch.ops.onehop.all_reduce(rows[:count], name)
        alone = one[: (count + 36) // 37]
        assert torch.equal(whole[::37].view(torch.int16), alone.view(torch.int16)), count
    torch.cuda.synchronize()
    dist.barrier()
    onehop.torch.unregister_group(name)


def both_devices(rank, size):
    """CPU and CUDA tensors in one process group, in turns."""
    for turn in range(3):
        on_cpu, on_gpu = torch.full((10,), float(turn), device="cpu"), torch.full((10,), float(turn))
        dist.all_reduce(on_cpu)
        dist.all_reduce(on_gpu)
        assert torch.equal(on_cpu, torch.full((10,), float(turn * size), device="cpu"))
        assert torch.equal(on_gpu, torch.full((10,), float(turn * size)))
    with pytest.raises(ValueError, match="different devices"):
        dist.all_reduce_coalesced([on_cpu, on_gpu])
    onehop_group = onehop.Group.from_torch(device=torch.cuda.current_device())
    onehop_group.all_reduce(on_gpu.fill_(1))
    onehop_group.synchronize()
    assert on_gpu[0] == size
    onehop_group.leave()


def eager(rank, size, directory):
    """With device_id, the group is formed at once."""
    dist.init_process_group(
        "onehop",
        init_method=f"file://{directory}/world",
        rank=rank,
        world_size=size,
        device_id=torch.device("cuda", torch.cuda.current_device()),
        timeout=timedelta(seconds=60),
    )
    x = torch.full((10,), float(rank))
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((10,), float(sum(range(size)))))
    half = dist.split_group(split_ranks=[[0, 1]])
    dist.all_reduce(x.fill_(1), group=half)
    assert torch.equal(x, torch.full((10,), float(size)))
    dist.destroy_process_group()


def pool(rank, size):
    """Tensors of the pool are at the same offset on all ranks; FSDP2 takes its buffers from it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    memory = onehop.torch.mem_pool(nbytes=64 << 20)
    with torch.cuda.use_mem_pool(memory):
        x = torch.full((100_000,), float(rank))
        y = torch.empty(77)
    assert onehop.torch.is_symmetric(x) and onehop.torch.is_symmetric(y)
    assert not onehop.torch.is_symmetric(torch.ones(10))
    assert not onehop.torch.is_symmetric(x[rank:])
    dist.all_reduce(x)
    assert torch.equal(x, torch.full_like(x, float(sum(range(size)))))

    mesh = init_device_mesh("cuda", (size,))
    model = test_workloads.transformer()
    for block in model:
        fully_shard(block, mesh=mesh)
        block.set_allocate_memory_from_process_group_for_comm(True)
    fully_shard(model, mesh=mesh)
    model.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        model(test_workloads.batch(step)[test_workloads.share(rank, size)]).square().mean().backward()
        optimizer.step()
    reference = test_workloads.train(test_workloads.transformer(), 3)
    for got, expected in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(got.full_tensor(), expected, rtol=2e-3, atol=2e-4)
    with pytest.raises(RuntimeError, match="already has a pool"):
        onehop.torch.mem_pool(nbytes=1 << 20)


def died(rank, size, how):
    """Rank 1 dies; the others learn of it within a second, by name, and end."""
    dist.all_reduce(torch.ones(10))
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64)) if how == "ddp" else None
    torch.cuda.synchronize()
    dist.barrier()
    _ranks.meet()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        while time.monotonic() - begin < 20:
            if how == "ddp":
                model(torch.ones(8, 64)).sum().backward()
            elif how == "barrier":
                dist.barrier()
            else:
                dist.all_reduce(torch.ones(1_000_000), async_op=True).wait()
            torch.cuda.synchronize()
    return time.monotonic() - begin


def shrinks(rank, size):
    """Rank 1 dies; the others go on without it, eagerly and in a graph."""
    test_shrink.begin()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    test_shrink.notice()
    onehop.torch.shrink_group([1])
    left = [r for r in range(size) if r != 1]
    test_shrink.works(left)
    x = torch.full((1000,), float(rank))
    y = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
        dist.all_reduce(y)
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, torch.full_like(x, float(sum(left))))
    onehop.torch.check()


def missing(rank, size):
    """A rank that does not come: wait(timeout) and a barrier end with an error that names it."""
    dist.barrier()
    x = torch.ones(1000)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(3)
        with pytest.raises(dist.DistBackendError, match="which waits for rank 1"):  # it has heard of it nowhere else
            dist.destroy_process_group()
        return
    begin = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    with pytest.raises(dist.DistBackendError, match="timeout"):
        work.wait(timedelta(seconds=1))
    assert 0.9 < time.monotonic() - begin < 3.0


def refused(rank, size):
    """A wrong argument of rank 1 alone, in a later or the first call of a group: it is raised there at once, the others
    hear of it, and the group is broken, but no other one."""
    tensor = torch.ones(4, 4)[:, ::2] if rank == 1 else torch.ones(4, 2)

    def call(group, tensor):
        dist.all_reduce(tensor, group=group)
        torch.cuda.synchronize()
        onehop.torch.check(group)

    for used in (True, False):
        group = dist.new_group(list(range(size)))
        if used:
            test_failures.is_in_order(rank, size, group)
        test_failures.hears(rank, ValueError, "not contiguous", lambda: call(group, tensor))
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            call(group, torch.ones(2))
        test_failures.is_in_order(rank, size)


@pytest.mark.parametrize(
    "body",
    [asynchronous, side_stream, freed, graphs, invariant, both_devices, pool, missing, refused],
    ids=everything,
)
def test_gpu(ranks, body):
    ranks(2, body, device="cuda")


def test_eager(ranks, tmp_path):
    ranks(2, eager, str(tmp_path), backend=None, device="cuda")


@pytest.mark.parametrize("how", ["barrier", "asynchronous", "ddp"])
def test_killed_rank(ranks, how):
    took = ranks(2, died, how, killed=(1,), deadline=60, device="cuda")[0]
    assert took < 1.0, took


@pytest.mark.parametrize("size", [2, 3])
def test_the_ranks_that_are_left_go_on(ranks, size):
    ranks(size, shrinks, killed=(1,), device="cuda")


@pytest.mark.parametrize("body, size, dead", [(test_shrink.part, 4, 2), (test_shrink.default, 3, 1)], ids=everything)
def test_shrink_group_as_on_cpus(ranks, body, size, dead):
    ranks(size, body, killed=(dead,), device="cuda")


def test_expandable_segments(tmp_path):
    """Ordinary tensors need no registration, so the allocator's mode does not matter."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(f"""
        import os, torch, torch.distributed as dist, onehop.torch
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % {_ranks.gpu_count()})
        dist.init_process_group("onehop")
        name = onehop.torch.register_group()
        for count in (1000, 1_000_000, 50_000_000):
            x = torch.full((count,), float(dist.get_rank() + 1), device="cuda")
            y = torch.ops.onehop.all_reduce(x, name)
            dist.all_reduce(x)
            assert (x == 3).all() and (y == 3).all()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            z = torch.ops.onehop.all_reduce(x, name)
        graph.replay()
        torch.cuda.synchronize()
        assert (z == 6).all()
        dist.barrier()
        dist.destroy_process_group()
    """))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        check=True,
        timeout=120,
        env=environment,
    )


PROGRAM = """
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import onehop.torch

failure, notice, directory, rank = sys.argv[1:4] + [int(sys.argv[4])]
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.set_default_device("cuda")
dist.init_process_group("onehop", init_method=f"file://{directory}/store", rank=rank, world_size=2,
                        timeout=timedelta(seconds=2))
x, y = torch.ones(1000), torch.ones(1000)
dist.all_reduce(x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    dist.all_reduce(y)
graph.replay()
torch.cuda.synchronize()
onehop.torch.check()
dist.barrier()

def fail():
    if failure == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif failure == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif failure == "exit":
        os._exit(0)
    elif failure == "count":
        dist.all_reduce(torch.ones(1001))
    elif failure == "type":
        dist.all_reduce(x.double())
    elif failure == "operation":
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    elif failure == "collective":
        dist.broadcast(x, 0)
    time.sleep(60)

def expect_nan(tensor):
    if not tensor.isnan().all():
        print("not NaN:", tensor)
        sys.stdout.flush()
        os._exit(44)

if rank == 1:
    fail()
try:
    if notice == "replay":
        for _ in range(1_000_000):
            graph.replay()
            torch.cuda.synchronize()
        sys.exit(0)
    if notice == "replay-check":
        for _ in range(1_000_000):
            graph.replay()
            torch.cuda.synchronize()
            onehop.torch.check()
    work = dist.all_reduce(x, async_op=notice == "wait")
    torch.cuda.synchronize()
    if failure in ("stop", "kill", "exit"):
        expect_nan(x)
    if notice == "exit":
        sys.exit(0)
    if notice == "sleep":
        time.sleep(30)
    elif notice == "call":
        dist.all_reduce(x)
    elif notice == "check":
        onehop.torch.check()
    elif notice == "wait":
        assert work.is_completed() and not work.is_success()
        work.wait()
    elif notice == "barrier":
        dist.barrier()
    elif notice == "destroy":
        dist.destroy_process_group()
except dist.DistBackendError as error:
    print("raised:", error)
    if notice != "destroy":
        time.sleep(0.2)  # the group's thread tells the device within 10 ms
        graph.replay()
        torch.cuda.synchronize()
        expect_nan(y)
    sys.exit(33)
sys.exit(0)
"""


NOTICES = {"call": 33, "check": 33, "wait": 33, "barrier": 33, "destroy": 33, "replay-check": 33, "exit": 1, "sleep": 1, "replay": 1}


@pytest.mark.parametrize("notice", NOTICES)
@pytest.mark.parametrize("failure", ["stop", "kill", "exit", "count", "type", "operation", "collective"])
def test_no_failure_is_silent(tmp_path, failure, notice):
    """However a rank fails, and however the other one goes on: it is told, or its exit code tells."""
    # Where the next call tells, the watcher must not be quicker, even on a busy machine.
    grace = "1" if NOTICES[notice] == 1 else "20"
    environment = {**os.environ, "ONEHOP_TORCH_FAILURE_GRACE": grace, "ONEHOP_ALLOW_OVERLAPPING_DEVICES": "1"}
    environment.pop("ONEHOP_TORCH_ON_FAILURE", None)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, failure, notice, str(tmp_path), str(rank)],
            env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]
    try:
        out, err = processes[0].communicate(timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    code = processes[0].returncode
    # Whoever makes a different call, or one after the other rank's death, may be told in the call itself.
    assert code == NOTICES[notice] or (code == 33 and failure != "stop"), f"exit code {code}: {out}{err}"
    said = out + err
    if failure in ("stop", "kill", "exit") or notice.startswith("replay"):  # replays are compared with no call
        assert "rank 1" in said, said
    else:
        assert "ranks disagree: rank 0 calls all_reduce(count 1000, f32, sum), rank 1 calls" in said, said


def live_graph(rank, size):
    x = torch.ones(1000)
    dist.all_reduce(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full((1000,), 4.0))
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="nccl has not ended within 12000 ms; a CUDA graph"):
        dist.destroy_process_group()
    assert 11 < time.monotonic() - start < 14
    del graph


def test_nccl_that_a_graph_keeps_from_ending(ranks):
    """Plain NCCL waits for ever."""
    reason = machines.why_not()
    if reason:
        pytest.skip(f"needs the right to mount in a namespace of its own: {reason}")
    ranks(2, live_graph, device="cuda", on_machines=(0, 1), timeout=12)


def opposite_order(rank, size, directory):
    device = torch.device("cuda", rank)
    dist.init_process_group("onehop", init_method=f"file://{directory}/store", rank=rank, world_size=size,
                            timeout=timedelta(seconds=20), device_id=device)
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    order = groups if rank == 0 else groups[::-1]
    tensors = [torch.ones(1000, device=device) for _ in order]
    works = [dist.all_reduce(x, group=group, async_op=True) for x, group in zip(tensors, order)]
    for x, work in zip(tensors, works):
        work.wait()
        assert torch.equal(x, torch.full((1000,), 2.0, device=device))
    dist.destroy_process_group()  # the end of the process would be a death to the other rank


def test_groups_that_are_used_in_opposite_order(ranks, tmp_path):
    """With a device_id they form in new_group."""
    ranks(2, opposite_order, str(tmp_path), device="cuda", backend=None)


def test_random_failures():
    program = Path(__file__).with_name("random_failures.py")
    done = subprocess.run(
        [sys.executable, str(program), "--cases", "10"], cwd="/", capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stdout + done.stderr
