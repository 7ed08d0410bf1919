# SPDX-License-Identifier: Apache-2.0
"""Asynchronous calls: handles, futures, order, threads, sends and receives that wait for each other."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist


def futures(rank, size):
    tensor = torch.full((100_000,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((100_000,), 2.0 * sum(range(size))))
    assert work.is_completed() and future.done() and future.value()[0] is not None
    assert torch.equal(work.result()[0], tensor)
    done = dist.all_reduce(tensor, async_op=True)
    done.wait()
    assert done.get_future().wait()[0].data_ptr() == tensor.data_ptr()


def really_asynchronous(rank, size):
    """The call returns before the other rank has made it, and the handle says so."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["checked"])
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        assert not work.is_completed()
        with pytest.raises(RuntimeError):
            work.wait(timedelta(milliseconds=10))
        store.set("checked", "")
    work.wait()
    assert torch.equal(tensor, torch.full((10,), float(size)))


def order(rank, size):
    """Synchronous calls wait for asynchronous ones that were made before."""
    tensor = torch.full((200_000,), 1.0)
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(20)]
    dist.all_reduce(tensor)
    assert all(work.is_completed() for work in works)
    assert torch.equal(tensor, torch.full((200_000,), float(size) ** 21))


def both_send_first(rank, size):
    """As with gloo, and unlike one queue for all: sends of any size do not block receives, other peers or
    collectives."""
    peer, count = 1 - rank, 3_000_000
    outgoing, incoming = torch.full((count,), float(rank)), torch.empty(count)
    send = dist.isend(outgoing, peer)
    receive = dist.irecv(incoming, peer)
    receive.wait()
    send.wait()
    assert torch.equal(incoming, torch.full((count,), float(peer)))
    if rank == 0:  # a send that is received only after a collective
        send = dist.isend(outgoing, 1)
        dist.barrier()
        send.wait()
    else:
        dist.barrier()
        dist.recv(incoming, 0)
    messages = [torch.full((n,), float(n)) for n in (1, 1000, 50_000)]
    works = [dist.isend(m, peer) for m in messages]
    for message in messages:  # in order
        buffer = torch.empty_like(message)
        dist.recv(buffer, peer)
        assert torch.equal(buffer, message)
    for work in works:
        work.wait()


def ring(rank, size):
    """batch_isend_irecv in a ring, all ranks at once."""
    outgoing, incoming = torch.full((500_000,), float(rank)), torch.empty(500_000)
    for _ in range(3):
        operations = [
            dist.P2POp(dist.isend, outgoing, (rank + 1) % size),
            dist.P2POp(dist.irecv, incoming, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert torch.equal(incoming, torch.full((500_000,), float((rank - 1) % size)))


def dropped(rank, size):
    """A handle that nobody keeps: the call still completes, and keeps its tensors alive."""
    for _ in range(50):
        dist.all_reduce(torch.ones(10_000), async_op=True)
    dist.barrier()


def threads(rank, size):
    """Two threads, a process group each."""
    groups = [dist.new_group(list(range(size))) for _ in range(2)]
    failures = []

    def work(group, value):
        try:
            for _ in range(50):
                tensor = torch.full((1000,), value)
                dist.all_reduce(tensor, group=group)
                assert torch.equal(tensor, torch.full((1000,), value * size))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(g, v)) for g, v in zip(groups, (1.0, 2.0))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures


@pytest.mark.parametrize(
    "body, size",
    [
        (futures, 2),
        (really_asynchronous, 2),
        (order, 2),
        (both_send_first, 2),
        (ring, 4),
        (dropped, 2),
        (threads, 2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_async(ranks, body, size):
    ranks(size, body)
