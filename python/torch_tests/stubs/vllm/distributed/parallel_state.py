# SPDX-License-Identifier: Apache-2.0
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from vllm.platforms import current_platform
from vllm.utils.import_utils import resolve_obj_by_qualname

_groups = {}


def all_reduce(tensor, group_name):
    return _groups[group_name]._all_reduce_out_place(tensor)


def all_reduce_fake(tensor, group_name):
    return torch.empty_like(tensor)


_library = torch.library.Library("vllm", "FRAGMENT")
_library.define("all_reduce(Tensor tensor, str group_name) -> Tensor")
_library.impl("all_reduce", all_reduce, "CompositeExplicitAutograd")
torch.library.register_fake("vllm::all_reduce", all_reduce_fake, lib=_library)


class GroupCoordinator:
    def __init__(
        self,
        group_ranks,
        local_rank,
        torch_distributed_backend,
        use_device_communicator,
        use_message_queue_broadcaster=False,
        group_name=None,
        use_all2all=False,
    ):
        self.unique_name = f"{group_name}:{len(_groups)}"
        _groups[self.unique_name] = self
        for ranks in group_ranks:
            device_group = dist.new_group(ranks, backend=torch_distributed_backend)
            cpu_group = dist.new_group(ranks, backend="gloo")
            if dist.get_rank() in ranks:
                self.device_group, self.cpu_group, self.world_size = device_group, cpu_group, len(ranks)
        # On the host with a local rank of -1, which the engine does not have.
        self.device = torch.device("cuda", local_rank) if local_rank >= 0 else torch.device("cpu")
        self.device_communicator = None
        if use_device_communicator and self.world_size > 1:
            self.device_communicator = resolve_obj_by_qualname(current_platform.get_device_communicator_cls())(
                cpu_group=self.cpu_group,
                device=self.device,
                device_group=self.device_group,
                unique_name=self.unique_name,
                use_all2all=use_all2all,
            )

    @contextmanager
    def graph_capture(self, graph_capture_context=None):
        ca_comm = self.device_communicator.ca_comm
        with nullcontext() if ca_comm is None else ca_comm.capture():
            yield graph_capture_context

    def all_reduce(self, input_):
        return torch.ops.vllm.all_reduce(input_, group_name=self.unique_name)

    def _all_reduce_out_place(self, input_):
        return self.device_communicator.all_reduce(input_)

    def destroy(self):
        if self.device_communicator is not None:
            self.device_communicator.destroy()
        dist.destroy_process_group(self.device_group)
        dist.destroy_process_group(self.cpu_group)
