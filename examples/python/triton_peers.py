# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel that reads all ranks' memory: out = relu(sum over ranks of x + bias), without a copy of any x. It needs
PyTorch, Triton and a GPU for each rank:

    onehop launch -n 2 -- python triton_peers.py
"""
import sys

import onehop as oh
import torch

job = oh.job()
if torch.cuda.device_count() < job.size:
    print(f"skipped: there are not {job.size} GPUs")
    sys.exit(0)

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

ROWS, COLUMNS, STEPS = 512, 1024, 3


@triton.jit
def sum_bias_relu(peers, bias, out, SIZE: tl.constexpr, COLUMNS: tl.constexpr):
    """One row per program. `peers` holds the address of each rank's x."""
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0) * COLUMNS + columns
    total = tl.load(bias + columns)
    for rank in range(SIZE):  # in the same order on all ranks, so that all get the same bits
        x = tl.load(peers + rank).to(tl.pointer_type(tl.float32))
        total += tl.load(x + at)
    tl.store(out + at, tl.maximum(total, 0.0))


torch.cuda.set_device(job.local_rank)
with oh.init(device="cuda", timeout=20) as g:  # what waits on the GPU ends after 20 s, and the group fails
    x = oh.symmetric_empty(g, (ROWS, COLUMNS), "f32", like="torch")
    buffer = oh.buffer_of(x).buffer
    peers = torch.tensor(buffer.device_view().peers, dtype=torch.int64, device="cuda")
    bias = torch.linspace(-1, 1, COLUMNS, device="cuda")
    out = torch.empty_like(x)
    others = [rank for rank in range(g.size) if rank != g.rank]
    for step in range(STEPS):
        x.copy_(torch.arange(ROWS, device="cuda")[:, None] % 7 - 3 + g.rank - step)
        for rank in others:
            buffer.put_signal(rank)  # on the current stream: my x is written
        for rank in others:
            buffer.wait_signal(rank)  # the stream waits, not the host
        sum_bias_relu[(ROWS,)](peers, bias, out, SIZE=g.size, COLUMNS=COLUMNS)
        buffer.barrier(1)  # all have read x, and it may be overwritten
        g.synchronize()  # raises if a wait failed

        rows = torch.arange(ROWS, device="cuda")[:, None] % 7 - 3 - step
        expected = (rows * g.size + g.size * (g.size - 1) / 2 + bias).relu()
        torch.testing.assert_close(out, expected)
    print(f"rank {g.rank} of {g.size}: {STEPS} steps over {g.size} ranks' memory are right")
    del x, buffer
