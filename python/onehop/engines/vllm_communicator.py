# SPDX-License-Identifier: Apache-2.0
"""The device communicator that vLLM makes for each of its groups."""
from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch.distributed import ProcessGroup
from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator

import onehop

from . import _joined

log = logging.getLogger("vllm.onehop")

# The others, pipeline stages and the balancing of experts, do not communicate through this class.
CARRIED = frozenset({"tp", "etp", "edp", "dcp", "pcp", "dp", "ep"})


class Communicator(CudaCommunicator):
    """CudaCommunicator on a onehop group, where one can be formed.

    What onehop does not carry goes to CudaCommunicator: groups of several machines and of more than 8 GPUs, reductions of
    types that onehop lacks, and the dispatch of tokens to experts other than by all-gather and reduce-scatter. All ranks
    make the same decision, by what they have in common.
    """

    def __init__(
        self,
        cpu_group: ProcessGroup,
        device: torch.device | None = None,
        device_group: ProcessGroup | None = None,
        unique_name: str = "",
        global_ranks: list[int] | None = None,
        global_world_size: int | None = None,
        tcp_store_group=None,
        use_all2all: bool = False,
    ) -> None:
        kind = unique_name.split(":")[0]
        self._joined: _joined.Joined | None = None
        if kind in CARRIED and device is not None and tcp_store_group is None and global_ranks is None:
            self._joined = _joined.join(cpu_group, device, unique_name, log)
        # Only a group "tp" gets vLLM's own all-reduces, which would register memory that nobody uses.
        inner_name = f"onehop-{unique_name}" if self._joined is not None and kind == "tp" else unique_name
        super().__init__(cpu_group, device, device_group, inner_name, global_ranks, global_world_size, tcp_store_group,
                         use_all2all)
        self.unique_name = unique_name

    def _log_all_reduce_backend_selection(self) -> None:
        # It would name NCCL, which is only there for what onehop lacks.
        if self._joined is None:
            super()._log_all_reduce_backend_selection()

    def _moves(self, *tensors: torch.Tensor) -> bool:
        return self._joined is not None and all(self._joined.moves(x) for x in tensors)

    def _reduces(self, x: torch.Tensor) -> bool:
        return self._joined is not None and self._joined.reduces(x)

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        if not self._reduces(input_):
            return super().all_reduce(input_)
        return self._joined.all_reduce(input_)

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        if not self._moves(input_):
            return super().all_gather(input_, dim)
        return _along(dim, self._gather_rows(input_), input_, self.world_size)

    def custom_all_gather(self, input_: torch.Tensor) -> torch.Tensor | None:
        # Called in the model's own code: None lets it call the operator of all_gather, which Dynamo can trace.
        if torch.compiler.is_compiling() or not self._moves(input_):
            return None
        return self._gather_rows(input_)

    def all_gatherv(
        self,
        input_: torch.Tensor | list[torch.Tensor],
        dim: int = 0,
        sizes: list[int] | None = None,
    ) -> torch.Tensor | list[torch.Tensor]:
        tensors = [input_] if isinstance(input_, torch.Tensor) else input_
        if dim != 0 or not self._moves(*tensors):
            return super().all_gatherv(input_, dim, sizes)
        with onehop.group_call():
            outputs = [self._gather_rows(x, sizes) for x in tensors]
        return outputs[0] if isinstance(input_, torch.Tensor) else outputs

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        if not self._reduces(input_):
            return super().reduce_scatter(input_, dim)
        return self._scatter_rows(input_, dim)

    def custom_reduce_scatter(self, input_: torch.Tensor) -> torch.Tensor | None:
        if torch.compiler.is_compiling() or not self._reduces(input_) or input_.shape[0] % self.world_size != 0:
            return None
        return self._scatter_rows(input_, 0)

    def reduce_scatterv(self, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None) -> torch.Tensor:
        if not self._reduces(input_):
            return super().reduce_scatterv(input_, dim, sizes)
        return self._scatter_rows(input_, dim, sizes)

    def reduce_scatterv_into_output(
        self,
        input_: torch.Tensor,
        output: torch.Tensor,
        dim: int = -1,
        sizes: list[int] | None = None,
    ) -> torch.Tensor:
        if not self._reduces(input_):
            return super().reduce_scatterv_into_output(input_, output, dim, sizes)
        return self._scatter_rows(input_, dim, sizes, output)

    def gather(self, input_: torch.Tensor, dst: int = 0, dim: int = -1) -> torch.Tensor | None:
        if not self._moves(input_):
            return super().gather(input_, dst, dim)
        x = input_.contiguous()
        if self.rank_in_group != dst:
            if x.numel() != 0:
                self._joined.group.gather(_elements(x), root=dst)
            return None
        rows = x.new_empty((self.world_size * x.shape[0], *x.shape[1:]))
        if x.numel() != 0:
            self._joined.group.gather(_elements(x), _elements(rows), root=dst)
        return _along(dim, rows, x, self.world_size)

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        if not self._moves(tensor):
            return super().broadcast(tensor, src)
        if tensor.numel() != 0:
            dense = tensor.contiguous()
            self._joined.group.broadcast(_elements(dense), src)
            if dense is not tensor and self.rank_in_group != src:
                tensor.copy_(dense)
        return tensor

    def send(self, tensor: torch.Tensor, dst: int | None = None) -> None:
        if not self._moves(tensor):
            return super().send(tensor, dst)
        if dst is None:
            dst = (self.rank_in_group + 1) % self.world_size
        if tensor.numel() != 0:
            self._joined.group.send(_elements(tensor.contiguous()), dst)

    def recv(self, size: torch.Size, dtype: torch.dtype, src: int | None = None) -> torch.Tensor:
        if self._joined is None:
            return super().recv(size, dtype, src)
        if src is None:
            src = (self.rank_in_group - 1) % self.world_size
        tensor = torch.empty(size, dtype=dtype, device=self.device)
        if tensor.numel() != 0:
            self._joined.group.recv(_elements(tensor), src)
        return tensor

    def destroy(self) -> None:
        if self._joined is not None:
            self._joined.leave()
            self._joined = None
        super().destroy()

    def _gather_rows(self, x: torch.Tensor, sizes: Sequence[int] | None = None) -> torch.Tensor:
        """All ranks' rows, of which rank r has sizes[r]; by default all have as many."""
        group = self._joined.group
        x = x.contiguous()
        if sizes is None or all(size == sizes[0] for size in sizes):
            out = x.new_empty((x.shape[0] * self.world_size, *x.shape[1:]))
            if out.numel() != 0:
                group.all_gather(_elements(x), _elements(out))
            return out
        self._check_sizes(sizes, x.shape[0], sizes[self.rank_in_group])
        out = x.new_empty((sum(sizes), *x.shape[1:]))
        parts = out.split(list(sizes))
        parts[self.rank_in_group].copy_(x)
        with onehop.group_call():
            for peer, part in enumerate(parts):
                if peer == self.rank_in_group:
                    continue
                if x.numel() != 0:
                    group.send(_elements(x), peer)
                if part.numel() != 0:
                    group.recv(_elements(part), peer)
        return out

    def _scatter_rows(self, x: torch.Tensor, dim: int, sizes: Sequence[int] | None = None,
                      output: torch.Tensor | None = None) -> torch.Tensor:
        """This rank's part, along `dim`, of the sum of all ranks' x; rank r gets sizes[r], by default all get as much."""
        group = self._joined.group
        dim %= x.dim()
        rows = x.movedim(dim, 0).contiguous()
        if sizes is None or all(size == sizes[0] for size in sizes):
            if rows.shape[0] % self.world_size != 0:
                raise ValueError(f"{rows.shape[0]} rows cannot be divided among {self.world_size} ranks")
            sizes, mine = None, rows.shape[0] // self.world_size
        else:
            self._check_sizes(sizes, rows.shape[0], sum(sizes))
            mine = sizes[self.rank_in_group]
        direct = output is not None and dim == 0 and output.is_contiguous()
        out = output if direct else rows.new_empty((mine, *rows.shape[1:]))
        if sizes is None:
            if rows.numel() != 0:
                group.reduce_scatter(rows, out)
        else:
            # One reduction for each rank: nothing is padded, and the sums have the bits of the other calls.
            with onehop.group_call():
                for root, part in enumerate(rows.split(list(sizes))):
                    if part.numel() != 0:
                        group.reduce(part, out if root == self.rank_in_group else None, root=root)
        result = out.movedim(0, dim).contiguous()
        return result if output is None or direct else output.copy_(result)

    def _check_sizes(self, sizes: Sequence[int], rows: int, expected: int) -> None:
        if len(sizes) != self.world_size or rows != expected:
            raise ValueError(f"{rows} rows do not fit sizes {list(sizes)} of rank {self.rank_in_group} of {self.world_size}")


def _elements(x: torch.Tensor) -> torch.Tensor:
    """Contiguous x, as bytes if onehop lacks its type."""
    return x if x.dtype in _joined.REDUCED_TYPES else x.reshape(-1).view(torch.uint8)


def _along(dim: int, rows: torch.Tensor, x: torch.Tensor, size: int) -> torch.Tensor:
    """Blocks of the first dimension of `rows`, each like x, joined along `dim` instead."""
    dim %= x.dim()
    if dim == 0:
        return rows
    shape = (*x.shape[:dim], size * x.shape[dim], *x.shape[dim + 1:])
    return rows.view(size, *x.shape).movedim(0, dim).reshape(shape)
