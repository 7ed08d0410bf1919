# SPDX-License-Identifier: Apache-2.0
"""Threads as ranks: all ranks of a group in this process."""
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onehop as oh
import pytest


def test_ranks_are_in_order_and_their_results_are_too():
    groups = oh.Group.join_local(4, name="four", timeout=20)
    assert [(each.rank, each.size, each.name, each.timeout) for each in groups] == [(r, 4, "four", 20.0) for r in range(4)]

    def sum_of_ranks(group):
        return group.all_reduce(np.full(100_000, group.rank, np.int64))[-1], threading.get_ident()

    results = oh.on_every_rank(groups, sum_of_ranks)
    assert [each for each, _ in results] == [6] * 4 and len({thread for _, thread in results}) == 4
    parts = oh.on_every_rank(groups, lambda group: group.split(group.rank % 2))
    assert [each.rank for each in parts] == [0, 0, 1, 1]
    for each in parts + groups:
        each.leave()
    assert oh.on_every_rank([], sum_of_ranks) == []


def test_devices_are_those_of_join():
    groups = oh.Group.join_local(["cpu", None])
    assert [each.device for each in groups] == [-1, -1]
    for devices, message in ((0, "devices is 0; pass 1 to 64"), (-3, "devices is -3"), (65, "devices is 65"),
                             ([], "a group of 0 devices"), (["cpu", "gpu"], "device is 'gpu'")):
        with pytest.raises(oh.InvalidArgument, match=message):
            oh.Group.join_local(devices)


def test_the_first_error_is_raised_with_its_rank_and_ends_the_others():
    groups = oh.Group.join_local(3, timeout=60)

    def body(group):
        if group.rank == 1:
            raise KeyError("lost")
        group.barrier()

    begin = time.monotonic()
    with pytest.raises(KeyError, match="lost") as info:
        oh.on_every_rank(groups, body)
    assert time.monotonic() - begin < 30
    assert info.value.__notes__ == ["onehop: raised on rank 1 of group 'world'"]
    with pytest.raises(oh.Aborted, match="KeyError: 'lost'") as aborted:
        groups[0].check()
    assert aborted.value.rank == 1


INTERRUPTED = """
import onehop as oh, sys
groups = oh.Group.join_local(2, timeout=60)
def body(group):
    if group.rank == 0:
        print("waits", flush=True)
        group.barrier()
    else:
        group.recv(bytearray(8), 0)
try:
    oh.on_every_rank(groups, body)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_control_c_ends_all_ranks():
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        begin = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted\n"
        assert process.returncode == 0 and time.monotonic() - begin < 20
    finally:
        process.kill()
