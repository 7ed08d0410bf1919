# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.shrink_group, with what its Python part leaves out."""

import torch
import torch.distributed as dist


def shrink_group(
    ranks_to_exclude: list[int], group: dist.ProcessGroup | None = None, shrink_flags: int = 0
) -> dist.ProcessGroup:
    """`torch.distributed.shrink_group`, for process groups of every kind.

    Torch 2.11 registers the new group for one kind of device only, the CPU unless there is a device_id. And
    it takes the excluded ranks, which are numbers in the group, for global ranks when it notes which ranks
    the new group has: in a group whose numbers are not the global ones, even get_rank then fails. This
    function sets both right. In the default group, the ranks' new numbers are the global ones, as torch's
    get_rank has it.

    RuntimeError if this torch has no shrink_group. The rest is as torch's; docs/torch.md tells what it raises.
    """
    if not hasattr(dist, "shrink_group"):
        raise RuntimeError(f"onehop: torch {torch.__version__} has no shrink_group; torch 2.10 and later have it")
    old = group if group is not None else dist.distributed_c10d._get_default_group()
    is_default = old is dist.distributed_c10d._get_default_group()
    devices = list(old._device_types)
    ranks = dist.get_process_group_ranks(old)
    new = dist.shrink_group(ranks_to_exclude, group, shrink_flags)
    backend = new._get_backend(new._device_types[0])
    for device in devices:
        if device not in new._device_types:
            new._register_backend(device, dist.ProcessGroup.BackendType.CUSTOM, backend)
    left = [rank for number, rank in enumerate(ranks) if number not in ranks_to_exclude]
    if is_default:
        left = list(range(new.size()))
    dist.distributed_c10d._world.pg_group_ranks[new] = {rank: number for number, rank in enumerate(left)}
    return new
