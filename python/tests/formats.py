# SPDX-License-Identifier: Apache-2.0
"""All element types of onehop as arrays of NumPy, which lacks three of them: those are integers of the same size."""
import numpy as np

STORED = {"f16": "f2", "f32": "f4", "f64": "f8", "i8": "i1", "u8": "u1", "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8",
          "bf16": "u2", "e4m3": "u1", "e5m2": "u1"}
NATIVE = [name for name in STORED if name not in ("bf16", "e4m3", "e5m2")]


def _small_floats(exponent_bits, mantissa_bits, bias):
    """The values of all 8-bit patterns; NaN where the formats differ from a plain one is of no concern here."""
    patterns = np.arange(256)
    exponent = patterns >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = (patterns & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    values = np.where(exponent > 0, (1 + mantissa) * 2.0 ** (exponent - bias), mantissa * 2.0 ** (1 - bias))
    return np.where(patterns & 128, -values, values)


_TABLES = {"e4m3": _small_floats(4, 3, 7), "e5m2": _small_floats(5, 2, 15)}


def encode(values, dtype):
    """An array of `dtype` that holds `values`, which it must be able to."""
    values = np.asarray(values, np.float64)
    if dtype == "bf16":
        array = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype in _TABLES:
        table = _TABLES[dtype]
        order = np.argsort(table[:128], kind="stable")  # the patterns without a sign
        found = order[np.searchsorted(table[:128][order], np.abs(values))]
        array = np.where(values < 0, found | 128, found).astype(np.uint8)
    else:
        array = values.astype(STORED[dtype])
    assert (decode(array, dtype) == values).all(), f"{dtype} cannot hold the test's values"
    return array


def decode(array, dtype):
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in _TABLES:
        return _TABLES[dtype][array]
    return array.astype(np.float64)


def options(dtype):
    """What a call needs to know beyond the array's own type."""
    return {} if dtype in NATIVE else {"dtype": dtype}


def random_values(seed, count, low=0, high=3):
    """Integers that every type holds, as do sums of a few of them."""
    return np.random.default_rng(seed).integers(low, high, count).astype(np.float64)
