# SPDX-License-Identifier: Apache-2.0
"""Collectives, group calls and symmetric arrays with NumPy, between processes on the host:

    onehop launch -n 2 -- python numpy_host.py
"""
import numpy as np
import onehop as oh


def collectives(g):
    mine = np.arange(4, dtype=np.float32) + 10 * g.rank
    rows = np.arange(4) + 10 * np.arange(g.size)[:, None]  # what all ranks have

    assert (g.all_gather(mine).reshape(g.size, 4) == rows).all()
    assert (g.all_reduce(mine.copy(), op="avg") == rows.mean(0)).all()
    assert (g.broadcast(mine.copy(), root=1) == rows[1]).all()
    assert (g.reduce_scatter(rows.astype(np.float32), op="max") == rows[g.rank]).all()  # block r of the result is rank r's

    blocks = np.full((g.size, 2), g.rank, np.int64)  # row r is for rank r
    assert (g.all_to_all(blocks) == np.arange(g.size)[:, None]).all()
    assert g.all_gather_object({"rank": g.rank}) == [{"rank": r} for r in range(g.size)]


def calls_in_a_group(g, left, right):
    """Around a ring: in a group call, all ranks may send first."""
    received, total = np.empty(1000), np.ones(3)
    with oh.group_call():
        g.send(np.full(1000, g.rank, float), right)
        g.recv(received, left)
        g.all_reduce(total)
    assert (received == left).all() and (total == g.size).all()


def symmetric_arrays(g, left, right):
    """Memory that all ranks have mapped: a write into it is a store, and a signal says that it is done."""
    x = oh.symmetric_empty(g, 1000)
    symmetric = oh.buffer_of(x)
    symmetric.peer_tensor(right)[:] = g.rank
    symmetric.buffer.put_signal(right)
    symmetric.buffer.wait_signal(left, timeout=10)
    assert (x == left).all()

    symmetric.buffer.barrier()  # nobody writes any more
    x[:] = 1
    g.all_reduce(x, symmetric=True)  # x is at the same place on all ranks: no copy in between
    assert (x == g.size).all()


with oh.init() as g:
    if g.size < 2:
        raise SystemExit("numpy_host.py: needs at least 2 ranks: onehop launch -n 2 -- python numpy_host.py")
    left, right = (g.rank - 1) % g.size, (g.rank + 1) % g.size
    collectives(g)
    calls_in_a_group(g, left, right)
    symmetric_arrays(g, left, right)
    print(f"rank {g.rank} of {g.size}: all results are right")
