# SPDX-License-Identifier: Apache-2.0
import functools
import pkgutil
from enum import Enum


class HookType(Enum):
    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"


class HookRegistry:
    _hooks = {}
    _patched = set()

    @classmethod
    def register(cls, target, hook, hook_type=HookType.AFTER, *, source=None):
        cls._hooks[target] = (hook, hook_type)

    @classmethod
    def apply_hooks(cls):
        for target, (hook, hook_type) in cls._hooks.items():
            if target in cls._patched:
                continue
            cls._patched.add(target)
            assert hook_type == HookType.AROUND, "the only type that this stand-in applies"
            module, _, name = target.rpartition(".")
            owner = pkgutil.resolve_name(module)
            setattr(owner, name, functools.partial(hook, getattr(owner, name)))
