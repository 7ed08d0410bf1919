# SPDX-License-Identifier: Apache-2.0
"""The all-reduces that `onehop.bench.decode` compares, each behind the same two functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import onehop.torch
from onehop import Group


@dataclass(frozen=True)
class Setting:
    """What an engine is made for. `rows` and `width`: the largest tensor that it sums."""

    control: Group  # of host ranks: barriers and objects, outside of what is measured
    device: torch.device
    dtype: torch.dtype
    rows: int
    width: int
    timeout: timedelta


class Engine:
    """Sums over the ranks. `title` is its name in tables. Constructing one is collective."""

    name = ""
    title = ""

    @classmethod
    def obstacle(cls, device_type: str) -> str | None:
        """Why there is no such engine for this type of device, or None."""
        return None

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' `x`, which may be overwritten."""
        raise NotImplementedError

    def project(self, x: torch.Tensor, weight: torch.Tensor, batch: int) -> torch.Tensor:
        """The first `batch` rows of x @ weight, summed over the ranks, followed by the other rows, not summed."""
        partial = x @ weight
        if batch == len(partial):
            return self.all_reduce(partial)
        return torch.cat([self.all_reduce(partial[:batch].clone()), partial[batch:]])


class Reference(Engine):
    """Sums in float32 on the host, through the default process group. Slow; not measured."""

    name = "reference"

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        total = x.float().cpu()
        dist.all_reduce(total)
        return total.to(x)


_onehop_group: list[dist.ProcessGroup] = []


def _group_of_onehop(setting: Setting) -> dist.ProcessGroup:
    """One for both of onehop's engines."""
    if not _onehop_group:
        _onehop_group.append(dist.new_group(backend="onehop", timeout=setting.timeout))
    return _onehop_group[0]


class OnehopOperator(Engine):
    name = "onehop"
    title = "onehop op"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.group = onehop.torch.register_group(_group_of_onehop(setting), setting.device)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.onehop.all_reduce(x, self.group)


class ProcessGroup(Engine):
    """dist.all_reduce of a process group."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.group = self._new_group(setting)

    def _new_group(self, setting: Setting) -> dist.ProcessGroup:
        return dist.new_group(backend=self.name, timeout=setting.timeout)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x, group=self.group)
        return x


class OnehopProcessGroup(ProcessGroup):
    name = "onehop-dist"
    title = "onehop dist"

    def _new_group(self, setting: Setting) -> dist.ProcessGroup:
        return _group_of_onehop(setting)


class Nccl(ProcessGroup):
    name = "nccl"
    title = "NCCL"

    @classmethod
    def obstacle(cls, device_type: str) -> str | None:
        if device_type != "cuda":
            return "it sums on GPUs only"
        return None if dist.is_nccl_available() else f"torch {torch.__version__} was built without it"


class Gloo(ProcessGroup):
    name = "gloo"
    title = "gloo"

    @classmethod
    def obstacle(cls, device_type: str) -> str | None:
        return "it is measured on the CPU only" if device_type != "cpu" else None


class SymmetricMemory(Engine):
    """The matrix product is written to symmetric memory directly, which saves a copy."""

    @classmethod
    def obstacle(cls, device_type: str) -> str | None:
        if device_type != "cuda":
            return "it sums on GPUs only"
        operator = f"{cls.name.removeprefix('symm-').replace('-', '_')}_all_reduce"
        found = any(hasattr(torch.ops.symm_mem, name) for name in (operator, operator + "_"))
        return None if found else f"torch {torch.__version__} does not have it"

    def __init__(self, setting: Setting) -> None:
        import torch.distributed._symmetric_memory as symmetric_memory

        super().__init__(setting)
        self.group = dist.distributed_c10d._get_default_group().group_name
        self.buffer = symmetric_memory.empty(setting.rows * setting.width, dtype=setting.dtype, device=setting.device)
        self.handle: Any = symmetric_memory.rendezvous(self.buffer, self.group)

    def project(self, x: torch.Tensor, weight: torch.Tensor, batch: int) -> torch.Tensor:
        partial = self.buffer[:len(x) * weight.shape[1]].view(len(x), -1)
        torch.mm(x, weight, out=partial)
        if batch == len(partial):
            return self.all_reduce(partial)
        return torch.cat([self.all_reduce(partial[:batch]), partial[batch:]])


class OneShot(SymmetricMemory):
    name = "symm-one-shot"
    title = "symm_mem one-shot"

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.one_shot_all_reduce(x, "sum", self.group)


class TwoShot(SymmetricMemory):
    name = "symm-two-shot"
    title = "symm_mem two-shot"

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.two_shot_all_reduce_(x, "sum", self.group)


ENGINES: dict[str, type[Engine]] = {
    each.name: each for each in (OnehopOperator, OnehopProcessGroup, Nccl, Gloo, OneShot, TwoShot)
}
