# SPDX-License-Identifier: Apache-2.0
"""What inference engines call through the entry points of this distribution. docs/engines.md is the guide.

A package of its own, since engines load every plug-in that is installed: nothing is imported, not even onehop, unless a
variable asks for it.
"""
from __future__ import annotations

import logging
import os


def _wanted(variable: str, log: logging.Logger) -> bool:
    value = os.environ.get(variable, "").lower()
    if value not in ("", "0", "false", "no", "off", "1", "true", "yes", "on"):
        log.warning("onehop is off: %s=%r makes no sense; set it to 1 or 0", variable, value)
    return value in ("1", "true", "yes", "on")


def vllm() -> str | None:
    """Entry point of group `vllm.platform_plugins`: the name of the platform's class, or None to stay out of the way."""
    log = logging.getLogger("vllm.onehop")
    if not _wanted("ONEHOP_VLLM", log):
        return None
    try:
        import onehop  # noqa: F401
        from vllm.platforms import cuda_platform_plugin
    except ImportError as error:
        log.warning("onehop is off: %s", error)
        return None
    if cuda_platform_plugin() is None:
        log.warning("onehop is off: vLLM finds no NVIDIA GPUs")
        return None
    # A name, as vLLM wants it: its platforms cannot be imported yet.
    return "onehop.engines.vllm_platform.Platform"


def sglang() -> None:
    """Entry point of group `sglang.srt.plugins`: registers the hooks, if any."""
    log = logging.getLogger("sglang.onehop")
    if not _wanted("ONEHOP_SGLANG", log):
        return
    try:
        from onehop.engines import sglang as plugin
    except ImportError as error:
        log.warning("onehop is off: %s", error)
        return
    plugin.register()
