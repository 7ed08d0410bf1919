# SPDX-License-Identifier: Apache-2.0
"""Symmetric buffers, signals, arrays in them, and pools."""
import gc
import threading
import weakref

import numpy as np
import onehop as oh
import pytest


def exchange(group):
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    buffer = group.allocate(8192, channels=3)
    assert (buffer.nbytes, len(buffer), buffer.channels, buffer.group) == (8192, 8192, 3, group)
    assert not np.frombuffer(buffer.local, np.uint8).any(), "it must be zero"
    group.barrier()
    np.frombuffer(buffer.peer(after), np.int32)[:] = group.rank
    buffer.put_signal(after, channel=1)
    buffer.wait_signal(before, channel=1)
    assert (np.frombuffer(buffer.local, np.int32) == before).all()
    buffer.barrier(2)
    part = buffer[4096:]
    assert part.nbytes == 4096 and part.local.ptr == buffer.local.ptr + 4096
    np.frombuffer(part.local, np.uint8)[:] = 9
    part.barrier()
    view = part.device_view()
    assert view.peers[group.rank] == part.local.ptr and view.peers[after] == part.peer(after).ptr
    assert (view.rank, view.size, view.nbytes, view.channels, view.raw) == (group.rank, group.size, 4096, 3, None)
    assert (np.frombuffer(buffer.peer(before), np.uint8)[4096:] == 9).all()
    with pytest.raises(oh.Unsupported):
        group.register(np.zeros(16))
    group.barrier()
    with pytest.raises(oh.InvalidArgument, match="channel 3"):
        buffer.put_signal(after, channel=3)  # fails the group


def test_peers_signals_and_slices(ranks):
    ranks(3, exchange)


def arrays(group):
    x = oh.symmetric_empty(group, (3, 5), "f32")
    assert x.shape == (3, 5) and x.dtype == np.float32 and not x.any()
    x[:] = group.rank
    group.barrier()
    found = oh.buffer_of(x[1:])
    assert found.offset == 20 and found.buffer.nbytes >= 60
    for rank in range(group.size):
        peer = found.peer_tensor(rank)
        assert peer.shape == (2, 5) and (peer == rank).all()
    group.barrier()
    address = x.ctypes.data
    del found, peer
    row = x[2]
    del x
    gc.collect()
    row[:] = 5  # a part keeps the memory
    assert oh.buffer_of(row).buffer.local.ptr == address
    with pytest.raises(oh.InvalidArgument, match="no memory that symmetric_empty made"):
        oh.buffer_of(np.zeros(3))
    with pytest.raises(oh.InvalidArgument, match="shape is"):
        oh.symmetric_empty(group, (-1, 2))
    assert oh.symmetric_empty(group, 0).size == 0
    assert oh.symmetric_empty(group, np.int64(7)).shape == (7,)
    for wrong in {"shape": None}, {"shape": (2, "x")}, {"shape": -1}, {"dtype": "f33"}, {"like": "jax"}:
        with pytest.raises(oh.InvalidArgument, match=next(iter(wrong)) + " is"):  # on all ranks, before their deadline
            oh.symmetric_empty(group, **({"shape": 4} | (wrong if group.rank == 1 else {})))


def test_arrays_in_symmetric_memory(ranks):
    ranks(2, arrays)


def pools(group):
    pool = oh.Pool(group, 1 << 20)
    first, second = pool.allocate(1000), pool.allocate(5000)
    offsets = group.all_gather_object((pool.offset(first), pool.offset(second), pool.free_bytes))
    assert offsets == [offsets[0]] * group.size
    assert first.nbytes == 1000 and pool.offset(first) != pool.offset(second)
    np.frombuffer(second, np.uint8)[:] = group.rank + 1
    group.barrier()
    at = pool.offset(second)
    assert np.frombuffer(pool.buffer().peer(1), np.uint8)[at] == 2
    with pytest.raises(oh.OutOfResources):
        pool.allocate(2 << 20)
    pool.free(first)
    with pytest.raises(oh.InvalidArgument):
        pool.free(first)
    with pytest.raises(oh.InvalidArgument, match="pool"):
        pool.offset(np.zeros(4))
    group.barrier()


def test_pools_have_the_same_offsets_on_all_ranks(ranks):
    ranks(2, pools)


def test_buffers_outlive_their_group(alone):
    buffer = alone.allocate(64)
    values = np.frombuffer(buffer.local, np.uint8)
    memory = buffer.local
    alone.leave()
    del buffer
    gc.collect()
    values[:] = 3
    assert bytes(memoryview(memory)) == b"\x03" * 64


def test_slices_that_make_no_sense(alone):
    buffer = alone.allocate(64)
    for key, message in [(3, "not 3"), (slice(0, 64, 2), "no step")]:
        with pytest.raises(oh.InvalidArgument, match=message):
            buffer[key]
    assert buffer[-16:].nbytes == 16 and buffer[:10**12].nbytes == 64
    with pytest.raises(oh.InvalidArgument, match="rank 1"):
        buffer.peer(1)
    assert "64 bytes" in repr(buffer) and "64 bytes on the host" in repr(buffer.local)
    with pytest.raises(AttributeError, match="buffer protocol"):
        buffer.local.__cuda_array_interface__


class Owner:
    pass


def store_of(keeps):
    """A Python store with an attribute."""
    store = type("Held", (), {name: lambda self, *_: b"" for name in ("set", "get", "check", "add", "compare_set", "delete_key")})()
    store.keeps = keeps
    return oh.PyStore(store)


# What refers to an object that refers to it: `make` gets that object, and a group that nothing else keeps.
CYCLES = {
    "its buffer": lambda g, owner: setattr(g, "buffer", g.allocate(4096)),
    "its buffers in a list": lambda g, owner: setattr(g, "buffers", [g.allocate(64), g.allocate(64)[16:]]),
    "memory of its buffer": lambda g, owner: setattr(g, "local", g.allocate(4096).local),
    "a view of it": lambda g, owner: setattr(g, "view", memoryview(g.allocate(4096).local)),
    "its pool": lambda g, owner: setattr(g, "pool", oh.Pool(g, 1 << 20)),
    "its pool's memory and buffer": lambda g, owner: g.__dict__.update(pool=(pool := oh.Pool(g, 1 << 20)), memory=pool.allocate(64),
                                                                      buffer=pool.buffer()),
    "a bound method": lambda g, owner: setattr(g, "method", g.allocate(64).barrier),
    "a store with callbacks": lambda g, owner: setattr(owner, "store", store_of(owner)),
    "a prefix of such a store": lambda g, owner: setattr(owner, "store", oh.PrefixStore(oh.PrefixStore(store_of(owner), "a"), "b")),
    "a group": lambda g, owner: (setattr(owner, "group", g), setattr(g, "owner", owner)),
}


def mappings():
    with open("/proc/self/maps") as maps:
        return sum("memfd" in line for line in maps)


@pytest.mark.parametrize("leave", [True, False], ids=["left", "not left"])
@pytest.mark.parametrize("cycle", CYCLES)
def test_cycles_are_collected(cycle, leave):
    def make():
        group, owner = oh.Group.join(oh.MemoryStore(), 0, 1), Owner()
        CYCLES[cycle](group, owner)
        if leave:
            group.leave()
        return weakref.ref(group), weakref.ref(owner)

    gc.collect()
    before = mappings()
    references = [each for _ in range(3) for each in make()]
    gc.collect()
    assert [each() for each in references] == [None] * 6
    assert mappings() == before


def test_what_is_in_use_is_not_collected():
    def ranks_join(store):
        def rank(r):
            with oh.Group.join(store, r, 2) as group:
                gc.collect()
                group.barrier()

        threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    from test_stores import Table

    for prefixed in (False, True):
        table = Table()
        store = oh.PyStore(table)
        if prefixed:
            store = oh.PrefixStore(store, "p")
        table.store = store  # a cycle
        reference = weakref.ref(table)
        del table
        gc.collect()
        ranks_join(store)
        store.set("key", b"value")
        gc.collect()
        assert store.get("key") == b"value" and reference() is not None
        del store
        gc.collect()
        assert reference() is None
