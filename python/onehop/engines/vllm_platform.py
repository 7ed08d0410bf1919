# SPDX-License-Identifier: Apache-2.0
"""vLLM's platform for NVIDIA GPUs, with onehop's communicator. Most modules of vLLM need a platform when they are imported:
this one can import none of them."""
from __future__ import annotations

import logging

from vllm.platforms.cuda import CudaPlatform

log = logging.getLogger("vllm.onehop")


class Platform(CudaPlatform):
    """CudaPlatform whose groups communicate through onehop."""

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        from vllm.config import get_current_vllm_config_or_none

        config = get_current_vllm_config_or_none()
        if config is not None and config.parallel_config.enable_elastic_ep:
            # Its groups insist on CudaCommunicator itself.
            log.warning("onehop is off: it does not carry the groups of elastic expert parallelism")
            return super().get_device_communicator_cls()
        return "onehop.engines.vllm_communicator.Communicator"
