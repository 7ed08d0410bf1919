# SPDX-License-Identifier: Apache-2.0
"""Tensor-parallel decoding of a transformer with random weights: each token is one replay of a CUDA graph that contains the
all-reduces. Without a GPU for each rank, the same on the CPU without a graph:

    onehop launch -n 2 -- python decode.py
"""
import onehop as oh
import onehop.torch
import torch
import torch.distributed as dist
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

LAYERS, WIDTH, HEADS, VOCABULARY = 4, 256, 8, 1000
BATCH, TOKENS = 4, 32  # sequences, and tokens to generate for each


class Layer:
    """Attention and MLP. A rank has its share of the heads and of the MLP's inner width."""

    def __init__(self, rank, size, device, all_reduce):
        full = [torch.randn(shape) * WIDTH**-0.5 for shape in ((3, WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))]
        mine = [weight.chunk(size, dim)[rank].to(device) for weight, dim in zip(full, (2, 0, 1, 0))]
        self.qkv, self.out, self.up, self.down = mine
        self.all_reduce = all_reduce
        self.keys, self.values = torch.zeros(2, BATCH, HEADS // size, TOKENS, WIDTH // HEADS, device=device)

    def __call__(self, x, position, visible):
        q, k, v = (rms_norm(x, (WIDTH,)) @ self.qkv).view(3, BATCH, -1, 1, WIDTH // HEADS)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        attended = scaled_dot_product_attention(q, self.keys, self.values, attn_mask=visible)
        x = x + self.all_reduce(attended.view(BATCH, -1) @ self.out)
        return x + self.all_reduce(silu(rms_norm(x, (WIDTH,)) @ self.up) @ self.down)


class Model:
    def __init__(self, rank, size, device, all_reduce):
        torch.manual_seed(0)
        self.embedding = torch.randn(VOCABULARY, WIDTH).to(device)
        self.output = torch.randn(WIDTH, VOCABULARY).to(device)
        self.layers = [Layer(rank, size, device, all_reduce) for _ in range(LAYERS)]
        self.positions = torch.arange(TOKENS, device=device)
        self.token = torch.zeros(BATCH, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.logits = torch.zeros(BATCH, VOCABULARY, device=device)

    def start(self):
        self.token.copy_(torch.arange(BATCH))  # a different first token for each sequence
        self.position.zero_()

    def step(self):
        """From one token of each sequence to the next. All state is in tensors, so that a graph can replay it."""
        x = self.embedding[self.token]
        for layer in self.layers:
            x = layer(x, self.position, (self.positions <= self.position)[None])
        self.logits.copy_(rms_norm(x, (WIDTH,)) @ self.output)
        self.token.copy_(self.logits.argmax(1))
        self.position += 1


def captured(model):
    """The step as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model.start()
        model.step()  # cuBLAS and the allocator prepare themselves before the capture
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        model.step()
    return graph


def generate(model, step):
    model.start()
    tokens = []
    for _ in range(TOKENS):
        step()
        tokens.append(model.token.tolist())
    return tokens


job = oh.job()
on_gpus = torch.cuda.device_count() >= job.size
device = torch.device("cuda", job.local_rank) if on_gpus else torch.device("cpu")
if on_gpus:
    torch.cuda.set_device(device)
dist.init_process_group("onehop", device_id=device if on_gpus else None)
rank, size = dist.get_rank(), dist.get_world_size()
if size == 1 or HEADS % size:
    raise SystemExit(f"decode.py: {size} ranks cannot share {HEADS} heads; run it with 2, 4 or 8")
group = onehop.torch.register_group(device=device)

model = Model(rank, size, device, lambda x: torch.ops.onehop.all_reduce(x, group))
graph = captured(model) if on_gpus else None
tokens = generate(model, graph.replay if on_gpus else model.step)

# Sums have the same bits on all ranks, so all ranks choose the same tokens without asking each other.
everyone = [None] * size
dist.all_gather_object(everyone, tokens)
assert all(each == tokens for each in everyone)

# The first step of a model that one rank has alone.
alone = Model(0, 1, device, lambda x: x)
for each in (model, alone):
    each.start()
    each.step()
torch.testing.assert_close(model.logits, alone.logits, rtol=1e-3, atol=1e-3)
print(f"rank {rank} on {device}: {BATCH} x {TOKENS} tokens, the first sequence begins {[t[0] for t in tokens[:4]]}")

del graph
onehop.torch.unregister_group(group)
dist.destroy_process_group()
