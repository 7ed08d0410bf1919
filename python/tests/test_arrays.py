# SPDX-License-Identifier: Apache-2.0
"""What the calls accept as arrays, types, streams and timeouts, and what they say about everything else."""
import array
import ctypes
import random

import numpy as np
import onehop as oh
import pytest


class DlpackOnly:
    """An array that has nothing but DLPack."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, stream=None):
        assert stream is None, "host memory has no stream"
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("make", [
    lambda: np.arange(6, dtype=np.float32), lambda: np.arange(6, dtype=np.float32).reshape(2, 3),
    lambda: array.array("f", range(6)), lambda: (ctypes.c_float * 6)(*range(6)), lambda: DlpackOnly(np.arange(6, dtype=np.float32)),
    lambda: memoryview(array.array("f", range(6))),
], ids=["numpy", "2-D", "array", "ctypes", "dlpack", "memoryview"])
def test_kinds_of_arrays(alone, make):
    x = make()
    out = np.zeros(6, np.float32)
    alone.all_reduce(x, out)
    assert out.tolist() == [0, 1, 2, 3, 4, 5]
    assert alone.all_reduce(x) is x


def test_bytes_with_a_type(alone):
    data = bytearray(np.arange(4, dtype=np.float16).tobytes())
    for dtype in ("f16", "float16", np.float16, np.dtype("f2")):
        assert alone.all_reduce(data, dtype=dtype) is data
    with pytest.raises(oh.InvalidArgument, match="8 bytes.*3|7 bytes, not a multiple of the 2 of f16"):
        alone.all_reduce(data[:7], dtype="f16")


@pytest.mark.parametrize("make", [
    lambda: np.array([True, False, True]), lambda: memoryview(np.array([True, False, True])),
    lambda: DlpackOnly(np.array([True, False, True])), lambda: bytearray([1, 0, 1]),
], ids=["numpy", "memoryview", "dlpack", "bytes with a type"])
def test_booleans(alone, make):
    dtype = "bool" if isinstance(make(), bytearray) else None
    out = np.zeros(3, bool)
    for op in ("sum", "prod", "min", "max"):
        alone.all_reduce(make(), out, op=op, dtype=dtype)
        assert out.tolist() == [True, False, True]
    for op in ("avg", "premul_sum"):
        with pytest.raises(oh.InvalidArgument, match=f'op is "{op}", which is not defined for booleans; use "sum", "prod"'):
            alone.all_reduce(make(), out, op=op, dtype=dtype)
    if dtype is None:  # it would be that of both arrays
        with pytest.raises(oh.InvalidArgument, match="out has type u8, the input bool"):
            alone.all_reduce(make(), np.zeros(3, np.uint8))


def test_bytes_of_booleans_may_be_added(alone):
    x = np.array([True, False])
    assert alone.all_reduce(x, op="avg", dtype="u8") is x and x.tolist() == [True, False]


def test_memory_of_buffers_is_an_array(alone):
    buffer = alone.allocate(64)
    np.frombuffer(buffer.local, np.int64)[:] = range(8)
    out = alone.all_gather(np.empty(0, np.int64))
    assert out.size == 0
    out = np.zeros(8, np.int64)
    alone.all_reduce(buffer.local, out, dtype="i64")
    assert out.tolist() == list(range(8))
    assert np.from_dlpack(buffer.local).nbytes == 64


@pytest.mark.parametrize("x, message", [
    (np.arange(10)[::2], "x, numpy.ndarray, is not C-contiguous"),
    (np.zeros((3, 3)).T[:, :2], "is not C-contiguous"),
    (np.zeros(3, np.complex64), "'complex64' is not an element type of onehop; there are f16"),
    (np.zeros(3, ">f4"), "x, numpy.ndarray, is big-endian; pass x.astype(x.dtype.newbyteorder('='))"),
    (np.zeros(3, np.int16), "'int16' is not"),
    (np.zeros(3, object), "x"),
    (np.zeros(3, "f4,i4"), "x"),
    (np.zeros(3, "S5"), "x"),
    ([1.0, 2.0], "x is list, not an array"),
    (3, "x is int, not an array"),
    (None, "x is NoneType, not an array"),
    ("text", "x is str, not an array"),
    (b"bytes", "x, bytes, is read-only"),
], ids=repr)
def test_what_is_no_array(alone, x, message):
    with pytest.raises(oh.InvalidArgument) as info:
        alone.all_reduce(x)
    assert message in str(info.value) and "\n" not in str(info.value)
    alone.barrier()


def test_mistakes_are_named(alone):
    x = np.zeros(10, np.float32)
    read_only = x.copy()
    read_only.flags.writeable = False
    for call, message in [
        (lambda: alone.all_reduce(x, np.zeros(9, np.float32)), "out has 9 elements; this call needs 10"),
        (lambda: alone.all_reduce(x, np.zeros(10)), "out has type f64, the input f32"),
        (lambda: alone.all_reduce(read_only), "x, numpy.ndarray, is read-only"),
        (lambda: alone.all_reduce(x, op="median"), "'median'"),
        (lambda: alone.all_reduce(x, op=3), "op is 3"),
        (lambda: alone.all_reduce(x, op=None), "op is None"),
        (lambda: alone.all_reduce(x, dtype="q7"), "dtype 'q7' is not an element type of onehop; there are f16"),
        (lambda: alone.all_reduce(x, algorithm="ring"), "ring"),
        (lambda: alone.all_reduce(x, timeout=-1), "timeout is -1"),
        (lambda: alone.all_reduce(x, factor=2.0), "factor"),
        (lambda: alone.broadcast(x, root=5), "root"),
        (lambda: alone.broadcast(x, root=-1), "root"),
        (lambda: alone.scatter(None, None, root=3), "out is None"),
        (lambda: alone.all_to_all_v(x, [5, 5], x.copy(), [10]), "in_counts has 2 elements; this call needs 1"),
        (lambda: alone.all_to_all_v(x, [11], x.copy(), [10]), "in_counts adds up to 11 elements; x has 10"),
        (lambda: alone.all_to_all_v(x, [-1], x.copy(), [10]), "in_counts has -1, not a count"),
        (lambda: alone.all_gather(memoryview(x)), "pass out="),
        (lambda: alone.send(x, 7), "rank 7"),
    ]:
        with pytest.raises(oh.InvalidArgument) as info:
            call()
        assert message in str(info.value), message
    # The last one failed the group, as in the C API.
    with pytest.raises(oh.InvalidArgument):
        alone.check()


class CudaArray:
    """Claims to be on a GPU."""

    def __init__(self, **changes):
        self.__cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3} | changes


@pytest.mark.parametrize("changes, message", [
    ({}, "is in GPU memory, but this is a group of host ranks"),
    ({"typestr": "<c8"}, "is not an element type"),
    ({"typestr": "x"}, "typestr"),
    ({"shape": (-3,)}, "negative"),
    ({"shape": (2**40, 2**40)}, "address space"),
    ({"strides": (8,)}, "not C-contiguous"),
    ({"strides": (8, 8)}, "differ in length"),
    ({"shape": "abc"}, "unknown way"),
    ({"data": (-1, False)}, ""),
    ({"data": None}, ""),
])
def test_cuda_array_interface(alone, changes, message):
    with pytest.raises((oh.InvalidArgument, TypeError, OverflowError)) as info:
        alone.all_reduce(CudaArray(**changes))
    assert message in str(info.value)


class Odd:
    """Raises, or returns nonsense, wherever it is asked."""

    def __init__(self, chance):
        self.chance = chance

    def __getattr__(self, name):
        if name in ("shape", "dtype", "__dlpack__", "__dlpack_device__", "__cuda_array_interface__", "cuda_stream", "ptr",
                    "__cuda_stream__", "total_seconds", "name", "items"):
            pick = self.chance.randrange(8)
            if pick == 0:
                raise AttributeError(name)
            if pick == 1:
                raise RuntimeError(name)
            return [lambda *a, **k: self.chance.choice(VALUES), {"shape": None}, (1, 2), -7, "text", None][pick - 2]
        raise AttributeError(name)


VALUES = [None, 0, 1, -1, 2**70, -2**70, 1.5, float("nan"), "", "sum", "f32", b"", b"12345678", bytearray(8), [], [1], [2**80], (), {},
          object(), np.zeros(0), np.zeros(1), np.zeros(8, np.float32), np.zeros((2, 2))[:, :1], np.float32(1), np.zeros(3, object),
          slice(0, 4), slice(None, None, 2), slice(2**70), Ellipsis, True, lambda: 0, int, np.float32, "cpu", "cuda"]


def test_random_arguments_raise_and_never_crash():
    """Whatever is passed to whatever function: an ordinary exception, or a result."""
    chance = random.Random(7)
    values = VALUES + [Odd(chance) for _ in range(6)]
    skipped = {"abort", "leave", "__init__", "__class__", "__init_subclass__", "__subclasshook__", "__reduce__", "__reduce_ex__",
               "__getattribute__", "__setattr__", "__delattr__", "from_torch", "__dict__", "__weakref__", "stop", "__exit__"}
    store = oh.MemoryStore()
    calls = raised = 0
    for round_ in range(12):
        group = oh.Group.join(oh.MemoryStore(), 0, 1, timeout=0.05)
        buffer = group.allocate(4096)
        pool = oh.Pool(group, 1 << 16)
        targets = [group, buffer, pool, buffer.local, store, oh.topology()]
        for target in targets:
            for name in dir(target):
                if name in skipped or not callable(getattr(type(target), name, None)):
                    continue
                for _ in range(6):
                    arguments = [chance.choice(values) for _ in range(chance.randrange(5))]
                    options = {key: chance.choice(values) for key in ("timeout", "dtype", "op", "stream", "out", "root", "channel")
                               if chance.random() < 0.15}
                    if name in ("get", "wait", "barrier", "wait_signal"):
                        options["timeout"] = 0.001
                    calls += 1
                    try:
                        getattr(target, name)(*arguments, **options)
                    except Exception as error:
                        raised += 1
                        assert "\n" not in str(error) or isinstance(error, TypeError), f"{name}: {error}"
        group.leave()
        del buffer, pool, group, targets, target
    assert calls > 2000 and raised > calls / 2


def test_random_constructors():
    chance = random.Random(11)
    for function in (oh.FileStore, oh.PrefixStore, oh.PyStore, oh.Pool, oh.Group, oh.buffer_of, oh.peers_verified, oh.p2p_check,
                     oh.symmetric_empty, oh.Memory, oh.SymmetricBuffer, oh.Store, oh.TcpServer):
        for _ in range(60):
            arguments = [chance.choice(VALUES) for _ in range(chance.randrange(4))]
            if function is oh.FileStore and arguments and isinstance(arguments[0], str):
                continue  # would create directories
            try:
                function(*arguments)
            except Exception:
                pass


@pytest.mark.filterwarnings("ignore:nanobind")
def test_objects_whose_init_has_not_run_raise():
    group, buffer, memory, pool, store = (each.__new__(each) for each in (oh.Group, oh.SymmetricBuffer, oh.Memory, oh.Pool,
                                                                         oh.Store))
    for call in (lambda: group.barrier(), lambda: group.all_reduce(np.zeros(3)), lambda: group.allocate(64), lambda: group.rank,
                 lambda: oh.Group.all_reduce(3, np.zeros(3)), lambda: buffer.local, lambda: buffer.peer(0), lambda: buffer[1:2],
                 lambda: len(memory), lambda: memoryview(memory), lambda: memory.__dlpack__(), lambda: pool.allocate(8),
                 lambda: oh.Pool(group, 64), lambda: store.get("key"), lambda: oh.Group.join(store, 0, 1),
                 lambda: oh.PrefixStore(store, "p")):
        with pytest.raises((TypeError, BufferError, oh.InvalidArgument)):
            call()


def test_messages_have_one_line(alone):
    for call in (lambda x: alone.all_reduce(x[0], op=x), lambda x: alone.barrier(timeout=x), lambda x: alone.allocate(8)[x],
                 lambda x: alone.all_reduce(x[0], dtype=x), lambda x: alone.all_reduce(x[0], algorithm=x)):
        with pytest.raises(oh.InvalidArgument, match=r"\[\[0\.") as info:
            call(np.zeros((2, 2)))
        assert "\n" not in str(info.value)
