# SPDX-License-Identifier: Apache-2.0
import logging
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

logger = logging.getLogger(__name__)

_ENABLE_CUSTOM_ALL_REDUCE = True


def set_custom_all_reduce(enable):
    global _ENABLE_CUSTOM_ALL_REDUCE
    _ENABLE_CUSTOM_ALL_REDUCE = enable


def init_model_parallel_group(
    group_ranks,
    local_rank,
    backend,
    use_pynccl=None,
    use_custom_allreduce=None,
    use_message_queue_broadcaster=False,
    group_name=None,
    use_mscclpp=None,
    use_torch_symm_mem_allreduce=None,
    recovered_rank=False,
    rank_offset=0,
    max_world_size=None,
):
    return GroupCoordinator(
        group_ranks, local_rank, backend, False, False, _ENABLE_CUSTOM_ALL_REDUCE, False, False, False
    )


class GroupCoordinator:
    def __init__(
        self,
        group_ranks,
        local_rank,
        torch_distributed_backend,
        use_pynccl,
        use_mscclpp,
        use_custom_allreduce,
        use_torch_symm_mem_all_reduce,
        use_hpu_communicator,
        use_xpu_communicator,
        use_message_queue_broadcaster=False,
        group_name=None,
        gloo_timeout=timedelta(seconds=120 * 60),
        recovered_rank=False,
        rank_offset=0,
        max_world_size=None,
    ):
        from sglang.srt.distributed.device_communicators.custom_all_reduce import dispatch_custom_allreduce

        for ranks in group_ranks:
            device_group = dist.new_group(ranks, backend=torch_distributed_backend)
            cpu_group = dist.new_group(ranks, backend="gloo")
            if dist.get_rank() in ranks:
                self.device_group, self.cpu_group, self.world_size = device_group, cpu_group, len(ranks)
        # On the host with a local rank of -1, which the engine does not have.
        self.device = torch.device("cuda", local_rank) if local_rank >= 0 else torch.device("cpu")
        self.ca_comm = None
        if use_custom_allreduce and self.world_size > 1:
            try:
                CAClass = dispatch_custom_allreduce(group=self.cpu_group, device=self.device)
                self.ca_comm = CAClass(group=self.cpu_group, device=self.device)
            except Exception as error:
                logger.warning("no custom all-reduce: %s", error)

    @contextmanager
    def graph_capture(self, graph_capture_context=None, stream=None):
        with self.ca_comm.capture():
            yield graph_capture_context

    def all_reduce(self, input_):
        if self.ca_comm is not None and not self.ca_comm.disabled and self.ca_comm.should_custom_ar(input_):
            return self.ca_comm.custom_all_reduce(input_)
        dist.all_reduce(input_, group=self.device_group)
        return input_

    def destroy(self):
        dist.destroy_process_group(self.device_group)
        dist.destroy_process_group(self.cpu_group)
        self.ca_comm = None
