# SPDX-License-Identifier: Apache-2.0
from vllm.config.vllm import get_current_vllm_config_or_none as get_current_vllm_config_or_none
