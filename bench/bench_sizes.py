# SPDX-License-Identifier: Apache-2.0
"""Sizes and collectives as the command line writes them, for the scripts beside this file."""

import re

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all", "gather", "scatter")
MEASURABLE = (*COLLECTIVES, "all-to-all-v", "send-recv")  # by `onehop bench`; the tables of the documents have the others

SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text):
    if not re.fullmatch(r"\d+[KMGkmg]?", text):
        raise ValueError(f"'{text}' is no size, such as 4096, 64K or 1G")
    return int(text[:-1]) * SUFFIXES[text[-1].upper()] if text[-1].upper() in SUFFIXES else int(text)


def sizes_of(text):
    """"1K,4K,1M" or "first:last:factor"."""
    if ":" not in text:
        return [parse_size(part) for part in text.split(",")]
    first, last, factor = (text.split(":") + ["2"])[:3]
    sizes = [parse_size(first)]
    if sizes[0] < 1 or int(factor) < 2:
        raise ValueError(f"'{text}' has no end: the first size is at least 1, the factor at least 2")
    while sizes[-1] * int(factor) <= parse_size(last):
        sizes.append(sizes[-1] * int(factor))
    return sizes


def format_size(size):
    for suffix in ("G", "M", "K"):
        if size % SUFFIXES[suffix] == 0:
            return f"{size // SUFFIXES[suffix]}{suffix}"
    return str(size)


def name_of(collective, ranks, dtype, op):
    """Of a table or panel. All-reduce goes without saying; what only moves has no op."""
    prefix = "" if collective == "all-reduce" else f"{collective}, "
    return f"{prefix}{ranks} ranks, {dtype}" + ("" if op == "none" else f" {op}")
