# SPDX-License-Identifier: Apache-2.0
_current_vllm_config = None


def get_current_vllm_config_or_none():
    return _current_vllm_config
