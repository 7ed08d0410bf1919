# SPDX-License-Identifier: Apache-2.0
"""SGLang's custom all-reduce, on onehop."""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from sglang.srt.environ import envs
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from torch.distributed import ProcessGroup

from . import _joined

log = logging.getLogger("sglang.onehop")

_DISTRIBUTED = "sglang.srt.distributed"

# Whether SGLang's own custom all-reduce was switched off, and only onehop's is to be made.
_only_onehop = False


def register() -> None:
    """Registers the hooks, which SGLang then applies."""
    HookRegistry.register(f"{_DISTRIBUTED}.device_communicators.custom_all_reduce.dispatch_custom_allreduce", _dispatch,
                          HookType.AROUND)
    HookRegistry.register(f"{_DISTRIBUTED}.parallel_state.set_custom_all_reduce", _set_custom_all_reduce, HookType.AROUND)


def _set_custom_all_reduce(original: Callable[[bool], None], enable: bool) -> None:
    """With --enable-deterministic-inference SGLang switches custom all-reduces off, since theirs depend on the size.
    onehop's does not."""
    global _only_onehop
    _only_onehop = not enable and envs.SGLANG_ENABLE_DETERMINISTIC_INFERENCE.get()
    original(enable or _only_onehop)


def _dispatch(original: Callable[..., Any], group: ProcessGroup, device: torch.device) -> Callable[..., Any]:
    """What SGLang calls with group= and device= to make a custom all-reduce."""
    joined = _joined.join(group, torch.device(device), f"sglang-{group.group_name}", log)
    if joined is not None:
        return functools.partial(AllReduce, joined)
    if _only_onehop:
        raise RuntimeError("with --enable-deterministic-inference only onehop's is possible; NCCL is used")
    return original(group=group, device=device)


class AllReduce:
    """The interface of SGLang's CustomAllreduce, on a onehop group."""

    def __init__(self, joined: _joined.Joined, group: ProcessGroup, device: torch.device) -> None:
        self._joined = joined
        self.group = group
        self.device = device
        self.disabled = False

    def should_custom_ar(self, inp: torch.Tensor) -> bool:
        return not self.disabled and self._joined.reduces(inp)

    def custom_all_reduce(self, input: torch.Tensor) -> torch.Tensor | None:
        return self._joined.all_reduce(input) if self.should_custom_ar(input) else None

    def capture(self) -> AbstractContextManager[None]:
        """Nothing is registered, so that a graph needs nothing before or after it."""
        return nullcontext()

    def close(self) -> None:
        self.disabled = True
        self._joined.leave()
