# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.shrink_group: the ranks that are left go on without those that are not."""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import meet

import onehop.torch

# Torch 2.10 has it.
pytestmark = pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="this torch has no shrink_group")
ABORT = 1  # dist.distributed_c10d.SHRINK_ABORT


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def begin(group=None):
    """All ranks have joined and are done with their work."""
    dist.all_reduce(torch.ones(10), group=group)
    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()
    meet(group=group)


def notice(group=None):
    """Works until a rank is found dead."""
    with pytest.raises(dist.DistBackendError, match="peer_lost"):
        while True:
            dist.all_reduce(torch.ones(10), group=group)


def works(numbers, group=None):
    """The ranks of the group, each with its number, get the right data from one another."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    assert size == len(numbers)
    tensor = torch.full((1000,), float(numbers[rank]))
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, torch.full((1000,), float(sum(numbers))))
    parts = torch.empty(size)
    dist.all_gather_into_tensor(parts, torch.tensor([float(numbers[rank])]), group=group)
    assert parts.tolist() == numbers
    tensor.fill_(1.0)
    dist.all_reduce(tensor, group=group, async_op=True).wait()
    assert torch.equal(tensor, torch.full((1000,), float(size)))
    if size > 1:  # connections of their own, by the store
        outgoing, incoming = torch.tensor([numbers[rank]]), torch.tensor([-1])
        requests = [
            dist.isend(outgoing, group=group, group_dst=(rank + 1) % size),
            dist.irecv(incoming, group=group, group_src=(rank - 1) % size),
        ]
        for request in requests:
            request.wait()
        assert incoming.item() == numbers[rank - 1]
    dist.barrier(group=group)
    onehop.torch.check(group)


def world(rank, size, flags):
    """The default group loses one rank after the other; new groups can be made of it."""
    begin()
    if rank == 1:
        die()
    notice()
    assert dist.shrink_group([1], shrink_flags=flags) is dist.group.WORLD
    numbers = [r for r in range(size) if r != 1]
    assert numbers[dist.get_rank()] == rank
    works(numbers)
    works(numbers, dist.new_group(list(range(size - 1))))
    meet(f"{len(numbers)} are left")
    if rank == 3:
        die()
    notice()
    dist.shrink_group([2], shrink_flags=flags)  # its number in the group that shrinks
    numbers.remove(3)
    works(numbers)
    while len(numbers) > 1:
        meet(f"{len(numbers)} are left")
        if rank == numbers.pop():
            die()
        notice()
        dist.shrink_group([len(numbers)], shrink_flags=flags)
        works(numbers)


def part(rank, size):
    """A group beside the world, whose ranks have other numbers there."""
    group = dist.new_group([1, 2, 3], backend="onehop")
    if rank == 0:
        return
    begin(group)
    if rank == 2:
        die()
    notice(group)
    devices = set(group._device_types)
    group = onehop.torch.shrink_group([1], group)
    assert dist.get_process_group_ranks(group) == [1, 3]
    assert set(group._device_types) == devices
    works([1, 3], group)
    tensor = torch.tensor([rank])
    dist.broadcast(tensor, 3, group=group)  # a global rank
    assert tensor.item() == 3


def default(rank, size):
    """onehop.torch.shrink_group for the default group: the new numbers are the global ones."""
    begin()
    if rank == 1:
        die()
    notice()
    group = onehop.torch.shrink_group([1], shrink_flags=ABORT)
    assert group is dist.group.WORLD
    assert dist.get_process_group_ranks(group) == [0, 1]
    works([0, 2])


def more_are_gone(rank, size):
    """A rank that died without being excluded is named, with the list that is right."""
    begin()
    if rank in (1, 3):
        die()
    notice()
    for wrong in ([1], [1], [3]):
        gone = 4 - wrong[0]
        with pytest.raises(dist.DistBackendError, match=rf"rank {gone} is gone.*ranks_to_exclude=\[1, 3\]"):
            dist.shrink_group(wrong)
    dist.shrink_group([1, 3])
    works([0, 2])


def they_disagree(rank, size):
    """Ranks that exclude each other all get the same refusal, and can agree afterwards."""
    dist.all_reduce(torch.ones(10))
    with pytest.raises(
        dist.DistBackendError,
        match=r"ranks 0, 1 are excluded, but called shrink_group.*\[1\] on ranks 0, 2; \[0\] on rank 1\. "
        "Repeat.*same ranks_to_exclude",
    ):
        dist.shrink_group([0 if rank == 1 else 1], shrink_flags=ABORT)
    if rank == 1:
        dist.destroy_process_group()
        return
    dist.shrink_group([1])
    works([0, 2])


def one_excludes_another(rank, size):
    """A rank whose own list is right hears of the disagreement, too."""
    begin()
    if rank == 3:
        die()
    notice()
    with pytest.raises(
        dist.DistBackendError,
        match=r"rank 2 is excluded, but called.*\[3\] on ranks 0, 2; \[2, 3\] on rank 1\.",
    ):
        dist.shrink_group([2, 3] if rank == 1 else [3])
    with pytest.raises(
        dist.DistBackendError, match=r"rank 3 is gone, but not excluded by rank 0\..*ranks_to_exclude=\[3\]"
    ):
        # The backend's own, since torch refuses an empty list.
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        backend.shrink([] if rank == 0 else [3])
    dist.shrink_group([3])
    works([0, 1, 2])


def they_call_again_at_once(rank, size, slow):
    """Ranks that exclude each other call again at once, except the slow one. Every rank hears of every refusal."""
    for _ in range(30 if slow is None else 6):
        group = dist.new_group(list(range(size)))
        dist.all_reduce(torch.ones(10), group=group)
        if rank == 3:
            dist.destroy_process_group(group)
            continue
        backend = group._get_backend(torch.device("cpu"))
        for loser in range(3):
            other = (loser + 1) % 3
            majority = ", ".join(str(r) for r in range(3) if r != loser)
            with pytest.raises(
                dist.DistBackendError,
                match=rf"(?=.*\[{loser}, 3\] on ranks {majority})(?=.*\[{other}, 3\] on rank {loser}\b)",
            ):
                backend.shrink([other, 3] if rank == loser else [loser, 3])
        if rank == slow:
            time.sleep(0.3)
        # The backend's, since torch's would count the names of groups on three ranks only.
        left = backend.shrink([3])
        tensor = torch.full((1000,), float(rank))
        left.allreduce([tensor]).wait()
        assert torch.equal(tensor, torch.full((1000,), 3.0))


def excluded_rank_stays(rank, size):
    """A rank that is alive and does not leave is named after the timeout. When it has left, the call succeeds."""
    dist.all_reduce(torch.ones(10))
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    backend._set_default_timeout(timedelta(seconds=3))
    meet()
    if rank == 1:
        meet("named")
        dist.destroy_process_group()
        return
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1 is excluded, but its process is alive"):
        dist.shrink_group([1], shrink_flags=ABORT)
    assert 2.5 < time.monotonic() - begin < 9  # a longer timeout counts as 10 s here
    meet("named")
    backend._set_default_timeout(timedelta(seconds=30))
    dist.shrink_group([1])
    works([0, 2])


def nobody_failed(rank, size, flags):
    """A group without a failure: the excluded rank leaves."""
    dist.all_reduce(torch.ones(10))
    if rank == 1:
        dist.destroy_process_group()
        return
    dist.shrink_group([1], shrink_flags=flags)
    works([0, 2])


def ends_calls(rank, size):
    """SHRINK_ABORT ends the calls of a rank that waits for one which never comes."""
    dist.all_reduce(torch.ones(10))
    if rank == 1:
        time.sleep(2)
        dist.destroy_process_group()
        return
    works_on = [dist.all_reduce(torch.ones(10), async_op=True), dist.irecv(torch.ones(1), 1)]
    begin = time.monotonic()
    time.sleep(0.5)
    dist.shrink_group([1], shrink_flags=ABORT)
    assert time.monotonic() - begin < 15
    for work in works_on:
        with pytest.raises(dist.DistBackendError):
            work.wait()
    works([0, 2])


def refused(rank, size):
    """What the call cannot do changes nothing."""
    with pytest.raises(dist.DistBackendError, match="not connected.*new_group"):
        dist.shrink_group([1 - rank], shrink_flags=ABORT)
    with pytest.raises(ValueError, match="no pg_options"):
        dist.shrink_group([1 - rank], pg_options=onehop.torch.Options())
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert backend.supports_shrinking
    with pytest.raises(ValueError, match=f"rank {rank} is excluded"):
        backend.shrink([rank])
    works([0, 1])


@pytest.mark.parametrize("flags", [0, ABORT])
def test_the_default_group_loses_ranks(ranks, flags):
    ranks(5, world, flags, killed=(1, 2, 3, 4))


def test_a_part_of_the_world(ranks):
    ranks(4, part, killed=(2,))


def test_the_default_group_by_onehops_function(ranks):
    ranks(3, default, killed=(1,))


def test_ranks_that_are_gone_must_be_excluded(ranks):
    ranks(4, more_are_gone, killed=(1, 3))


def test_ranks_that_exclude_each_other(ranks):
    ranks(3, they_disagree)


def test_one_rank_excludes_another(ranks):
    ranks(4, one_excludes_another, killed=(3,))


@pytest.mark.parametrize("slow", [None, 0, 2])
def test_calls_that_follow_a_refusal_at_once(ranks, slow):
    ranks(4, they_call_again_at_once, slow)


def test_an_excluded_rank_that_stays(ranks):
    ranks(3, excluded_rank_stays)


@pytest.mark.parametrize("flags", [0, ABORT])
def test_a_group_that_has_not_failed(ranks, flags):
    ranks(3, nobody_failed, flags)


def test_abort_ends_calls(ranks):
    ranks(3, ends_calls)


def test_refusals(ranks):
    ranks(2, refused)
