# SPDX-License-Identifier: Apache-2.0
"""Every method of the backend, with every type and reduction that onehop has. All elements are compared,
bit by bit: onehop adds in the order of ranks and rounds once."""

import pytest
import torch
import torch.distributed as dist

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
UNSIGNED = [torch.uint32, torch.uint64]
MOVED = [torch.int16, torch.bool, torch.complex64, torch.complex128]
SIZES = [(1,), (0,), (7, 3), (1000,), (130_001,)]


def put(tensor):
    """A copy where this rank's tensors are: see ranks.run."""
    return tensor.to(torch.get_default_device(), copy=True)


def data(rank, shape, dtype, salt=0):
    """What rank `rank` contributes, on the CPU: the same on every rank that asks."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype in FLOATS or dtype.is_complex:
        base = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=base, device="cpu").to(dtype)
    end = 2 if dtype == torch.bool else 100
    return torch.randint(0, end, shape, generator=generator, device="cpu").to(dtype)


def bits(tensor):
    return tensor.cpu().contiguous().view(-1).view(torch.uint8)


def assert_same(got, expected, what):
    assert got.shape == expected.shape and got.dtype == expected.dtype, what
    assert torch.equal(bits(got), bits(expected)), what


def reduce_reference(parts, op, factor=1.0):
    dtype = parts[0].dtype
    small = dtype in FLOATS and dtype.itemsize <= 2
    wide = [
        (
            p.float()
            if small
            else p.view(torch.int32 if dtype == torch.uint32 else torch.int64) if dtype in UNSIGNED else p
        )
        for p in parts
    ]
    total = wide[0].clone()
    for part in wide[1:]:
        if op in ("SUM", "AVG", "PREMUL_SUM"):
            total = total + part
        elif op == "PRODUCT":
            total = total * part
        elif op == "MIN":
            total = torch.minimum(total, part)
        elif op == "MAX":
            total = torch.maximum(total, part)
    if dtype in INTEGERS + UNSIGNED:
        if op == "AVG":
            total = torch.div(total, len(parts), rounding_mode="trunc")
        if op == "PREMUL_SUM":
            total = total * int(factor)
        return total.view(dtype) if dtype in UNSIGNED else total.to(dtype)
    if op == "AVG":
        total = total / len(parts)
    if op == "PREMUL_SUM":
        total = total * factor
    return total.to(dtype)


OPS = ["SUM", "PRODUCT", "MIN", "MAX", "AVG", "PREMUL_SUM"]


def reduce_op(name, factor):
    if name != "PREMUL_SUM":
        return getattr(dist.ReduceOp, name)
    make = getattr(dist, "_make_nccl_premul_sum", None) or dist._make_premul_sum
    return make(factor)


def reductions(rank, size):
    for dtype in FLOATS + INTEGERS + UNSIGNED:
        for op in OPS:
            for salt, shape in enumerate(SIZES):
                what = f"{dtype} {op} {shape}"
                parts = [data(r, shape, dtype, salt) for r in range(size)]
                # sums of unsigned 8-bit numbers wrap in torch and in onehop; means of wrapped sums are
                # equal too
                expected = reduce_reference(parts, op, 3.0)
                for asynchronous in (False, True):
                    tensor = put(parts[rank])
                    work = dist.all_reduce(tensor, reduce_op(op, 3.0), async_op=asynchronous)
                    if asynchronous:
                        assert work.wait()
                        if tensor.is_cuda:  # wait() does not block the host
                            torch.cuda.synchronize()
                        assert work.is_completed() and work.is_success()
                    assert_same(tensor, expected, f"all_reduce {what}")
                root = size - 1
                tensor = put(parts[rank])
                dist.reduce(tensor, root, reduce_op(op, 3.0))
                assert_same(tensor, expected if rank == root else parts[rank], f"reduce {what}")

                blocks = [
                    torch.cat([data(r, shape, dtype, 10 * salt + b + 1) for b in range(size)])
                    for r in range(size)
                ]
                mine = [data(r, shape, dtype, 10 * salt + rank + 1) for r in range(size)]
                expected = reduce_reference(mine, op, 3.0)
                output = torch.empty(shape, dtype=dtype)
                dist.reduce_scatter_tensor(output, put(blocks[rank]), reduce_op(op, 3.0))
                assert_same(output, expected, f"reduce_scatter_tensor {what}")
                output = torch.empty(shape, dtype=dtype)
                separate = (
                    [put(b) for b in blocks[rank].chunk(size)] if shape[0] else [output.clone()] * size
                )
                dist.reduce_scatter(output, separate, reduce_op(op, 3.0))
                assert_same(output, expected, f"reduce_scatter {what}")


def movements(rank, size):
    for dtype in FLOATS + INTEGERS + UNSIGNED + MOVED:
        for salt, shape in enumerate(SIZES):
            what = f"{dtype} {shape}"
            parts = [data(r, shape, dtype, salt) for r in range(size)]
            mine = put(parts[rank])
            for root in range(size):
                tensor = mine.clone()
                dist.broadcast(tensor, root)
                assert_same(tensor, parts[root], f"broadcast {what}")

            outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)]
            dist.all_gather(outputs, mine)
            for output, part in zip(outputs, parts):
                assert_same(output, part, f"all_gather {what}")
            whole = torch.empty((size * shape[0], *shape[1:]), dtype=dtype)
            work = dist.all_gather_into_tensor(whole, mine, async_op=True)
            work.wait()
            assert_same(
                whole,
                torch.cat([bits_view(p) for p in parts]).view(dtype).view(whole.shape),
                f"all_gather_into_tensor {what}",
            )
            views = list(whole.zero_().chunk(size)) if shape[0] else outputs
            dist.all_gather(views, mine)
            for view, part in zip(views, parts):
                assert_same(view, part, f"all_gather into views {what}")

            for root in (0, size - 1):
                outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)] if rank == root else None
                dist.gather(mine, outputs, dst=root)
                if rank == root:
                    for output, part in zip(outputs, parts):
                        assert_same(output, part, f"gather {what}")
                inputs = [put(data(r, shape, dtype, 100 + salt)) for r in range(size)] if rank == root else None
                output = torch.empty(shape, dtype=dtype)
                dist.scatter(output, inputs, src=root)
                assert_same(output, data(rank, shape, dtype, 100 + salt), f"scatter {what}")

            inputs = [put(data(rank * size + peer, shape, dtype, 200 + salt)) for peer in range(size)]
            outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)]
            dist.all_to_all(outputs, inputs)
            expected = [data(peer * size + rank, shape, dtype, 200 + salt) for peer in range(size)]
            for output, part in zip(outputs, expected):
                assert_same(output, part, f"all_to_all {what}")
            flat_in = torch.cat([bits_view(t) for t in inputs]).view(dtype)
            flat_out = torch.empty_like(flat_in)
            dist.all_to_all_single(flat_out, flat_in)
            assert_same(
                flat_out, torch.cat([bits_view(t) for t in expected]).view(dtype), f"all_to_all_single {what}"
            )

            if rank == 0:
                dist.send(mine, 1)
                dist.recv(tensor := torch.empty(shape, dtype=dtype), 1)
                assert_same(tensor, parts[1], f"send, recv {what}")
            elif rank == 1:
                dist.recv(tensor := torch.empty(shape, dtype=dtype), 0)
                assert_same(tensor, parts[0], f"send, recv {what}")
                dist.send(mine, 0)


def bits_view(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


def uneven(rank, size):
    counts = [3 + 2 * r for r in range(size)]
    outputs = [torch.empty(c) for c in counts]
    dist.all_gather(outputs, torch.full((counts[rank],), float(rank)))
    for r, output in enumerate(outputs):
        assert torch.equal(output, torch.full((counts[r],), float(r)))

    send = [(rank + peer) % 3 for peer in range(size)]  # rows to each peer, some none
    receive = [(peer + rank) % 3 for peer in range(size)]
    rows = [torch.full((send[p], 5), 10.0 * rank + p) for p in range(size)]
    output = torch.empty(sum(receive), 5)
    dist.all_to_all_single(output, torch.cat(rows), receive, send)
    assert torch.equal(output, torch.cat([torch.full((receive[p], 5), 10.0 * p + rank) for p in range(size)]))
    work = dist.all_to_all([torch.empty(receive[p], 5) for p in range(size)], rows, async_op=True)
    work.wait()
    for p, tensor in enumerate(work.result()):
        assert torch.equal(tensor, torch.full((receive[p], 5), 10.0 * p + rank))


def layouts(rank, size):
    """Inputs of lists may be strided; in place, channels_last counts as contiguous, other strides are an
    error."""
    base = torch.arange(12.0).view(3, 4) + 100 * rank
    outputs = [torch.empty(4, 3).t() for _ in range(size)]
    dist.all_gather(outputs, base)
    for r, output in enumerate(outputs):
        assert torch.equal(output, torch.arange(12.0).view(3, 4) + 100 * r)
    image = torch.full((2, 3, 4, 5), float(rank)).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    assert torch.equal(image, torch.full((2, 3, 4, 5), float(sum(range(size)))))
    with pytest.raises(ValueError, match="not contiguous.*contiguous()"):
        dist.all_reduce(base.t())
    dist.barrier()


def unseen_by_autograd(rank, size):
    """Results go into parameters and into tensors made in inference mode, on whichever thread and however many ranks."""
    alone = [dist.new_group([r]) for r in range(size)][rank]
    for group, ranks in ((dist.group.WORLD, list(range(size))), (alone, [rank])):
        expected = [torch.full((3,), float(r)) for r in ranks]
        own = torch.full((3,), float(rank))
        for asynchronous in (False, True):

            def wait(work):
                if asynchronous:
                    work.wait()

            parameters = [torch.nn.Parameter(torch.empty(3)) for _ in ranks]
            wait(dist.all_gather(parameters, own, group, asynchronous))
            assert all(map(torch.equal, parameters, expected)) and parameters[0].requires_grad
            whole = torch.nn.Parameter(torch.empty(3 * len(ranks)))
            wait(dist.all_gather_into_tensor(whole, own, group, asynchronous))
            assert torch.equal(whole, torch.cat(expected))
            with torch.inference_mode():
                outputs = [torch.empty(3) for _ in ranks]
                wait(dist.all_gather(outputs, own, group, asynchronous))
            assert all(map(torch.equal, outputs, expected))


def coalesced(rank, size):
    group = dist.distributed_c10d._get_default_group()
    tensors = [torch.full((n,), float(rank + n)) for n in (1, 10, 5000)]
    with dist._coalescing_manager(group, device=torch.get_default_device()):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for n, tensor in zip((1, 10, 5000), tensors):
        assert torch.equal(tensor, torch.full((n,), float(sum(r + n for r in range(size)))))
    dist.all_reduce_coalesced(tensors)
    outputs = [torch.empty(size * n) for n in (1, 10, 5000)]
    inputs = [torch.full((n,), float(rank + n)) for n in (1, 10, 5000)]
    with dist._coalescing_manager(group, device=torch.get_default_device(), async_ops=True) as manager:
        for output, tensor in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    for n, output in zip((1, 10, 5000), outputs):
        assert torch.equal(
            output.view(size, n), torch.stack([torch.full((n,), float(r + n)) for r in range(size)])
        )
    results = [torch.empty(n) for n in (1, 10, 5000)]
    with dist._coalescing_manager(group, device=torch.get_default_device()):
        for result, output in zip(results, outputs):
            dist.reduce_scatter_tensor(result, output)
    for n, result in zip((1, 10, 5000), results):
        assert torch.equal(result, torch.full((n,), float(size * (rank + n))))
    lists = [[torch.empty(3), torch.empty(2, 2)] for _ in range(size)]
    group.allgather_coalesced(lists, [torch.full((3,), float(rank)), torch.full((2, 2), float(rank))]).wait()
    for r, (a, b) in enumerate(lists):
        assert torch.equal(a, torch.full((3,), float(r))) and torch.equal(b, torch.full((2, 2), float(r)))


def synchronous_in_a_batch(rank, size):
    """Calls with async_op=False are made when the batch ends."""
    device = torch.get_default_device()
    first, second = torch.full((10,), float(rank)), torch.full((5000,), float(rank))
    with dist._coalescing_manager(device=device):
        dist.broadcast(first, src=0)
        dist.broadcast(second, src=1)
    assert torch.equal(first, torch.zeros(10)) and torch.equal(second, torch.ones(5000))
    outputs = torch.empty(size)
    with dist._coalescing_manager(device=device):
        dist.all_to_all_single(outputs, torch.full((size,), float(rank)))
    assert torch.equal(outputs, torch.arange(float(size)))


def a_batch_with_a_mistake(rank, size):
    """It raises, makes none of its calls, and disturbs no later ones."""
    following, preceding = (rank + 1) % size, (rank - 1) % size
    incoming = torch.zeros(10)
    outgoing = torch.full((10,), float(rank))
    right = dist.P2POp(dist.irecv, incoming, preceding), dist.P2POp(dist.isend, outgoing, following)
    for wrong in (
        dist.P2POp(dist.irecv, torch.ones(4, 4)[:, ::2], preceding),
        dist.P2POp(dist.irecv, torch.ones(4), rank),
    ):
        for operations in ([wrong, *right], [*right, wrong]):
            with pytest.raises(ValueError, match="not contiguous|cannot receive from itself"):
                dist.batch_isend_irecv(operations)
    assert torch.equal(incoming, torch.zeros(10))
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((10,), float(size)))
    for work in dist.batch_isend_irecv(list(right)):
        work.wait()
    assert torch.equal(incoming, torch.full((10,), float(preceding)))


def booleans_and_complex(rank, size):
    flags = [data(r, (1000,), torch.bool) for r in range(size)]
    for op, combine in (("SUM", torch.any), ("MAX", torch.any), ("PRODUCT", torch.all), ("MIN", torch.all)):
        tensor = put(flags[rank])
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        assert_same(tensor, combine(torch.stack(flags), dim=0), op)
    parts = [data(r, (1000,), torch.complex64) for r in range(size)]
    tensor = put(parts[rank])
    dist.all_reduce(tensor)
    expected = parts[0].clone()
    for part in parts[1:]:
        expected += part
    assert_same(tensor, expected, "all_reduce")
    output = torch.empty(500, dtype=torch.complex64)
    if size == 2:
        dist.reduce_scatter_tensor(output, put(parts[rank]))
        assert_same(output, expected.chunk(2)[rank], "reduce_scatter")


def rest(rank, size):
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu"))
    assert backend.name() == "onehop" and backend.supports_splitting and backend.supports_coalescing
    assert backend.options.backend == "onehop"
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 1
    group.monitored_barrier()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank * 1000)})
    assert objects == [{"rank": r, "text": "x" * (r * 1000)} for r in range(size)]
    box = [("hello", [1, 2, 3])] if rank == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    assert box == [("hello", [1, 2, 3])]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object(rank**2, gathered, dst=1)
    assert rank != 1 or gathered == [r**2 for r in range(size)]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]
    with pytest.raises((ValueError, RuntimeError), match="source"):
        dist.recv(torch.empty(1))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("body", [reductions, movements], ids=lambda b: b.__name__)
def test_every_type(ranks, size, body):
    ranks(size, body)


@pytest.mark.parametrize(
    "body",
    [
        uneven,
        layouts,
        unseen_by_autograd,
        coalesced,
        synchronous_in_a_batch,
        a_batch_with_a_mistake,
        booleans_and_complex,
        rest,
    ],
    ids=lambda b: b.__name__,
)
@pytest.mark.parametrize("size", [2, 4])
def test_method(ranks, size, body):
    ranks(size, body)
