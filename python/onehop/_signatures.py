# SPDX-License-Identifier: Apache-2.0
"""Signatures of the functions in `_core`, for `inspect.signature` and what builds on it: help(), IPython, editors."""
from __future__ import annotations

import __future__

import inspect
from typing import Any

from . import _core


def _signature(function: Any) -> inspect.Signature:
    """From the text that nanobind keeps, of which the stub is made as well."""
    (text, _, defaults), *overloads = function.__nb_signature__
    if overloads:
        raise AttributeError("__signature__")  # inspect says that there is none
    namespace: dict[str, Any] = {}
    # Annotations stay text, as they are in modules of this package.
    exec(compile(f"{text}: ...", "<signature>", "exec", flags=__future__.annotations.compiler_flag), namespace)
    return inspect.signature(namespace[function.__name__])


def _signature_of_bound(method: Any) -> inspect.Signature:
    whole = _signature(method.__func__)
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def install() -> None:
    """Gives nanobind's types of functions and methods the attribute `__signature__`."""
    for kind in (type(_core._address), type(_core.Group.check)):
        kind.__signature__ = property(_signature)  # type: ignore[attr-defined]
    type(_core.MemoryStore().get).__signature__ = property(_signature_of_bound)  # type: ignore[attr-defined]
