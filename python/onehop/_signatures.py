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


def _without_self(whole: inspect.Signature) -> inspect.Signature:
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def _signature_of_bound(method: Any) -> inspect.Signature:
    return _without_self(_signature(method.__func__))


class _SignatureOfClass:
    """Python 3.11.2, which Debian 12 has, does not find it by itself. Classes with an `__init__` in Python have their own."""

    def __get__(self, instance: Any, owner: Any) -> inspect.Signature:
        return _without_self(_signature(owner.__init__))


def install() -> None:
    """Gives nanobind's types of functions and methods, and its classes, the attribute `__signature__`."""
    for each in vars(_core).values():
        if isinstance(each, type) and hasattr(each.__init__, "__nb_signature__"):
            each.__signature__ = _SignatureOfClass()  # type: ignore[attr-defined]
    for kind in (type(_core._address), type(_core.Group.check)):
        kind.__signature__ = property(_signature)  # type: ignore[attr-defined]
    type(_core.MemoryStore().get).__signature__ = property(_signature_of_bound)  # type: ignore[attr-defined]
