# SPDX-License-Identifier: Apache-2.0
class CudaPlatformBase:
    @classmethod
    def get_device_communicator_cls(cls):
        return "vllm.distributed.device_communicators.cuda_communicator.CudaCommunicator"


class NvmlCudaPlatform(CudaPlatformBase):
    pass


CudaPlatform = NvmlCudaPlatform
