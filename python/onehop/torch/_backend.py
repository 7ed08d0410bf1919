# SPDX-License-Identifier: Apache-2.0
"""Registers backend "onehop" with torch.distributed."""

import atexit
import functools
import importlib.machinery
import importlib.util
import logging
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Literal

import torch
import torch.distributed as dist

from . import _build, _fallback

_log = logging.getLogger("onehop")


@dataclass(frozen=True)
class Options:
    """`pg_options` of backend "onehop": the settings of its groups, the same on all ranks.

    scratch_bytes: size of each rank's staging buffer; 0: the library's default.
    allow_overlapping_devices: let several ranks use one GPU, for tests.
    tuning: a file that `onehop tune` wrote; "": the library's own table.
    fallback: the engine of CUDA tensors where onehop cannot carry the process group, because its ranks are on
        several machines or have more than 8 GPUs: "nccl" or "gloo"; CPU tensors use gloo. "none": an error.
        "": what the environment variable ONEHOP_FALLBACK says, else "nccl".
    """

    scratch_bytes: int = 0
    allow_overlapping_devices: bool = False
    tuning: str = ""
    fallback: _fallback.Engine | Literal[""] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.scratch_bytes, int) or not 0 <= self.scratch_bytes < 1 << 63:
            raise ValueError(
                f"onehop: option scratch_bytes={self.scratch_bytes!r} must be a number of bytes, "
                f"or 0 for the library's default"
            )
        if "\0" in self.tuning:
            raise ValueError(f"onehop: option tuning={self.tuning!r} contains a NUL byte, which no path can")


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
    atexit.register(_shut_down_at_exit, module)
    return module


def _shut_down_at_exit(module: ModuleType) -> None:
    failures = module.shutdown_at_exit()
    for failure in failures:
        _log.critical("%s: this process ends with exit code 1, because no call has reported it", failure)
    if failures:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # the only way for a function of atexit to change the exit code


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
    fallback, origin = _fallback.setting(options.fallback)
    grace = _failure_grace_ms()
    backend = native().create(
        store=settings.store,
        rank=settings.group_rank,
        size=settings.group_size,
        timeout=timeout,
        group=settings.group_id,
        global_ranks=ranks,
        scratch_bytes=options.scratch_bytes,
        allow_overlapping_devices=options.allow_overlapping_devices,
        tuning=options.tuning,
        fallback=fallback,
        failure_grace_ms=grace,
    )
    # After the creation, which told the other ranks: they report the difference instead of waiting.
    if fallback not in _fallback.SETTINGS:
        raise ValueError(f"onehop: {origin}={fallback!r} must be nccl, gloo or none")
    return backend


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


def _failure_grace_ms() -> int:
    """How long after a failure on a GPU that no call has reported the process ends; negative: never."""
    # Warnings, not errors: the other ranks would wait for a rank that raises here.
    mode = os.environ.get("ONEHOP_TORCH_ON_FAILURE") or "abort"
    if mode not in ("raise", "abort"):
        _log.warning("ONEHOP_TORCH_ON_FAILURE=%r must be raise or abort; it counts as abort", mode)
    text = os.environ.get("ONEHOP_TORCH_FAILURE_GRACE") or "5"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= 86400.0:
        _log.warning("ONEHOP_TORCH_FAILURE_GRACE=%r must be seconds, 0 to 86400; it counts as 5", text)
        seconds = 5.0
    return -1 if mode == "raise" else int(seconds * 1000)


def check(group: dist.ProcessGroup | None = None) -> None:
    """Raises DistBackendError if a process group has failed: a rank died, or did not come in time, or made another call.

    For loops that replay CUDA graphs and programs that wait for streams, neither of which raises: call it after
    `torch.cuda.synchronize()`, before using the results. `group` defaults to all groups of backend "onehop". Never waits
    for a rank or the GPU. TypeError if the group was not created with backend "onehop".
    """
    if group is None:
        native().check_all()
        return
    backends = [group._get_backend(device) for device in group._device_types]
    ours = [each for each in backends if isinstance(each, native().OnehopBackend)]
    if not ours:
        raise TypeError(f'process group {group.group_name!r} was not created with backend="onehop"')
    for backend in ours:
        backend.check()


def engine(group: dist.ProcessGroup | None = None, device: torch.device | str | None = None) -> str:
    """The engine that carries a process group's tensors on `device`: "onehop", or "nccl" or "gloo" where
    onehop cannot (see `Options.fallback`).

    `group` defaults to the default process group, `device` to the current CUDA device if there is one, else
    the CPU. Waits until all ranks have created the group, at most for its timeout. TypeError if the process
    group was not created with backend "onehop".
    """
    if device is None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    return backend_of(group, device).engine(torch.device(device))
