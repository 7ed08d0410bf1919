# SPDX-License-Identifier: Apache-2.0
import torch
import torch.distributed as dist


class DeviceCommunicatorBase:
    """Writes down in `calls` what reached it."""

    def __init__(
        self,
        cpu_group,
        device=None,
        device_group=None,
        unique_name="",
        global_ranks=None,
        global_world_size=None,
        use_all2all=False,
    ):
        self.device = device or torch.device("cpu")
        self.cpu_group = cpu_group
        self.device_group = device_group
        self.unique_name = unique_name
        self.world_size = dist.get_world_size(cpu_group)
        self.ranks = dist.get_process_group_ranks(cpu_group)
        self.rank_in_group = dist.get_rank(cpu_group)
        self.calls = []

    def gather(self, input_, dst=0, dim=-1):
        self.calls.append("gather")

    def suspend(self):
        pass

    def resume(self):
        pass
