# SPDX-License-Identifier: Apache-2.0
"""torch.ops.onehop.*: schemas and fake kernels. The kernels (csrc/ops.cc) are loaded when a group is
registered.

| operator | result |
|---|---|
| `all_reduce(x, group, op="sum")` | the reduction of all ranks' `x` |
| `all_reduce_(x, group, op="sum")` | nothing; reduces in place |
| `all_reduce_out(x, group, op="sum", *, out)` | nothing; writes `out` |
| `all_reduce_add_rms_norm_(x, residual, weight, eps, group)` | nothing; see below |
| `all_gather(x, group)` | all ranks' `x`, along the first dimension |
| `reduce_scatter(x, group, op="sum")` | this rank's part, along the first dimension, of the reduction |
| `all_to_all_single(x, group)` | part r of the first dimension comes from rank r |

`group` is a name that `register_group` returned, `op` one of sum, prod, min, max, avg. The operators run on
the current stream and work in CUDA graphs and in torch.compile(fullgraph=True). They have no gradients.

`all_reduce_add_rms_norm_` is, on rows of float16, bfloat16 or float32 along the last dimension,

    total = all_reduce(x)
    residual = residual + total
    x = residual / sqrt(mean(residual**2) + eps) * weight

`weight` has one element for each of a row. All steps compute in float32. `total`, `residual` and `x` are each
rounded to the type of the tensors, once. It is the all-reduce and three operators of PyTorch, not one kernel.
"""

import ctypes
import functools
from typing import Any

import torch
import torch.distributed as dist

from . import _backend, _build

_library = torch.library.Library("onehop", "DEF")
_sizes: dict[str, int] = {}
_owners: dict[str, Any] = {}  # keeps each registered group alive


def _size(group: str) -> int:
    if group not in _sizes:
        raise RuntimeError(f"onehop: no group is registered as {group!r}: call onehop.torch.register_group")
    return _sizes[group]


def _refused(x, *arguments, **_):
    """What runs where no kernel does: until the first group is registered, and for tensors that have none."""
    _size(next(each for each in arguments if isinstance(each, str)))
    raise RuntimeError(
        f"onehop: x of layout {x.layout} on {x.device} is not supported: pass a dense tensor on the CPU or a GPU"
    )


def _nothing(*_, **__):
    return None


def _like_x(x, *_):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _gathered(x, group):
    return x.new_empty((x.shape[0] * _size(group), *x.shape[1:]))


def _scattered(x, group, op="sum"):
    size = _size(group)
    torch._check(
        x.shape[0] % size == 0, lambda: f"onehop: {x.shape[0]} rows are not divisible by {size} ranks"
    )
    return x.new_empty((x.shape[0] // size, *x.shape[1:]))


for _schema, _fake in {
    'all_reduce(Tensor x, str group, str op="sum") -> Tensor': _like_x,
    'all_reduce_(Tensor(a!) x, str group, str op="sum") -> ()': _nothing,
    'all_reduce_out(Tensor x, str group, str op="sum", *, Tensor(a!) out) -> ()': _nothing,
    "all_reduce_add_rms_norm_(Tensor(a!) x, Tensor(b!) residual, Tensor weight, float eps, str group) -> ()": _nothing,
    "all_gather(Tensor x, str group) -> Tensor": _gathered,
    'reduce_scatter(Tensor x, str group, str op="sum") -> Tensor': _scattered,
    "all_to_all_single(Tensor x, str group) -> Tensor": _like_x,
}.items():
    _library.define(_schema)
    _name = _schema.partition("(")[0]
    torch.library.register_fake(f"onehop::{_name}", _fake, lib=_library)
    _library.impl(_name, _refused, "CompositeExplicitAutograd")


@functools.cache
def _kernels() -> ctypes.CDLL:
    path = str(_build.load_path(_build.OPS))
    torch.ops.load_library(path)
    kernels = ctypes.CDLL(path)
    kernels.onehop_torch_register_group.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    kernels.onehop_torch_register_group.restype = None
    kernels.onehop_torch_unregister_group.argtypes = [ctypes.c_char_p]
    kernels.onehop_torch_unregister_group.restype = None
    return kernels


def register_group(
    group: dist.ProcessGroup | None = None, device: torch.device | str | None = None, name: str | None = None
) -> str:
    """Makes a process group of backend "onehop" known to torch.ops.onehop.* and returns its name there.

    Collective if the group has not been used on `device` yet. `group` defaults to the default process
    group, `device` to the current CUDA device if there is one, else the CPU, `name` to the process group's
    name, with the type of the device: two devices of one process group are two groups. Call
    `unregister_group` before destroy_process_group.
    """
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    if device is None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    backend = _backend.backend_of(group, device)
    handle = backend.group_handle(device)
    if handle == 0:
        raise ValueError("onehop: operators need a group of at least two ranks")
    name = name if name is not None else f"{group.group_name}/{device.type}"
    _kernels().onehop_torch_register_group(name.encode(), handle)
    _sizes[name] = group.size()
    _owners[name] = backend
    return name


def unregister_group(name: str) -> None:
    """Forgets the group. No operator may be running on it. Unknown names are ignored."""
    if name in _sizes:
        _kernels().onehop_torch_unregister_group(name.encode())
        del _sizes[name], _owners[name]
