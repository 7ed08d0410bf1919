# SPDX-License-Identifier: Apache-2.0
"""What the plug-ins share: forming a group over an engine's own process group, watching it, reducing on it."""
from __future__ import annotations

import logging
import os
from typing import Any

import torch
import torch.distributed as dist

import onehop

from .._arrays import LONG_NAMES

# Ranks compile kernels and load weights for minutes between two calls. As long as NCCL's in torch.
DEFAULT_TIMEOUT = 600.0
MAX_GPUS = 8

# What onehop can reduce. Anything can be moved.
REDUCED_TYPES = frozenset(getattr(torch, name) for name in LONG_NAMES.values() if hasattr(torch, name))


class Joined:
    """A onehop group that carries a process group of an engine.

    The library watches the group: replays of CUDA graphs make no calls that could raise, and after a failure they compute
    nonsense. The process ends if the group has failed and the engine has not reacted.
    """

    GRACE = 5.0  # seconds that the engine has to react

    def __init__(self, group: onehop.Group, device: torch.device) -> None:
        self.group = group
        self._device_type = device.type
        group.watch(self.GRACE)

    def moves(self, x: torch.Tensor) -> bool:
        """Whether x is where the group works. The same on all ranks."""
        return x.device.type == self._device_type

    def reduces(self, x: torch.Tensor) -> bool:
        """Whether the group can reduce x. The same on all ranks."""
        return x.dtype in REDUCED_TYPES and self.moves(x)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' x, a new tensor with the strides of torch.empty_like(x)."""
        out = torch.empty_like(x)
        if x.numel() == 0:
            return out
        if x.is_contiguous():
            self.group.all_reduce(x, out)
            return out
        dense = x.contiguous()
        self.group.all_reduce(dense)
        return out.copy_(dense)

    def leave(self) -> None:
        """Leaves the group. May be repeated."""
        self.group.leave()

    def __del__(self) -> None:
        self.leave()


def join(cpu_group: dist.ProcessGroup, device: torch.device, name: str, log: logging.Logger) -> Joined | None:
    """Forms a onehop group of the ranks of `cpu_group`, a process group of torch.distributed for CPU tensors. Collective.

    All ranks get a group, or all get None and the first one logs why.
    """
    size = dist.get_world_size(cpu_group)
    if size == 1:
        return None
    if device.type == "cuda" and size > MAX_GPUS:
        reason = f"it has {size} ranks; onehop carries groups of at most {MAX_GPUS} GPUs of one machine"
        return _declined(cpu_group, name, log, reason)
    # Before joining, since the others would wait for a rank that cannot.
    group, failure = None, None
    try:
        timeout = _timeout()
    except ValueError as error:
        failure = str(error)
    if reason := _first(cpu_group, failure):
        return _declined(cpu_group, name, log, reason)
    try:
        group = onehop.Group.from_torch(cpu_group, device=_device_of(device), name=name, timeout=timeout)
    except Exception as error:  # whatever it is, the other ranks are told
        failure = f"{type(error).__name__}: {error}"
    if reason := _first(cpu_group, failure):
        if group is not None:
            group.leave()
        return _declined(cpu_group, name, log, reason)
    assert group is not None
    if group.rank == 0:
        kind = "host ranks" if group.device < 0 else "GPUs"
        log.info("onehop %s carries group %r: %d %s, memory shared by %s, timeout %g s", onehop.__version__, name, size,
                 kind, group.share_by, group.timeout)
    return Joined(group, device)


def _declined(cpu_group: dist.ProcessGroup, name: str, log: logging.Logger, reason: str) -> None:
    if dist.get_rank(cpu_group) == 0:
        log.warning("onehop does not carry group %r, the engine's own communicators do: %s", name, reason)


def _device_of(device: torch.device) -> Any:
    if device.type == "cuda" and device.index is None:
        return torch.cuda.current_device()
    return str(device)


def _timeout() -> float:
    text = os.environ.get("ONEHOP_ENGINE_TIMEOUT", "")
    try:
        seconds = float(text) if text else DEFAULT_TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= 86400.0:
        raise ValueError(f"ONEHOP_ENGINE_TIMEOUT={text!r} makes no sense; set it to seconds, more than 0 and at most 86400")
    return seconds


def _first(cpu_group: dist.ProcessGroup, failure: str | None) -> str | None:
    """The failure of the first rank that has one. The same on all ranks."""
    # By broadcasts, since gloo's all_gather_object fails in inference mode.
    failures = []
    for root in dist.get_process_group_ranks(cpu_group):
        box = [failure]
        dist.broadcast_object_list(box, src=root, group=cpu_group, device=torch.device("cpu"))
        failures.append(box[0])
    return next((f"rank {rank}: {each}" for rank, each in enumerate(failures) if each), None)
