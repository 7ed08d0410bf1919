# SPDX-License-Identifier: Apache-2.0
import torch.distributed as dist
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
from vllm.distributed.device_communicators.custom_all_reduce import CustomAllreduce


class CudaCommunicator(DeviceCommunicatorBase):
    def __init__(
        self,
        cpu_group,
        device=None,
        device_group=None,
        unique_name="",
        global_ranks=None,
        global_world_size=None,
        tcp_store_group=None,
        use_all2all=False,
    ):
        super().__init__(
            cpu_group, device, device_group, unique_name, global_ranks, global_world_size, use_all2all=use_all2all
        )
        self.ca_comm = CustomAllreduce() if unique_name.split(":")[0] == "tp" and self.world_size > 1 else None
        if self.world_size > 1:
            self._log_all_reduce_backend_selection()

    def _log_all_reduce_backend_selection(self):
        self.calls.append("_log_all_reduce_backend_selection")

    def all_reduce(self, input_):
        self.calls.append("all_reduce")
        out = input_.clone()
        dist.all_reduce(out, group=self.device_group)
        return out

    def custom_all_gather(self, input_):
        self.calls.append("custom_all_gather")

    def custom_reduce_scatter(self, input_):
        self.calls.append("custom_reduce_scatter")

    def all_gather(self, input_, dim=-1):
        self.calls.append("all_gather")

    def reduce_scatter(self, input_, dim=-1):
        self.calls.append("reduce_scatter")

    def reduce_scatterv(self, input_, dim=-1, sizes=None):
        self.calls.append("reduce_scatterv")

    def reduce_scatterv_into_output(self, input_, output, dim=-1, sizes=None):
        self.calls.append("reduce_scatterv_into_output")

    def send(self, tensor, dst=None):
        self.calls.append("send")

    def recv(self, size, dtype, src=None):
        self.calls.append("recv")

    def broadcast(self, tensor, src=0):
        self.calls.append("broadcast")

    def destroy(self):
        self.calls.append("destroy")

    def suspend(self):
        self.calls.append("suspend")

    def resume(self):
        self.calls.append("resume")

    def all_gatherv(self, input_, dim=0, sizes=None):
        self.calls.append("all_gatherv")
