# SPDX-License-Identifier: Apache-2.0
"""Registers backend "onehop" with torch.distributed."""

import atexit
import functools
import importlib.machinery
import importlib.util
import sys
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType

import torch
import torch.distributed as dist

from . import _build


@dataclass(frozen=True)
class Options:
    """`pg_options` of backend "onehop": the settings of its groups, the same on all ranks.

    scratch_bytes: size of each rank's staging buffer; 0: the library's default.
    allow_overlapping_devices: let several ranks use one GPU, for tests.
    tuning: a file that `onehop tune` wrote; "": the library's own table.
    """

    scratch_bytes: int = 0
    allow_overlapping_devices: bool = False
    tuning: str = ""


@functools.cache
def native() -> ModuleType:
    """The adapter for the torch of this process; compiled now if the cache lacks it."""
    name = "onehop.torch._backend_native"
    path = str(_build.load_path(_build.BACKEND))
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_file_location(name, path, loader=loader)
    )
    loader.exec_module(module)
    sys.modules[name] = module
    # Before the interpreter goes: the backend's threads may be about to call Python.
    atexit.register(module.shutdown_at_exit)
    return module


def register() -> None:
    """Makes "onehop" known to torch.distributed. Idempotent."""
    if "ONEHOP" not in dist.Backend._plugins:
        # A list: torch 2.11 would take a string letter by letter.
        dist.Backend.register_backend("onehop", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(settings, pg_options: Options | None):
    """torch calls this on every rank of a new process group. Joins nothing yet: see Backend in
    csrc/backend.h."""
    options = pg_options if pg_options is not None else Options()
    if not isinstance(options, Options):
        raise TypeError(f"pg_options of backend onehop must be an onehop.torch.Options, not {options!r}")
    timeout = settings.timeout
    if not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    ranks = list(settings.global_ranks_in_group) or list(range(settings.group_size))
    return native().create(
        store=settings.store,
        rank=settings.group_rank,
        size=settings.group_size,
        timeout=timeout,
        group=settings.group_id,
        global_ranks=ranks,
        scratch_bytes=options.scratch_bytes,
        allow_overlapping_devices=options.allow_overlapping_devices,
        tuning=options.tuning,
    )


def backend_of(group: dist.ProcessGroup | None, device: torch.device | str):
    """The "onehop" backend of a process group for a device. TypeError if another one serves it."""
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device(device))
    if not isinstance(backend, native().OnehopBackend):
        raise TypeError(
            f"process group {group.group_name!r} uses backend {backend.name()!r} for {device}: "
            f'create it with backend="onehop"'
        )
    return backend
