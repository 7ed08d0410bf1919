# SPDX-License-Identifier: Apache-2.0
# As in vLLM, this needs a platform: a platform's module cannot import it.
from vllm import platforms
from vllm.config.vllm import get_current_vllm_config_or_none as get_current_vllm_config_or_none  # noqa: F401

assert platforms.current_platform is not None
