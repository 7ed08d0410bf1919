# SPDX-License-Identifier: Apache-2.0
"""Groups on GPUs, with the arrays of every package that has some there. Ranks share GPUs if there are fewer than ranks and
ONEHOP_ALLOW_OVERLAPPING_DEVICES=1."""
import importlib.util
import os
import signal
import time

import numpy as np
import onehop as oh
import pytest
from conftest import gpu_count, meet
from formats import STORED, decode, encode, options, random_values

pytestmark = pytest.mark.gpu

SIZES = (0, 1, 1001, 300_007)


class Torch:
    """Makes and reads tensors of PyTorch on the rank's GPU."""

    package = "torch"
    dtypes = tuple(STORED)
    names = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "u32": "uint32", "u64": "uint64"}

    def __init__(self, device):
        import torch

        self.torch = torch
        torch.cuda.set_device(device)
        self.device = device

    def make(self, stored, dtype):
        tensor = self.torch.from_numpy(np.array(stored)).to(f"cuda:{self.device}")
        return tensor.view(getattr(self.torch, self.names[dtype])) if dtype in self.names else tensor

    def read(self, tensor, dtype):
        if dtype in self.names:
            tensor = tensor.view({1: self.torch.uint8, 2: self.torch.uint16, 4: self.torch.int32, 8: self.torch.int64}[tensor.itemsize])
        return tensor.cpu().numpy().view(STORED[dtype])

    def synchronize(self):
        self.torch.cuda.synchronize()

    def options(self, dtype):
        return {}


class CuPy:
    """Arrays of CuPy."""

    package = "cupy"
    dtypes = tuple(STORED)

    def __init__(self, device):
        import cupy

        self.cupy = cupy
        cupy.cuda.Device(device).use()

    def make(self, stored, dtype):
        return self.cupy.asarray(stored)

    def read(self, array, dtype):
        return self.cupy.asnumpy(array)

    def synchronize(self):
        self.cupy.cuda.get_current_stream().synchronize()

    def options(self, dtype):
        return options(dtype)


class OnlyDlpack(CuPy):
    """Objects with nothing but DLPack, on the legacy default stream."""

    class Array:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, *, stream=None, **rest):
            assert stream == -1, f"{stream}: a call orders itself"
            return self.array.__dlpack__(stream=-1)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    wrap = Array

    def make(self, stored, dtype):
        array = self.wrap(super().make(stored, dtype))
        self.cupy.cuda.get_current_stream().synchronize()
        return array

    def read(self, array, dtype):
        return super().read(array.array, dtype)


class OnlyInterface(OnlyDlpack):
    """Objects with nothing but the CUDA array interface."""

    class Array:
        def __init__(self, array):
            self.array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    wrap = Array


def member(rank, size, directory, **options):
    """Joins with the rank's GPU."""
    return oh.Group.join(oh.FileStore(directory), rank, size, device=rank % gpu_count(), timeout=30, **options)


def require(package, array, dtype, expected, what):
    actual = decode(package.read(array, dtype).reshape(-1), dtype)
    wrong = np.flatnonzero(actual != expected)
    assert actual.shape == expected.shape and wrong.size == 0, f"{what}: elements {wrong[:5]} of {actual.shape}"


def every_collective(rank, size, directory, kind):
    with member(rank, size, directory) as group:
        package = kind(group.device)
        for dtype in package.dtypes:
            for count in SIZES:
                extra = package.options(dtype)
                what = f"{dtype}, {count} elements"
                values = [random_values((r, count), count) for r in range(size)]
                blocks = [random_values((r, count, 1), count * size) for r in range(size)]
                mine = slice(rank * count, (rank + 1) * count)

                def new(content):
                    return package.make(encode(content, dtype), dtype)

                x, out = new(values[rank]), new(np.full(count, 2.0))
                assert group.all_reduce(x, out, **extra) is out
                assert group.all_reduce(x, **extra) is x
                package.synchronize()
                for each in (x, out):
                    require(package, each, dtype, sum(values), f"all_reduce {what}")

                x, out = new(values[rank]), new(np.full(count * size, 2.0))
                group.all_gather(x, out, **extra)
                package.synchronize()
                require(package, out, dtype, np.concatenate(values), f"all_gather {what}")

                x, out = new(blocks[rank]), new(np.full(count, 2.0))
                group.reduce_scatter(x, out, **extra)
                package.synchronize()
                require(package, out, dtype, sum(blocks)[mine], f"reduce_scatter {what}")

                out = new(np.full(count * size, 2.0))
                group.all_to_all(x, out, **extra)
                package.synchronize()
                require(package, out, dtype, np.concatenate([b[mine] for b in blocks]), f"all_to_all {what}")

                x = new(values[rank])
                group.broadcast(x, root=size - 1, **extra)
                package.synchronize()
                require(package, x, dtype, values[size - 1], f"broadcast {what}")

                x, out = new(values[rank]), new(np.full(count, 2.0))
                group.reduce(x, out if rank == 0 else None, root=0, op="max", **extra)
                package.synchronize()
                if rank == 0:
                    require(package, out, dtype, np.maximum.reduce(values), f"reduce {what}")

                x, out = new(values[rank]), new(np.full(count, 2.0))
                with oh.group_call():
                    group.send(x, (rank + 1) % size, **extra)
                    group.recv(out, (rank - 1) % size, **extra)
                package.synchronize()
                require(package, out, dtype, values[(rank - 1) % size], f"send, recv {what}")
        group.synchronize()


@pytest.mark.parametrize("kind", [Torch, CuPy, OnlyDlpack, OnlyInterface], ids=lambda k: k.__name__)
def test_every_collective_type_and_package(ranks, kind):
    if importlib.util.find_spec(kind.package) is None:
        pytest.skip(f"{kind.package} is not installed")
    ranks(2, every_collective, kind, join=False)


def allocated(rank, size, directory):
    """Results that a call allocates are on the GPU, in blocks of the first dimension."""
    import torch

    with member(rank, size, directory) as group:
        x = torch.full((4, 3), float(rank), device=f"cuda:{group.device}")
        whole = group.all_gather(x)
        assert whole.shape == (4 * size, 3) and whole.device == x.device
        assert torch.equal(whole, torch.cat([torch.full_like(x, float(r)) for r in range(size)]))
        part = group.reduce_scatter(whole)
        assert part.shape == (4, 3) and torch.equal(part, torch.full_like(x, float(rank * size)))
        with pytest.raises(oh.InvalidArgument, match="is in host memory, but this rank is on cuda"):
            group.all_reduce(torch.ones(3))
        with pytest.raises(oh.InvalidArgument, match="is in host memory, but this rank is on cuda"):
            group.all_reduce(np.ones(3))
        group.all_reduce(x)  # all ranks rejected the calls: the group is usable
        group.synchronize()
        assert torch.equal(x, torch.full_like(x, float(sum(range(size)))))
        assert group.all_gather_object({"rank": rank}) == [{"rank": r} for r in range(size)]


def streams(rank, size, directory):
    """The stream is that of the package, or the one that the caller names."""
    import torch

    with member(rank, size, directory) as group:
        device = torch.device("cuda", group.device)
        torch.cuda.set_device(device)
        side = torch.cuda.Stream(device)
        names = [lambda: None, lambda: side, lambda: side.cuda_stream, lambda: Protocol(side.cuda_stream)]
        for turn, name in enumerate(names):
            x = torch.zeros(100_000, device=device)
            torch.cuda.synchronize()
            with torch.cuda.stream(side if turn == 0 else torch.cuda.current_stream(device)):
                with torch.cuda.stream(side):
                    torch.cuda._sleep(20_000_000)  # 10 ms: on another stream, the call would come too early
                    x.fill_(rank + turn)
                group.all_reduce(x, stream=name())
            side.synchronize()
            assert torch.equal(x, torch.full_like(x, sum(r + turn for r in range(size)))), f"stream {turn}"
        group.synchronize(stream=side)
        if importlib.util.find_spec("cupy") is not None:
            import cupy

            with cupy.cuda.Device(group.device), cupy.cuda.Stream(non_blocking=True) as stream:
                y = cupy.full(1000, rank, cupy.float32)
                group.all_reduce(y)
                stream.synchronize()
                assert (cupy.asnumpy(y) == sum(range(size))).all()


class Protocol:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)


def graphs(rank, size, directory):
    """Calls are captured into a CUDA graph, which works on whatever its arrays hold at each launch."""
    import torch

    with member(rank, size, directory) as group:
        device = torch.device("cuda", group.device)
        torch.cuda.set_device(device)
        x, wide = torch.zeros(5000, device=device), torch.zeros(5000 * size, device=device)
        group.all_reduce(x)
        group.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2
            group.all_reduce(y)
            group.all_gather(y, wide)
            part = group.reduce_scatter(wide)
        for turn in range(5):
            x.fill_(rank + turn)
            graph.replay()
            group.synchronize()
            total = 2.0 * sum(r + turn for r in range(size))
            assert torch.equal(y, torch.full_like(y, total)), turn
            assert torch.equal(wide, torch.full_like(wide, total)), turn
            assert torch.equal(part, torch.full_like(part, total * size)), turn


def symmetric(rank, size, directory):
    """Arrays in memory that all ranks map, signals on a stream, addresses for kernels."""
    import torch

    with member(rank, size, directory) as group:
        device = torch.device("cuda", group.device)
        torch.cuda.set_device(device)
        x = oh.symmetric_empty(group, (64, 33), "bf16", like="torch")
        assert x.shape == (64, 33) and x.dtype == torch.bfloat16 and x.device == device and not x.any()
        x.fill_(rank + 1)
        group.all_reduce(x, symmetric=True)
        group.synchronize()
        assert torch.equal(x, torch.full_like(x, size * (size + 1) / 2))
        x.fill_(rank)
        found = oh.buffer_of(x)
        found.buffer.barrier()
        after, before = (rank + 1) % size, (rank - 1) % size
        assert (found.peer_tensor(after) == after).all()
        found.buffer.barrier()

        b = group.allocate(1 << 16, channels=2)
        peer = torch.from_dlpack(b.peer(after)).view(torch.int32)
        peer.fill_(rank)
        b.put_signal(after, channel=1)
        b.wait_signal(before, channel=1)
        mine = torch.from_dlpack(b.local).view(torch.int32).clone()
        group.synchronize()
        assert (mine == before).all()
        view = b.device_view()
        assert len(view.peers) == size and view.peers[rank] == b.local.ptr and view.nbytes == b.nbytes and len(view.raw) > 0
        with pytest.raises(oh.InvalidArgument, match="numpy"):
            oh.symmetric_empty(group, 5, like="numpy")
        if importlib.util.find_spec("cupy") is not None:
            import cupy

            y = oh.symmetric_empty(group, (10, 10), "f32", like="cupy")
            y[:] = rank
            group.all_reduce(y)
            group.synchronize(stream=cupy.cuda.get_current_stream())
            assert (cupy.asnumpy(y) == sum(range(size))).all()
        pool = oh.Pool(group, 1 << 20)
        first = pool.allocate(4096)
        assert group.all_gather_object(pool.offset(first)) == [pool.offset(first)] * size
        torch.from_dlpack(first).fill_(rank)
        group.synchronize()
        group.barrier()


def own_factors(rank, size, directory):
    """On the host, and on the GPU."""
    import torch
    with member(rank, size, directory) as group:
        device = f"cuda:{group.device}"
        factor = torch.tensor([2.0 ** rank], dtype=torch.bfloat16)
        for own in (factor, factor.to(device)):
            x = torch.full((5000,), rank + 1, dtype=torch.bfloat16, device=device)
            group.all_reduce(x, op="premul_sum", own_factor=own)
            group.synchronize()
            assert (x == sum((r + 1) * 2 ** r for r in range(size))).all()


def without_rank_1(rank, size, directory):
    """A group whose rank 1 dies after a call, and that call's array."""
    import torch

    group = member(rank, size, directory)
    torch.cuda.set_device(group.device)
    x = torch.ones(1000, device=f"cuda:{group.device}")
    group.all_reduce(x)
    group.synchronize()
    meet(directory, size)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return group, x


def died(rank, size, directory):
    """The others learn who died when they wait for a call, and end."""
    group, x = without_rank_1(rank, size, directory)
    begin = time.monotonic()
    with pytest.raises(oh.PeerLost) as caught:
        group.all_reduce(x)
        group.synchronize()
    assert caught.value.rank == 1
    return time.monotonic() - begin


def shrinks(rank, size, directory):
    """Rank 1 dies; the others form a group of their own on their GPUs and work on."""
    import torch

    group, x = without_rank_1(rank, size, directory)
    with pytest.raises(oh.PeerLost):
        while True:
            group.all_reduce(x)
            group.synchronize()
    survivors = group.shrink()
    left = [r for r in range(size) if r != 1]
    assert list(survivors.parent_ranks) == left and survivors.device == group.device
    group.leave()
    for count in (10, 1001, 5_000_000):
        y = torch.full((count,), float(rank), device=f"cuda:{group.device}")
        survivors.all_reduce(y)
        survivors.synchronize()
        assert (y == sum(left)).all()


@pytest.mark.parametrize("body", [allocated, streams, graphs, symmetric, own_factors], ids=lambda b: b.__name__)
def test_on_gpus(ranks, body):
    pytest.importorskip("torch")
    ranks(2, body, join=False)


def test_a_dead_rank_is_named_within_a_second(ranks):
    pytest.importorskip("torch")
    outcomes = ranks(2, died, join=False, may_fail=True)
    assert outcomes[0].error is None and outcomes[0].value < 1.0, outcomes[0]


@pytest.mark.parametrize("size", [2, 3])
def test_survivors_go_on_on_their_gpus(ranks, size):
    pytest.importorskip("torch")
    if gpu_count() < size and os.environ.get("ONEHOP_ALLOW_OVERLAPPING_DEVICES") != "1":
        pytest.skip(f"needs {size} GPUs, this machine has {gpu_count()}")
    outcomes = ranks(size, shrinks, join=False, may_fail=True)
    for survivor in (r for r in range(size) if r != 1):
        assert outcomes[survivor].error is None and outcomes[survivor].exit_code == 0, outcomes[survivor]
