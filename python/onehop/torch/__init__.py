# SPDX-License-Identifier: Apache-2.0
"""onehop for torch: backend "onehop" of torch.distributed, operators, symmetric memory.

    import onehop.torch
    torch.distributed.init_process_group("onehop")

docs/torch.md is the guide.
"""

from ._backend import Options, check, engine, register
from ._memory import is_symmetric, mem_pool
from ._ops import register_group, unregister_group
from ._shrink import shrink_group

__all__ = [
    "Options",
    "check",
    "engine",
    "is_symmetric",
    "mem_pool",
    "register",
    "register_group",
    "shrink_group",
    "unregister_group",
]

register()
