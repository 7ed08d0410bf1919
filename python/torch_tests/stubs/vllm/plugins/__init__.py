# SPDX-License-Identifier: Apache-2.0
from importlib.metadata import entry_points

PLATFORM_PLUGINS_GROUP = "vllm.platform_plugins"


def load_plugins_by_group(group):
    return {each.name: each.load() for each in entry_points(group=group)}
