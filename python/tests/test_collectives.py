# SPDX-License-Identifier: Apache-2.0
"""Every collective on every type: random data, odd sizes, in place and out of place, all elements compared."""
import contextlib
import os
import re

import formats
import numpy as np
import onehop as oh
import pytest
from conftest import meet
from formats import STORED, decode, encode, options, random_values

SIZES = (0, 1, 7, 1001, 30_011)
RANKS = 3


def inputs(group, dtype, count):
    """The values of all ranks, and this rank's array."""
    values = [random_values((r, count), count) for r in range(group.size)]
    return values, encode(values[group.rank], dtype)


def require(array, dtype, expected, what):
    actual = decode(np.asarray(array).reshape(-1), dtype)
    wrong = np.flatnonzero(actual != expected)
    assert actual.shape == expected.shape, f"{what}: {actual.shape}, not {expected.shape}"
    assert wrong.size == 0, f"{what}: element {wrong[:1]} is {actual[wrong[:1]]}, not {expected[wrong[:1]]}"


def cases():
    return [(dtype, count) for dtype in STORED for count in SIZES]


def all_reduce(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count)
        out = np.empty_like(x)
        assert group.all_reduce(x, out, **options(dtype)) is out
        require(out, dtype, sum(values), f"all_reduce {dtype} {count}")
        require(x, dtype, values[group.rank], "the input")
        assert group.all_reduce(x, **options(dtype)) is x
        require(x, dtype, sum(values), f"all_reduce {dtype} {count} in place")


def booleans(group):
    """A sum is a logical or, a product a logical and; types that are only moved keep their values."""
    own = np.array([group.rank == 0, True, False])
    assert group.all_reduce(own.copy()).tolist() == [True, True, False]
    assert group.all_reduce(own.copy(), op="prod").tolist() == [False, True, False]
    assert group.all_reduce(own.copy(), op="min").tolist() == [False, True, False]
    assert group.reduce_scatter(np.tile(own, group.size), op="max").tolist() == [True, True, False]
    reduced = group.reduce(own.copy())
    assert group.rank != 0 or reduced.tolist() == [True, True, False]
    gathered = group.all_gather(own)
    assert gathered.dtype == bool and gathered.reshape(-1, 3)[:, 0].tolist() == [True] + [False] * (group.size - 1)
    assert group.broadcast(own.copy(), root=0).tolist() == [True, True, False]


def all_gather(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count)
        expected = np.concatenate(values)
        require(group.all_gather(x, **options(dtype)), dtype, expected, f"all_gather {dtype} {count}")
        out = np.zeros(count * group.size, x.dtype)
        own = out[group.rank * count:(group.rank + 1) * count]
        own[:] = x
        group.all_gather(own, out, **options(dtype))
        require(out, dtype, expected, f"all_gather {dtype} {count} in place")


def reduce_scatter(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count * group.size)
        mine = slice(group.rank * count, (group.rank + 1) * count)
        expected = sum(values)[mine]
        require(group.reduce_scatter(x, **options(dtype)), dtype, expected, f"reduce_scatter {dtype} {count}")
        group.reduce_scatter(x, x[mine], **options(dtype))
        require(x[mine], dtype, expected, f"reduce_scatter {dtype} {count} in place")


def all_to_all(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count * group.size)
        expected = np.concatenate([each[group.rank * count:(group.rank + 1) * count] for each in values])
        require(group.all_to_all(x, **options(dtype)), dtype, expected, f"all_to_all {dtype} {count}")


def all_to_all_v(group):
    for dtype, count in cases():
        sizes = np.array([[count + 2 * s + 3 * r for r in range(group.size)] for s in range(group.size)])  # from s to r
        values = [random_values((s, count), int(sizes[s].sum())) for s in range(group.size)]
        x = encode(values[group.rank], dtype)
        out = np.empty(sizes[:, group.rank].sum(), x.dtype)
        group.all_to_all_v(x, sizes[group.rank].tolist(), out, tuple(int(n) for n in sizes[:, group.rank]), **options(dtype))
        parts = [np.split(values[s], np.cumsum(sizes[s])[:-1])[group.rank] for s in range(group.size)]
        require(out, dtype, np.concatenate(parts), f"all_to_all_v {dtype} {count}")


def broadcast(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count)
        root = count % group.size
        out = np.zeros_like(x)
        group.broadcast(x, root, out, **options(dtype))
        require(out, dtype, values[root], f"broadcast {dtype} {count}")
        if group.rank == root:
            x.flags.writeable = False  # the root only reads
        assert group.broadcast(x, root=root, **options(dtype)) is x
        require(x, dtype, values[root], f"broadcast {dtype} {count} in place")


def reduce(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count)
        root = count % group.size
        out = np.zeros_like(x) if group.rank == root else None
        assert group.reduce(x, out, root=root, **options(dtype)) is out
        if group.rank == root:
            require(out, dtype, sum(values), f"reduce {dtype} {count}")
        group.reduce(x, root=root, **options(dtype))
        require(x, dtype, sum(values) if group.rank == root else values[group.rank], f"reduce {dtype} {count} in place")


def gather(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count)
        root = count % group.size
        out = group.gather(x, root=root, **options(dtype))
        assert (out is None) == (group.rank != root)
        if group.rank == root:
            require(out, dtype, np.concatenate(values), f"gather {dtype} {count}")


def scatter(group):
    for dtype, count in cases():
        values, x = inputs(group, dtype, count * group.size)
        root = count % group.size
        out = None if group.rank == root else np.empty(count, x.dtype)
        out = group.scatter(x if group.rank == root else None, out, root=root, **options(dtype))
        require(out, dtype, values[root][group.rank * count:(group.rank + 1) * count], f"scatter {dtype} {count}")


def send_recv(group):
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for dtype, count in cases():
        values, x = inputs(group, dtype, count)
        out = np.empty_like(x)
        with oh.group_call():
            group.recv(out, before, **options(dtype))
            group.send(x, after, **options(dtype))
        require(out, dtype, values[before], f"send and recv {dtype} {count}")


def in_turn(group, names):
    for name in names:
        globals()[name](group)


@pytest.mark.parametrize("names", [("all_reduce", "reduce", "reduce_scatter"), ("booleans",), ("all_gather", "gather", "scatter", "broadcast"),
                                   ("all_to_all", "all_to_all_v", "send_recv")], ids="-".join)
def test_every_type_and_size(ranks, names):
    ranks(RANKS, in_turn, names)


def all_ops(group):
    for dtype in STORED:
        values = [random_values((r, 99), 1001, 1, 3) for r in range(group.size)]
        both = np.stack(values)
        # Twice small values, so that every type holds the mean of two.
        expected = {"sum": both.sum(0), "prod": both.prod(0), "min": both.min(0), "max": both.max(0)}
        if dtype in ("f16", "bf16", "f32", "f64", "e4m3", "e5m2"):
            expected |= {"avg": both.mean(0), "premul_sum": both.sum(0) * 0.5}
        for op, result in expected.items():
            factor = {"factor": 0.5} if op == "premul_sum" else {}
            x = encode(values[group.rank], dtype)
            require(group.all_reduce(x.copy(), op=op, **factor, **options(dtype)), dtype, result, f"all_reduce {op} {dtype}")
            out = group.reduce(x, np.empty_like(x), op=op, root=1, **factor, **options(dtype))
            if group.rank == 1:
                require(out, dtype, result, f"reduce {op} {dtype}")


def test_every_op(ranks):
    ranks(2, all_ops)


def own_factors(group):
    factors = [0.5, 2.0, 4.0][:group.size]
    for dtype in ("f16", "bf16", "f32", "f64", "i32", "u64"):
        values = [random_values((r, 78), 78, 1, 3) * 2 for r in range(group.size)]
        own = factors if "f" in dtype else [3, 2, 4]
        expected = sum(each * factor for each, factor in zip(values, own))
        x, mine = encode(values[group.rank], dtype), encode(np.array(own[group.rank:group.rank + 1]), dtype)
        weighted = {"op": "premul_sum", "own_factor": mine, **options(dtype)}
        require(group.all_reduce(x.copy(), **weighted), dtype, expected, f"all_reduce {dtype}")
        out = group.reduce(x, np.empty_like(x), root=1, **weighted)
        if group.rank == 1:
            require(out, dtype, expected, f"reduce {dtype}")
        block = expected.reshape(group.size, -1)[group.rank]
        require(group.reduce_scatter(x, **weighted), dtype, block, f"reduce_scatter {dtype}")
    with oh.group_call():
        y = np.full(5, group.rank + 1, np.float32)
        group.all_reduce(y, op="premul_sum", own_factor=np.array([10.0 ** group.rank], np.float32))
    assert (y == sum((r + 1) * 10 ** r for r in range(group.size))).all()


def test_every_rank_may_have_a_factor_of_its_own(ranks):
    ranks(3, own_factors)


def wrong_own_factors(group):
    right = {"op": "premul_sum", "own_factor": np.ones(1)}
    wrong = {
        "own_factor is float, not an array": {"own_factor": 2.0},
        "own_factor has 2 elements; this call needs 1": {"own_factor": np.ones(2)},
        "own_factor has type f32, the input f64": {"own_factor": np.ones(1, np.float32)},
        "both a factor and an own_factor": {"factor": 2},
        "only premul_sum takes an own_factor": {"op": "sum"},
    }
    for text, each in wrong.items():
        with pytest.raises(oh.InvalidArgument) as info:
            group.all_reduce(np.ones(8), **(right | each if group.rank == 1 else right))
        assert text in str(info.value) and "\n" not in str(info.value), str(info.value)
        assert group.rank == 1 or info.value.rank == 1
    with pytest.raises(oh.InvalidArgument, match="premul_sum.*booleans"):
        group.all_reduce(np.ones(8, bool), op="premul_sum", own_factor=np.ones(1, bool))
    assert (group.all_reduce(np.ones(8), **right) == group.size).all()


def test_an_own_factor_that_is_none_is_refused_on_all_ranks(ranks):
    ranks(2, wrong_own_factors, timeout=20)


def options_of_calls(group):
    x = np.full(5000, group.rank + 1.0)
    before = group.usage()
    group.all_reduce(x, algorithm="one-shot", timeout=5)
    group.all_reduce(x, algorithm="two-shot", stream=12345)  # ignored on the host
    after = group.usage()
    assert {name: after[name] - before[name] for name in after} == {"one-shot": 1, "two-shot": 1}
    assert oh.usage(group) == after
    y = oh.symmetric_empty(group, 5000, "f64")
    y[:] = group.rank
    group.all_reduce(y, symmetric=True)
    assert (y == 1).all()


def test_options(ranks):
    ranks(2, options_of_calls)


def shapes(group):
    x = np.full((4, 3), group.rank, np.float32)
    assert group.all_gather(x).shape == (8, 3)
    assert group.all_gather(np.float32(group.rank).reshape(())).shape == (2,)
    assert group.reduce_scatter(x).shape == (2, 3)
    assert group.all_to_all(x).shape == (4, 3)
    gathered = group.gather(x, root=1)
    assert gathered is None or gathered.shape == (8, 3)
    if group.rank == 0:
        assert group.scatter(x).shape == (2, 3)
    else:
        group.scatter(None, np.empty((2, 3), np.float32))


def test_shapes_of_new_arrays(ranks):
    ranks(2, shapes)


def grouped(group):
    x, y = np.full(1000, group.rank + 1, np.int32), np.full(77, group.rank, np.float64)
    with oh.group_call():
        group.all_reduce(x)
        with oh.group_call():
            group.all_reduce(y, op="max")
        assert (x == group.rank + 1).all(), "a queued call has run"
        gathered = group.all_gather(np.full(3, group.rank, np.int64))  # nobody else holds its input
    assert (x == 3).all() and (y == 1).all() and gathered.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(KeyError):
        with oh.group_call():
            group.all_reduce(x)
            raise KeyError("dropped")
    group.barrier()
    assert (x == 3).all()
    group.all_reduce(x)
    assert (x == 6).all()


def test_group_calls(ranks):
    ranks(2, grouped)


def splits(group):
    part = group.split(group.rank % 2, key=-group.rank)
    members = [r for r in reversed(range(group.size)) if r % 2 == group.rank % 2]
    assert (part.size, part.rank) == (len(members), members.index(group.rank))
    assert isinstance(part, oh.Group) and part.id != group.id
    x = np.array([group.rank])
    part.all_reduce(x)
    assert x == sum(members)
    assert group.split(0 if group.rank == 0 else -1) is None or group.rank == 0
    part.leave()


def test_split(ranks):
    ranks(4, splits)


def objects(group):
    mine = {"rank": group.rank, "big": bytes([group.rank]) * (200_000 * group.rank)}
    assert group.all_gather_object(mine) == [{"rank": r, "big": bytes([r]) * (200_000 * r)} for r in range(group.size)]
    assert group.broadcast_object(mine if group.rank == 2 else None, root=2)["rank"] == 2
    assert group.all_gather_object(None) == [None] * group.size
    with pytest.raises(oh.InvalidArgument, match="cannot be pickled: rank 1") as info:
        group.all_gather_object((lambda: 0) if group.rank == 1 else 0)
    assert info.value.rank == 1
    with pytest.raises(oh.InvalidArgument, match="root is 3"):
        group.broadcast_object(0, root=3)
    group.barrier()


def test_objects(ranks):
    ranks(3, objects)


def large_objects(group):
    """Sizes about those of a message, odd ones, and several megabytes, of one rank and of all."""
    piece = 60 << 10
    for size in (0, 1, piece - 20, piece - 9, piece, piece + 1, 2 * piece - 9, 2 * piece, 1_000_003, 5_000_011):
        everyone = [np.random.default_rng(r).bytes(size + r) for r in range(group.size)]
        mine = everyone[group.rank]
        assert group.all_gather_object(mine) == everyone
        assert group.all_gather_object(mine if group.rank == 1 else None) == [None, everyone[1], None]
        assert group.broadcast_object(mine, root=2) == everyone[2]
        with oh.group_call():  # collectives wait until the end of the block; objects do not
            assert group.all_gather_object(mine if group.rank != 1 else "x") == [everyone[0], "x", everyone[2]]
            assert group.broadcast_object(mine, root=1) == everyone[1]
        mixed = oh.group_call() if group.rank == 1 else contextlib.nullcontext()
        with mixed:
            assert group.all_gather_object(mine) == everyone
    array = group.broadcast_object(np.arange(500_001.0) if group.rank == 0 else None)
    array += 1  # nothing shares memory with what was sent
    assert (array == np.arange(1, 500_002.0)).all()
    with pytest.raises(oh.InvalidArgument, match="cannot be pickled: rank 2"):
        group.all_gather_object(bytes(1_000_000) if group.rank != 2 else [bytes(1_000_000), lambda: 0])
    assert group.all_gather_object(group.rank) == [0, 1, 2]


def test_large_objects(ranks):
    ranks(3, large_objects)


def lost_while_large(rank, size, directory):
    group = oh.Group.join(oh.FileStore(directory), rank, size)
    group.all_gather_object(bytes(1_000_000))
    meet(directory, size)
    if rank == 1:
        os._exit(9)
    with pytest.raises(oh.PeerLost) as info:
        group.all_gather_object(bytes(10_000_000))
    assert info.value.rank == 1


def test_a_rank_that_dies_ends_the_exchange_of_objects(ranks):
    outcomes = ranks(3, lost_while_large, join=False, may_fail=True)
    assert [each.exit_code for each in outcomes] == [0, 9, 0], outcomes


def test_a_group_of_one_copies_its_own_data(alone):
    x = np.arange(5.0)
    assert alone.all_gather(x).tolist() == alone.all_reduce(x.copy()).tolist() == x.tolist()
    assert alone.all_gather_object("x") == ["x"]


def test_types_of_test_data():
    for dtype in STORED:
        values = np.array([0, 1, 2, 3, 4, 6, 8.0])
        assert (formats.decode(encode(values, dtype), dtype) == values).all()


class Exporter:
    """An object that raises when an array is made of it."""

    def __init__(self, exception):
        self.exception = exception

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise self.exception


class Silent(Exception):
    def __str__(self):
        raise ValueError("no text")


# What rank 0 passes, what it gets, what the others get, and what they hear of it.
REFUSED = {
    "MemoryError": (lambda: Exporter(MemoryError("no 5 GB\nfor the copy \udc80 ü")), MemoryError, oh.OutOfResources,
                    r"MemoryError: no 5 GB.*for the copy \\udc80 ü"),
    "TypeError": (lambda: Exporter(TypeError("cannot be exported")), TypeError, oh.InvalidArgument, "TypeError: cannot be exported"),
    "an exception without text": (lambda: Exporter(Silent()), Silent, oh.InvalidArgument, "cannot be shown"),
    "no array": (lambda: "text", oh.InvalidArgument, oh.InvalidArgument, "x is str, not an array"),
    "not contiguous": (lambda: np.ones((4, 4))[:, 1], oh.InvalidArgument, oh.InvalidArgument, "not C-contiguous"),
}
CALLS = {
    "all_reduce": lambda g, x: g.all_reduce(x),
    "all_gather": lambda g, x: g.all_gather(x, np.empty(16)),
    "reduce_scatter": lambda g, x: g.reduce_scatter(x, np.empty(4)),
    "all_to_all": lambda g, x: g.all_to_all(x, np.empty(8)),
    "all_to_all_v": lambda g, x: g.all_to_all_v(x, [4, 4], np.empty(8), [4, 4]),
    "broadcast": lambda g, x: g.broadcast(x, out=np.empty(8)),
    "reduce": lambda g, x: g.reduce(x, np.empty(8)),
    "gather": lambda g, x: g.gather(x, np.empty(16)),
    "scatter": lambda g, x: g.scatter(x, np.empty(4)),
}


def hears_why(group):
    for name, call in CALLS.items():
        for make, own, told, text in REFUSED.values():
            x = make() if group.rank == 0 else np.ones(8)
            with pytest.raises(own if group.rank == 0 else told) as info:
                call(group, x)
            if group.rank != 0:
                assert info.value.rank == 0 and "\n" not in str(info.value)
                assert f"{name} of rank 0 was rejected: " in str(info.value)
                assert re.search(text, str(info.value)), str(info.value)
    x = np.ones(8)
    assert (group.all_reduce(x) == group.size).all()  # the group is usable
    with pytest.raises(oh.InvalidArgument, match="op|bogus"):
        group.all_reduce(x, op="bogus" if group.rank == 0 else "sum")
    with pytest.raises(oh.Error if group.rank else MemoryError, match="no 5 GB") as info:
        group.send(Exporter(MemoryError("no 5 GB")), 1) if group.rank == 0 else group.recv(x, 0)
    assert group.rank == 0 or info.value.rank == 0


def test_the_other_ranks_hear_why_a_call_was_refused(ranks):
    ranks(2, hears_why, timeout=20)


# Arguments of which no call can be made, what they are in messages, and the calls that take them.
WRONG = {
    "root is 1.0; pass the number of a rank": {"root": 1.0},
    "root is None; pass": {"root": None},
    f"root is {1 << 40}; pass": {"root": 1 << 40},
    "factor is 'x'; pass a number": {"op": "premul_sum", "factor": "x"},
    "factor is None; pass": {"op": "premul_sum", "factor": None},
    "symmetric is 2; pass True or False": {"symmetric": 2},
}
TAKES = {
    "all_reduce": ("factor", "symmetric"),
    "all_gather": ("symmetric",),
    "reduce_scatter": ("factor", "symmetric"),
    "all_to_all": ("symmetric",),
    "broadcast": ("root", "symmetric"),
    "reduce": ("root", "factor", "symmetric"),
    "gather": ("root", "symmetric"),
    "scatter": ("root", "symmetric"),
}


def hears_of_wrong_values(group):
    for name, taken in TAKES.items():
        for text, wrong in WRONG.items():
            if list(wrong)[-1] not in taken:
                continue
            x = np.ones(8)
            out = {"all_gather": np.empty(16), "gather": np.empty(16), "reduce_scatter": np.empty(4), "scatter": np.empty(4)}
            right = {"op": wrong["op"], "factor": 2} if "op" in wrong else {}
            with pytest.raises(oh.InvalidArgument) as info:
                getattr(group, name)(x, out=out.get(name, np.empty(8)), **(wrong if group.rank == 1 else right))
            assert text in str(info.value) and "\n" not in str(info.value), str(info.value)
            assert group.rank == 1 or info.value.rank == 1
    for counts, text in ((None, "in_counts is None"), (4, "in_counts is 4"), ([4, -1], "in_counts has -1")):
        with pytest.raises(oh.InvalidArgument, match=text):
            group.all_to_all_v(np.ones(8), counts if group.rank == 1 else [4, 4], np.empty(8), [4, 4])
    wrong = group.rank == 1
    for call, text in (
            (lambda: group.allocate(-1 if wrong else 64), "allocate: rank 1: nbytes is -1; pass a number of bytes"),
            (lambda: group.allocate(None if wrong else 64), "allocate: rank 1: nbytes is None"),
            (lambda: group.allocate(64, channels=1.5 if wrong else 16), "allocate: rank 1: channels is 1.5; pass a number of signal channels"),
            (lambda: oh.Pool(group, "64" if wrong else 64), "allocate: rank 1: nbytes is '64'"),
            (lambda: group.barrier(timeout="x" if wrong else None), "barrier of rank 1 was rejected: timeout is"),
            (lambda: group.split(1.5 if wrong else 0), "split: rank 1: color is 1.5; pass an integer"),
            (lambda: group.split(0, 1 << 40 if wrong else 0), f"split: rank 1: key is {1 << 40}; pass an integer")):
        with pytest.raises(oh.InvalidArgument) as info:
            call()
        assert (text.rpartition(": ")[2] if wrong else text) in str(info.value) and "\n" not in str(info.value), str(info.value)
        assert wrong or info.value.rank == 1
    for root in (1.0, None, "x", -1, group.size):
        with pytest.raises(oh.InvalidArgument, match=f"root is {root!r} on rank 1; pass the number of a rank, 0 to 1") as info:
            group.broadcast_object("x", root=root if wrong else 0)
        assert info.value.rank == 1
    assert group.broadcast_object(group.rank, root=np.int64(1)) == 1
    assert (group.all_reduce(np.ones(8)) == group.size).all()
    with pytest.raises(oh.InvalidArgument, match="dst is 0.0; pass the number of a rank"):
        group.send(np.ones(8), 0.0) if group.rank == 1 else group.recv(np.ones(8), 1)


def test_the_other_ranks_hear_of_values_of_a_wrong_type(ranks):
    ranks(2, hears_of_wrong_values, timeout=20)


# Calls with root 0, in which the other ranks pass `bad` where they receive or send.
ROOTED = {
    "broadcast": lambda g, bad: g.broadcast(np.ones(8) if g.rank == 0 else bad),
    "reduce": lambda g, bad: g.reduce(np.ones(8) if g.rank == 0 else bad),
    "gather": lambda g, bad: g.gather(np.ones(8) if g.rank == 0 else bad),
    "scatter": lambda g, bad: g.scatter(np.ones(16)) if g.rank == 0 else g.scatter(None, bad),
}


def root_hears_why(group):
    for name, call in ROOTED.items():
        for bad, text in ((None, "None"), ("text", "is str, not an array"), (np.ones(8)[::2], "is not C-contiguous"),
                          (np.ones(3, np.float32), "ranks disagree: rank 0 calls")):
            with pytest.raises((oh.InvalidArgument, oh.Mismatch), match=text) as info:
                call(group, bad)
            if group.rank == 0 and "disagree" not in text:
                assert info.value.rank == 1 and f"{name} of rank 1 was rejected: " in str(info.value), str(info.value)
    group.barrier()


def test_the_root_hears_why_another_rank_refused_a_call(ranks):
    ranks(2, root_hears_why, timeout=20)


def interrupts_itself(group):
    with pytest.raises(KeyboardInterrupt if group.rank == 0 else oh.Aborted) as info:
        group.all_reduce(Exporter(KeyboardInterrupt()) if group.rank == 0 else np.ones(8))
    assert group.rank == 0 or info.value.rank == 0
    with pytest.raises(oh.Aborted):
        group.barrier()


def test_an_interrupt_while_arguments_are_read_aborts_the_group(ranks):
    ranks(2, interrupts_itself, timeout=20)


def registers_nothing(group):
    with pytest.raises(MemoryError if group.rank == 0 else oh.Unsupported):
        group.register(Exporter(MemoryError()) if group.rank == 0 else np.ones(8))
    group.barrier()


def test_a_refused_registration_leaves_the_group_usable(ranks):
    ranks(2, registers_nothing, timeout=20)
