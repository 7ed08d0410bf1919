# SPDX-License-Identifier: Apache-2.0
"""Names of what the calls accept, for annotations."""
from __future__ import annotations

import os
import sys
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    Buffer: TypeAlias = bytearray | memoryview


class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...


class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...


class _TorchDevice(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...


# A tensor of PyTorch, an array of NumPy or CuPy, or an object with DLPack, the CUDA array interface or the buffer protocol.
# What a call returns is of the type of what it was given.
Array = TypeVar("Array", bound=_DLPack | _CudaArray | Buffer)
Op: TypeAlias = Literal["sum", "prod", "min", "max", "avg", "premul_sum"]
Algorithm: TypeAlias = Literal["one-shot", "two-shot"]
# How ranks share the memory of GPUs.
ShareBy: TypeAlias = Literal["auto", "fd", "fabric", "ipc"]
# Whose arrays `symmetric_empty` makes.
Framework: TypeAlias = Literal["numpy", "torch", "cupy"]
# A CUDA ordinal, a name or a torch.device. The names include "cuda:N", which programs put together: so any text passes, and
# the two names are there for editors.
Device: TypeAlias = int | Literal["cpu", "cuda"] | str | _TorchDevice
# What `doctor` says of a check, and `p2p_check` of a test.
Health: TypeAlias = Literal["works", "fails", "not applicable"]
Outcome: TypeAlias = Literal["passed", "failed", "hung", "skipped", "not-run"]
# A name such as "bf16" or "float32", or a dtype of PyTorch or NumPy; None: that of the array.
DType: TypeAlias = Any
# A cudaStream_t as an integer, or an object with cuda_stream, ptr or __cuda_stream__; None: the framework's current one.
Stream: TypeAlias = Any
# A path, which need not be text.
Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
