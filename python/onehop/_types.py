# SPDX-License-Identifier: Apache-2.0
"""Names of what the calls accept, for annotations."""
from __future__ import annotations

import os
from typing import Any, TypeAlias

# A tensor of PyTorch, an array of NumPy or CuPy, or an object with DLPack, the CUDA array interface or the buffer protocol.
Array: TypeAlias = Any
# A name such as "bf16" or "float32", or a dtype of PyTorch or NumPy; None: that of the array.
DType: TypeAlias = Any
# A cudaStream_t as an integer, or an object with cuda_stream, ptr or __cuda_stream__; None: the framework's current one.
Stream: TypeAlias = Any
# A path, which need not be text.
Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
