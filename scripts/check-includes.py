#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what includes what: layers look down only, public headers stay public, CUDA stays where it belongs; and that a
source uses the names that it declares with `using`.

    scripts/check-includes.py [ROOT]      check a tree (default: this repository)
    scripts/check-includes.py --self-test  show that each rule catches what it is for

The rules are the tables below; CONTRIBUTING.md has the reasons.
"""

import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/lint"))
import tree_check

# Each layer of src/ and the layers it may include. Store, topology and memory do not know each other, and algorithms
# know peers but no groups. The C API stands on the public headers alone, so that it shows what any other binding can do.
LOWEST = {"base"}
TO_DRIVER = LOWEST | {"os", "driver"}
TO_MEMORY = TO_DRIVER | {"store", "topology", "memory"}
MAY_INCLUDE = {
    "base": set(),
    "os": LOWEST,
    "driver": LOWEST | {"os"},
    "store": TO_DRIVER,
    "topology": TO_DRIVER,
    "memory": TO_DRIVER,
    "call": TO_MEMORY,
    "backend": TO_MEMORY | {"call"},
    "group": TO_MEMORY | {"call", "backend"},
    "collective": TO_MEMORY | {"call", "group", "backend"},
    "c_api": LOWEST | {"collective"},
}

# Programs see the public headers only. tools/ may also use base and os: the command writes and parses sizes, owns
# descriptors and private directories as the library does. bench/ also measures kernels by themselves.
PROGRAMS = {"tools": LOWEST | {"os"}, "bench": LOWEST | {"os", "call", "backend"}, "examples": set(),
            "nccl": LOWEST | {"os"}}

# The lowest layer that may see a public header; the others (error.h, types.h, ...) are for everyone.
PUBLIC_HEADER_LEVEL = {
    "peer_access.h": 3,
    "device_memory.h": 3,
    "store.h": 3,
    "detail/store_exchange.h": 3,
    "topology.h": 3,
    "diagnose.h": 3,
    "call.h": 3,
    "buffer.h": 3,  # PeerView, which kernels take
    "peer_check.h": 4,
    "ipc.h": 4,
    "group.h": 4,
    "job.h": 4,
    "tuning.h": 4,
    "collectives.h": 5,
    "spans.h": 5,
    "group_call.h": 5,
    "intra_node_comm.h": 5,
    "onehop.h": 6,
    "c_api.h": 6,
    "c/base.h": 6,
    "c/device_memory.h": 6,
    "c/peers.h": 6,
    "c/topology.h": 6,
    "c/tuning.h": 6,
}
LEVEL = {"base": 0, "os": 1, "driver": 2, "store": 3, "topology": 3, "memory": 3, "call": 3, "backend": 4, "group": 4,
         "collective": 5, "c_api": 6}
BACKEND_MUST_NOT_SEE = {"ipc.h", "group.h"}

CUDA_HEADER = re.compile(r"^(cuda|cuda_\w+|driver_types|device_launch_parameters|vector_types|nvml|cooperative_groups|cufft|"
                         r"curand\w*|cublas\w*|nccl)(\.h|\.hpp)?$|^(cuda|cub|thrust|cooperative_groups|nv)/")
# The command measures GPUs as a user's program does, with the runtime's streams, events and graphs, linked statically.
CUDA_PLACES = ("src/backend/cuda/", "src/driver/", "include/onehop/device/", "tools/onehop/bench/cuda_", "bench/peers/")
PTX_PLACES = ("src/backend/cuda/", "include/onehop/device/")
# PTX mnemonics are words joined by dots (ld.acquire.sys.u32); x86 and Arm assembly has none.
PTX = re.compile(r'\basm\b\s*(?:volatile|__volatile__)?\s*\(\s*"[^"]*\b[a-z]+(?:\.[a-z0-9]+)+')
# Multicast can take a shared host out of service; only its attribute may be asked for.
MULTICAST = re.compile(r"\bcuMulticast(?:Create|AddDevice|Bind\w*)\b|\bmultimem\.")

STANDARD_HEADER = re.compile(r"^[a-z_0-9]+$|^std(?:def|int)\.h$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
USING = re.compile(r"^using [\w:]+::(\w+);", re.MULTILINE)
SUFFIXES = {".h", ".cc", ".c", ".cuh", ".cu"}


def without_comments(text):
    """The text with comments blanked (strings and line numbers kept)."""
    return COMMENT_OR_STRING.sub(lambda m: m[1] or re.sub(r"[^\n]", " ", m[0]), text)


def check_public_header(path, kind, name):
    if kind == '"':
        if not name.startswith("onehop/"):
            yield f'a public header must not include "{name}": users do not have it'
    elif not STANDARD_HEADER.match(name) and not (path.startswith(CUDA_PLACES) and CUDA_HEADER.match(name)):
        yield f"a public header must not include <{name}>: only the standard library comes for free"


def check_program(path, kind, name):
    program = path.split("/")[0]
    layer = name.split("/")[0]
    if kind == '"' and "/" in name and layer in MAY_INCLUDE and layer not in PROGRAMS[program]:
        yield f'{program}/ must not include "{name}": programs use the public headers'


def check_layer(path, kind, name):
    layer = path.split("/")[1]
    if layer not in MAY_INCLUDE:
        yield f"src/{layer} is no layer that scripts/check-includes.py knows; add it to its tables"
        return
    if kind != '"':
        return
    if name.startswith("onehop/"):
        header = name.removeprefix("onehop/")
        if LEVEL[layer] < PUBLIC_HEADER_LEVEL.get(header, 0):
            yield f'layer {layer} must not include "{name}": it belongs to a layer above'
        elif layer == "backend" and header in BACKEND_MUST_NOT_SEE:
            yield f'layer backend must not include "{name}": algorithms know peers, not groups'
        return
    other = name.split("/")[0]
    if "/" not in name:
        yield f'"{name}" must be included by its path from src/, include/ or tests/'
    elif other in MAY_INCLUDE and other != layer and other not in MAY_INCLUDE[layer]:
        yield f'layer {layer} must not include "{name}": {other} is not below it'


def check_file(path, text):
    """Yields (line, complaint) for one file; `path` is relative to the root and uses slashes."""
    code = without_comments(text)
    # A test may look at anything: it is not part of what others build on.
    is_test = path.startswith("tests/") or Path(path).stem.endswith("_test")
    top = path.split("/")[0]
    for match in INCLUDE.finditer(code):
        kind, name = match[1], match[2]
        complaints = []
        if top == "include":
            complaints += check_public_header(path, kind, name)
        elif top in PROGRAMS:
            complaints += check_program(path, kind, name)
        elif top == "src" and not is_test:
            complaints += check_layer(path, kind, name)
        if CUDA_HEADER.match(name) and top in ("src", "include", "tools", "nccl") and not path.startswith(CUDA_PLACES):
            complaints.append(f"CUDA headers such as <{name}> belong in {', '.join(CUDA_PLACES)}")
        for complaint in complaints:
            yield code.count("\n", 0, match.start()) + 1, complaint
    # clang-tidy has such a check, but only for files that are compiled by themselves.
    if path.endswith(".cc"):
        for match in USING.finditer(code):
            if len(re.findall(rf"\b{match[1]}\b", code)) == 1:
                yield code.count("\n", 0, match.start()) + 1, f"using {match[1]} is not used"
    if not path.startswith(PTX_PLACES):
        for match in PTX.finditer(code):
            yield code.count("\n", 0, match.start()) + 1, f"inline PTX belongs in {', '.join(PTX_PLACES)}"
    for match in MULTICAST.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, f"{match[0]}: onehop never uses multicast"


def check_tree(root):
    """Returns (number of files seen, complaints)."""
    seen, complaints = 0, []
    for top in ("include", "src", "tools", "nccl", "bench", "examples", "tests"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SUFFIXES:
                seen += 1
                path = file.relative_to(root).as_posix()
                complaints += [f"{path}:{line}: {what}" for line, what in check_file(path, file.read_text())]
    return seen, complaints


# Path, text, and a word of the complaint it must cause (None: it must pass).
SELF_TEST = [
    ("src/os/a.cc", '#include "group/state.h"', "not below"),
    ("src/base/a.h", '#include "os/socket.h"', "not below"),
    ("src/store/a.cc", '#include "topology/pci.h"', "not below"),
    ("src/backend/host/a.cc", '  #  include "group/state.h"', "not below"),
    ("src/memory/a.cc", '#include "backend/host/reduce.h"', "not below"),
    ("src/backend/host/a.cc", '#include "onehop/group.h"', "not groups"),
    ("src/os/a.cc", '#include "onehop/store.h"', "above"),
    ("src/c_api/a.cc", '#include "group/state.h"', "not below"),
    ("src/novel/a.cc", '#include "base/check.h"', "no layer"),
    ("src/os/a.cc", '#include "socket.h"', "path"),
    ("include/onehop/a.h", '#include "base/check.h"', "users"),
    ("include/onehop/a.h", "#include <fmt/core.h>", "standard"),
    ("include/onehop/a.h", "#include <cuda_runtime.h>", "CUDA"),
    ("src/memory/a.cc", "#include <cuda.h>", "CUDA"),
    ("tools/onehop/a.cc", '#include "group/state.h"', "public"),
    ("tools/onehop/a.cc", '#include "driver/capability.h"', "public"),
    ("examples/a.cc", '#include "base/units.h"', "public"),
    ("src/collective/a.cc", 'asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(p));', "PTX"),
    ("include/onehop/device/a.cuh", 'asm volatile("multimem.red.f32 [%0], %1;" ::);', "multicast"),
    ("src/driver/a.cc", "table.cuMulticastCreate(&handle);", "multicast"),
    ("bench/a.cc", '#include "group/state.h"', "public"),
    ("src/os/a.cc", "using std::chrono::seconds;\nint a();", "not used"),
    ("src/os/a.cc", "using std::chrono::seconds;\nseconds a();", None),
    ("src/group/a.cc", '#include "backend/host/step_barrier.h"', None),
    ("src/collective/a.cc", '#include "group/state.h"\n#include "backend/host/reduce.h"', None),
    ("src/store/a.cc", '// #include "group/state.h"\n/* #include <cuda.h> */\n#include <asio.hpp>', None),
    ("src/store/a_test.cc", '#include "group/state.h"', None),
    ("src/backend/cuda/a.cu", '#include <cuda_runtime.h>\nasm volatile("fence.acq_rel.sys;");', None),
    ("src/backend/host/a.cc", 'asm volatile("pause" ::: "memory"); const char* s = "a // b";', None),
    ("tools/onehop/bench/cuda_a.cc", "#include <cuda_runtime.h>", None),
    ("tools/onehop/bench/run.cc", "#include <cuda_runtime.h>", "CUDA"),
    ("include/onehop/device/a.cuh", "#include <cuda/atomic>\n#include <cstdint>", None),
    ("tools/onehop/a.cc", '#include "base/units.h"\n#include "os/unique_fd.h"\n#include "launcher.h"\n#include <CLI/CLI.hpp>', None),
]


if __name__ == "__main__":
    sys.exit(tree_check.main(check_tree, [(f"{path}: {text!r}", {path: text + "\n"}, word) for path, text, word in SELF_TEST]))
