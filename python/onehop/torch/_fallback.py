# SPDX-License-Identifier: Apache-2.0
"""The engines of process groups that onehop cannot carry: NCCL and Gloo, as torch has them."""

import logging
import os
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

import torch.distributed as dist

Engine: TypeAlias = Literal["nccl", "gloo", "none"]
SETTINGS = get_args(Engine)

_log = logging.getLogger("onehop")


def setting(option: str) -> tuple[str, str]:
    """What a process group's fallback is, and where that was said. The option comes before the variable."""
    if option:
        return option, "option fallback"
    variable = os.environ.get("ONEHOP_FALLBACK")
    return (variable, "environment variable ONEHOP_FALLBACK") if variable else ("nccl", "default")


def make(
    engine: str,
    device: str,
    reason: str,
    store: dist.Store,
    rank: int,
    size: int,
    timeout: timedelta,
    group: str,
    global_ranks: list[int],
) -> dist.Backend:
    """A backend of torch for tensors on `device`, with what torch's own `new_group` would pass. Called by the
    adapter on all ranks, at their first call. Connects to no rank yet."""
    if rank == 0:
        _log.info("process group %r uses %s for tensors on %s: %s", group, engine, device, reason)
    if engine == "gloo":
        if not dist.is_gloo_available():
            raise RuntimeError("this torch is built without Gloo; set ONEHOP_FALLBACK=none to do without")
        return _gloo(store, rank, size, timeout, group, global_ranks)
    if not dist.is_nccl_available():
        raise RuntimeError("this torch is built without NCCL; set ONEHOP_FALLBACK=gloo on all ranks")
    return _nccl(store, rank, size, timeout, group, global_ranks)


def _gloo(store, rank, size, timeout, group, global_ranks):
    # Connections are made when they are first needed: otherwise the first message between two ranks would
    # wait for the first call of all others.
    kind = dist.ProcessGroupGloo
    interfaces = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    options = kind._Options()
    options._timeout = timeout
    options._devices = [kind.create_device(interface=name, lazy_init=True) for name in interfaces] or [
        kind.create_default_device(lazy_init=True)
    ]
    options._threads = 2 * len(options._devices)
    options.global_ranks_in_group = global_ranks
    options.group_name = group
    return kind(store, rank, size, options)


def _nccl(store, rank, size, timeout, group, global_ranks):
    options = dist.ProcessGroupNCCL.Options()
    options.is_high_priority_stream = False
    options._timeout = timeout
    options.global_ranks_in_group = global_ranks
    options.group_name = group
    return dist.ProcessGroupNCCL(store, rank, size, options)
