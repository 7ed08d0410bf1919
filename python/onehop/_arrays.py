# SPDX-License-Identifier: Apache-2.0
"""New arrays like those of the caller, and views of symmetric memory."""
from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from . import _core
from ._core import Memory
from .errors import InvalidArgument

# The names that frameworks have for onehop's types: {"f32": "float32", ...}.
LONG_NAMES: dict[str, str] = _core._long_names()

FRAMEWORKS = ("torch", "numpy", "cupy")


def framework_of(x: Any) -> str:
    """"torch", "numpy", "cupy", or the name of another package."""
    for each in type(x).__mro__:
        root = each.__module__.partition(".")[0]
        if root in FRAMEWORKS:
            return root
    return type(x).__module__.partition(".")[0]


def like(x: Any, factor: int, divisor: int) -> Any:
    """An uninitialized array like `x`, with its first dimension times `factor`, divided by `divisor`."""
    framework = framework_of(x)
    if framework not in FRAMEWORKS:
        raise InvalidArgument(f"out is None, and onehop does not know how to allocate another {type(x).__qualname__}; pass out=")
    shape = tuple(x.shape) or (1,)
    if shape[0] * factor % divisor:
        raise InvalidArgument(f"x has shape {tuple(x.shape)}, whose first dimension {divisor} ranks cannot divide; pass out=")
    shape = (shape[0] * factor // divisor, *shape[1:])
    if framework == "torch":
        return x.detach().new_empty(shape)
    return sys.modules[framework].empty(shape, dtype=x.dtype)


def item_size(dtype: Any, framework: str) -> int:
    """Bytes of an element of `dtype` of the framework."""
    if framework == "torch":
        import torch

        return torch.empty((), dtype=dtype).element_size()
    return int(sys.modules["numpy"].dtype(dtype).itemsize)


def require_known(framework: str) -> None:
    if framework not in FRAMEWORKS:
        raise InvalidArgument(f"like is {framework!r}; there are 'numpy', 'torch' and 'cupy'")


def dtype_for(framework: str, dtype: Any) -> Any:
    """The framework's own object for a dtype that may be its name, such as "float32" or "bf16"."""
    require_known(framework)
    if framework == "torch":
        import torch

        found = getattr(torch, LONG_NAMES.get(dtype, dtype), None) if isinstance(dtype, str) else dtype
        if not isinstance(found, torch.dtype):
            raise InvalidArgument(f"dtype is {dtype!r}, not one of torch")
        return found
    import numpy

    try:
        return numpy.dtype(LONG_NAMES.get(dtype, dtype) if isinstance(dtype, str) else dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"dtype is {dtype!r}, not one of {framework}") from error


def view(memory: Memory, shape: Sequence[int], dtype: Any, framework: str) -> Any:
    """An array of the framework in `memory`, without a copy. It keeps the memory alive."""
    require_known(framework)
    if framework == "numpy":
        import numpy

        return numpy.frombuffer(memory, dtype=numpy.uint8, count=math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
    if framework == "torch":
        import torch

        return torch.from_dlpack(memory)[:math.prod(shape) * item_size(dtype, framework)].view(dtype).reshape(shape)
    import cupy

    return cupy.from_dlpack(memory)[:math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
