# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, and who is told."""

import logging
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import meet
from torch.distributed._functional_collectives import AsyncCollectiveTensor

import onehop.torch


def rejected(rank, size):
    """A call that every rank rejects changes nothing."""
    for make, error, message in (
        (
            lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BAND),
            ValueError,
            "bitwise",
        ),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)), TypeError, "[Ss]hort"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG), TypeError, "boolean"),
        (lambda: dist.all_reduce(torch.ones(3, 2).t()), ValueError, "contiguous"),
        (
            lambda: dist.all_gather_into_tensor(torch.empty(3), torch.ones(2)),
            (ValueError, RuntimeError),
            "elements",
        ),
        (lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3)), (ValueError, RuntimeError), "divi"),
        (
            lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4), [1, 1], [2, 2]),
            ValueError,
            "add up to 2",
        ),
        (lambda: dist.all_reduce(torch.ones(4).to_sparse()), (ValueError, RuntimeError), "[Ss]parse|support"),
    ):
        with pytest.raises(error, match=message):
            make()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((2,), float(size)))


def hears(rank, error, reason, make, asynchronous=False):
    """A mistake that rank 1 alone makes in a call is raised there, and told to the others."""
    if rank == 1:
        with pytest.raises(error, match=reason):
            make()
    else:
        with pytest.raises(dist.DistBackendError, match=f"of rank 1 was rejected: .*{reason}.*rank 1") as caught:
            work = make()
            if asynchronous:
                work.wait()
        assert "rejected: onehop:" not in str(caught.value)


def is_in_order(rank, size, group=None):
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, torch.full((2,), float(sum(range(size)))))


def refused(rank, size, asynchronous):
    wrong = rank == 1
    number = torch.int16 if wrong else torch.float32
    tensor = torch.ones(4, 4)[:, ::2] if wrong else torch.ones(4, 2)
    root, more = 1, 3 if wrong else 2

    def pairs(count=size, elements=2):
        return [torch.ones(elements) for _ in range(count)]

    for error, reason, method, *arguments in (
        (TypeError, "Short", dist.all_reduce, torch.ones(2, dtype=number)),
        (TypeError, "Short", dist.reduce, torch.ones(2, dtype=number), 0),
        (ValueError, "not contiguous", dist.all_reduce, tensor),
        (ValueError, "not contiguous", dist.all_reduce_coalesced, [torch.ones(3), tensor]),
        (ValueError, "not contiguous", dist.broadcast, tensor, 0),
        (ValueError, "has 3 elements", dist.gather, torch.ones(2), pairs(elements=more) if rank == root else None, root),
        (ValueError, "has 3 elements", dist.scatter, torch.ones(2), pairs(elements=more) if rank == root else None, root),
        (ValueError, "has 3 elements", dist.all_gather, pairs(elements=more), torch.ones(2)),
        (ValueError, "has 1 tensors", dist.all_gather, pairs(1 if wrong else size), torch.ones(2)),
        (ValueError, "has 1 tensors", dist.all_to_all, pairs(), pairs(1 if wrong else size)),
        (ValueError, "has 1 tensors", dist.reduce_scatter, torch.ones(2), pairs(1 if wrong else size)),
        (ValueError, "needs .* elements", dist.all_gather_into_tensor, torch.ones(more * size), torch.ones(2)),
        (ValueError, "needs .* elements", dist.reduce_scatter_tensor, torch.ones(2), torch.ones(more * size)),
        (ValueError, "add up to", dist.all_to_all_single, torch.ones(size), torch.ones(size), None, [more - 1] * size),
        (TypeError, "Short", dist.all_reduce, torch.ones(2, dtype=number)),
    ):
        hears(rank, error, reason, lambda: method(*arguments, async_op=asynchronous), asynchronous)
        is_in_order(rank, size)
    # The last call of the process group.
    hears(rank, ValueError, "not contiguous", lambda: dist.broadcast(tensor, 0, async_op=asynchronous), asynchronous)


def refused_at_first(rank, size):
    """The first call of a process group forms its group of onehop's, also where it is refused. torch counts it."""
    tensor = torch.ones(2, dtype=torch.int16 if rank == 1 else torch.float32)
    for group in (dist.group.WORLD, dist.new_group(list(range(size)))):
        hears(rank, TypeError, "Short", lambda: dist.all_reduce(tensor, group=group))
        assert group._get_backend(torch.device("cpu"))._get_sequence_number_for_group() == 1
        is_in_order(rank, size, group)


def refused_in_a_batch(rank, size):
    """It is raised at the end."""

    def batch():
        with dist._coalescing_manager(device=torch.get_default_device()):
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    for position in (0, 1):
        tensors = [torch.full((4, 2), float(rank)), torch.full((4, 2), float(rank))]
        if rank == 1:
            tensors[position] = torch.ones(4, 4)[:, ::2]
        hears(rank, ValueError, "not contiguous", batch)
        assert torch.equal(tensors[1 - position], torch.full((4, 2), float(rank)))
        is_in_order(rank, size)


def mismatched(rank, size):
    """Different shapes: every rank is told both, and the group stays usable."""
    with pytest.raises(dist.DistBackendError, match="mismatch"):
        dist.all_reduce(torch.ones(10 + rank))
    work = dist.all_reduce(torch.ones(5, dtype=torch.float32 if rank == 0 else torch.float64), async_op=True)
    with pytest.raises(dist.DistBackendError, match="f32.*f64|f64.*f32"):
        work.wait()
    assert work.is_completed() and not work.is_success()
    with pytest.raises(RuntimeError, match="mismatch"):
        work.get_future().wait()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((2,), float(size)))


def killed(rank, size, how):
    """Rank 1 dies; all others learn of it long before their timeout, by name, and end."""
    world = dist.new_group(list(range(size))) if how == "new_group" else None
    dist.all_reduce(torch.ones(10), group=world)
    dist.barrier()
    if how == "receiving":  # form the group of the pair, else it waits for the peer to join
        dist.send(torch.ones(1), (rank + 1) % size) if rank % 2 == 0 else dist.recv(torch.ones(1), rank - 1)
        dist.barrier()
    meet()
    if rank == 1:
        if how == "receiving":
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1") as caught:
        if how == "synchronous":
            while True:
                dist.all_reduce(torch.ones(10))
        elif how == "new_group":
            while True:
                dist.all_reduce(torch.ones(10), group=world)
        elif how == "asynchronous":
            while True:
                dist.all_reduce(torch.ones(1_000_000), async_op=True).wait()
        elif how == "receiving":
            if rank == 0:
                for _ in range(100):
                    dist.send(torch.ones(1_000_000), 1)
            dist.barrier()
    took = time.monotonic() - begin
    assert took < 20, took
    assert "lost" in str(caught.value) or "died" in str(caught.value)
    if how != "receiving" or rank != 0:
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.get_default_device())
        assert how == "new_group" or "SUCCESS" not in str(
            backend._get_error() if hasattr(backend, "_get_error") else ""
        )
    return took


def missing(rank, size):
    """A rank that does not come: the others time out, and the error names it."""
    dist.barrier()
    if rank == 1:
        meet("named")
        with pytest.raises(dist.DistBackendError):
            for _ in range(2):  # to this rank, all others have arrived at the first
                dist.barrier()
        return
    group = dist.distributed_c10d._get_default_group()
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="timeout, rank 1"):
        group.monitored_barrier(timeout=timedelta(seconds=5))
    assert 4.9 < time.monotonic() - begin < 20
    meet("named")


def set_timeout(rank, size):
    dist.barrier()
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.get_default_device())
    backend._set_default_timeout(timedelta(seconds=1))
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="timeout"):
            dist.all_reduce(torch.ones(10))
        assert 0.9 < time.monotonic() - begin < 20
    meet()


def aborted(rank, size):
    dist.barrier()
    meet()
    group = dist.distributed_c10d._get_default_group()
    if rank == 0:
        time.sleep(0.5)
        group.abort()
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="aborted"):
        dist.all_reduce(torch.ones(10))
    assert time.monotonic() - begin < 20


def checked(rank, size):
    """check() raises what a call would, for one group and for all, and nothing while they are well."""
    onehop.torch.check()
    other = dist.new_group(list(range(size)))
    dist.all_reduce(torch.ones(10))
    dist.all_reduce(torch.ones(10), group=other)
    onehop.torch.check()
    onehop.torch.check(other)
    dist.barrier()
    if rank == 0:
        other.abort()
    with pytest.raises(dist.DistBackendError, match="aborted"):
        while True:
            onehop.torch.check(other)
    with pytest.raises(dist.DistBackendError, match="aborted"):
        onehop.torch.check()
    onehop.torch.check(dist.group.WORLD)
    gloo = dist.new_group(list(range(size)), backend="gloo")
    with pytest.raises(TypeError, match="was not created with backend"):
        onehop.torch.check(gloo)
    dist.barrier()  # a rank that exits now would close connections that the other one is still making


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def settings(rank, size, name, value, says):
    """A value without sense on one rank is a warning: an error would leave the other one waiting."""
    log = Lines()
    logging.getLogger("onehop").addHandler(log)
    if rank == 0:
        os.environ[name] = value
    group = dist.new_group(list(range(size)))
    dist.all_reduce(torch.ones(10), group=group)
    assert log.lines == ([says] if rank == 0 else [])


def test_check(ranks):
    ranks(2, checked)


@pytest.mark.parametrize(
    "name, value, says",
    [
        ("ONEHOP_TORCH_ON_FAILURE", "ignore", "ONEHOP_TORCH_ON_FAILURE='ignore' must be raise or abort; it counts as abort"),
        ("ONEHOP_TORCH_FAILURE_GRACE", "soon", "ONEHOP_TORCH_FAILURE_GRACE='soon' must be seconds, 0 to 86400; it counts as 5"),
        ("ONEHOP_TORCH_FAILURE_GRACE", "-1", "ONEHOP_TORCH_FAILURE_GRACE='-1' must be seconds, 0 to 86400; it counts as 5"),
    ],
)
def test_settings(ranks, name, value, says):
    ranks(2, settings, name, value, says)


@pytest.mark.parametrize("body", [rejected, mismatched], ids=lambda b: b.__name__)
def test_arguments(ranks, body):
    ranks(2, body)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_mistake_of_one_rank(ranks, size, asynchronous):
    ranks(size, refused, asynchronous)


@pytest.mark.parametrize("body", [refused_at_first, refused_in_a_batch], ids=lambda b: b.__name__)
def test_a_mistake_of_one_rank_first_and_in_a_batch(ranks, body):
    ranks(3, body)


@pytest.mark.parametrize("how", ["synchronous", "asynchronous", "new_group", "receiving"])
def test_killed_rank(ranks, how):
    ranks(4, killed, how, killed=(1,), deadline=60)


@pytest.mark.parametrize("body", [missing, set_timeout, aborted], ids=lambda b: b.__name__)
def test_waiting(ranks, body):
    ranks(3 if body is missing else 2, body)


SERVER = """
import time
from datetime import timedelta
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
print(store.port, flush=True)
time.sleep(600)
"""


def over_a_stopped_store(rank, size, port, server, directory):
    store = dist.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60))
    dist.init_process_group("onehop", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=2))
    (directory / f"created {rank}").touch()
    if rank == 0:
        await_file(directory / "created 1")
        os.kill(server, signal.SIGSTOP)
        threads = list(Path(f"/proc/{server}/task").glob("*/stat"))
        while any(stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in threads):
            time.sleep(0.01)  # until then it may still answer
        (directory / "stopped").touch()
    await_file(directory / "stopped")
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="store did not answer within 2000 ms"):
        dist.all_reduce(torch.ones(10))
    assert time.monotonic() - begin < 20
    dist.destroy_process_group()


def await_file(path):
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


def test_store_that_stops(ranks, tmp_path):
    """Its host stops before the first call. c10d's client waits for an answer without a deadline."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        ranks(2, over_a_stopped_store, port, server.pid, tmp_path, backend=None)
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    "make, dtype, message",
    [
        (lambda: torch.ones(3, device="meta"), None, "x, torch.Tensor, has no memory of its own"),
        (lambda: AsyncCollectiveTensor(torch.ones(3)), None, "of an AsyncCollectiveTensor x.wait()"),
        (lambda: torch.eye(3).to_sparse(), None, "x, torch.Tensor, is sparse; pass x.to_dense()"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), "f32", "conjugated view; pass x.resolve_conj()"),
    ],
)
def test_tensors_whose_memory_no_call_could_use(make, dtype, message):
    (alone,) = onehop.Group.join_local(1)
    with pytest.raises(onehop.InvalidArgument) as info:
        alone.all_gather(make(), dtype=dtype)
    assert message in str(info.value) and "\n" not in str(info.value)
    alone.barrier()
