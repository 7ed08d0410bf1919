# SPDX-License-Identifier: Apache-2.0
"""A transformer with random weights, divided among the ranks as inference engines divide it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from ._engines import Engine


# Without cuDNN's, which gives other bits from run to run.
_REPRODUCIBLE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Shape:
    """Of the whole model. `inner`: width of the MLP; `context`: tokens that attention reads for each sequence."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    context: int

    def weights(self, ranks: int) -> int:
        """Number of weights of one rank."""
        head = self.hidden // self.heads
        layer = (2 * self.heads + 2 * self.kv_heads) * head + 3 * self.inner
        return self.hidden * ((layer * self.layers + self.vocabulary) // ranks + self.vocabulary)

    def cache(self, ranks: int, batch: int) -> int:
        """Number of keys and values of one rank."""
        return 2 * self.layers * batch * self.kv_heads // ranks * self.context * (self.hidden // self.heads)


class Decoder:
    """One rank's part: its heads, its part of the MLP, its part of the logits. All ranks have the embedding.

    Every step reads the same tokens and computes the logits of the next ones from a full cache of `shape.context`
    tokens. Sampling is not part of it.
    """

    def __init__(self, shape: Shape, rank: int, ranks: int, batch: int, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        self.head = shape.hidden // shape.heads
        self.heads, self.kv_heads = shape.heads // ranks, shape.kv_heads // ranks
        mine = torch.Generator(device).manual_seed(1 + rank)
        everyones = torch.Generator(device).manual_seed(0)

        def random(*extents: int, deviation: float, generator: torch.Generator = mine) -> torch.Tensor:
            return torch.empty(extents, device=device, dtype=dtype).normal_(0, deviation, generator=generator)

        def matrix(rows: int, columns: int, inputs: int) -> torch.Tensor:
            return random(rows, columns, deviation=inputs**-0.5)

        hidden, inner = shape.hidden, shape.inner
        self.layers = [(matrix(hidden, (self.heads + 2 * self.kv_heads) * self.head, hidden),
                        matrix(self.heads * self.head, hidden, shape.heads * self.head),
                        matrix(hidden, 2 * inner // ranks, hidden),
                        matrix(inner // ranks, hidden, inner),
                        random(batch, self.kv_heads, shape.context, self.head, deviation=1),
                        random(batch, self.kv_heads, shape.context, self.head, deviation=1)) for _ in range(shape.layers)]
        self.embedding = random(shape.vocabulary, hidden, deviation=1, generator=everyones)
        self.output = matrix(hidden, shape.vocabulary // ranks, hidden)
        self.tokens = torch.randint(shape.vocabulary, (batch,), device=device, generator=everyones)

    @sdpa_kernel(_REPRODUCIBLE)
    def step(self, engine: Engine, batch: int, rows: int | None = None) -> torch.Tensor:
        """This rank's part of the logits of the first `batch` sequences, (batch, vocabulary / ranks).

        rows: computes with matrices of this many rows, the first `batch` of which the engine sums.
        """
        rows = rows or batch
        hidden = self.shape.hidden
        x = self.embedding[self.tokens[:rows]]
        for qkv, out, gate_up, down, keys, values in self.layers:
            projected = (rms_norm(x, (hidden,)) @ qkv).view(rows, -1, 1, self.head)
            query, key, value = projected.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
            keys[:rows, :, -1:] = key
            values[:rows, :, -1:] = value
            attended = scaled_dot_product_attention(query, keys[:rows], values[:rows], enable_gqa=True)
            x = x + engine.project(attended.reshape(rows, -1), out, batch)
            gate, up = (rms_norm(x, (hidden,)) @ gate_up).chunk(2, dim=1)
            x = x + engine.project(silu(gate) * up, down, batch)
        return (rms_norm(x, (hidden,)) @ self.output)[:batch]
