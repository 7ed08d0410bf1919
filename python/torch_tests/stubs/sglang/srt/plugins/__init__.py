# SPDX-License-Identifier: Apache-2.0
from importlib.metadata import entry_points

from sglang.srt.plugins.hook_registry import HookRegistry

GENERAL_PLUGINS_GROUP = "sglang.srt.plugins"


def load_plugins():
    for each in entry_points(group=GENERAL_PLUGINS_GROUP):
        each.load()()
    HookRegistry.apply_hooks()
