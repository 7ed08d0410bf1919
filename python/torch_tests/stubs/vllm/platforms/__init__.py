# SPDX-License-Identifier: Apache-2.0
from vllm.plugins import PLATFORM_PLUGINS_GROUP, load_plugins_by_group
from vllm.utils.import_utils import resolve_obj_by_qualname

_current_platform = None


def cuda_platform_plugin():
    return "vllm.platforms.cuda.CudaPlatform"


def resolve_current_platform_cls_qualname():
    found = [name for plugin in load_plugins_by_group(PLATFORM_PLUGINS_GROUP).values() if (name := plugin())]
    return found[0] if found else cuda_platform_plugin()


def __getattr__(name):
    global _current_platform
    if name != "current_platform":
        raise AttributeError(name)
    if _current_platform is None:
        _current_platform = resolve_obj_by_qualname(resolve_current_platform_cls_qualname())()
    return _current_platform
