# SPDX-License-Identifier: Apache-2.0
"""onehop for torch: backend "onehop" of torch.distributed, operators, symmetric memory.

    import onehop.torch
    torch.distributed.init_process_group("onehop")
"""

from ._backend import Options, register

__all__ = ["Options", "register"]

register()
