# SPDX-License-Identifier: Apache-2.0
"""Communication between the GPUs or processes of one machine: collectives, symmetric memory and signals.

Importing this package needs no driver, CUDA, NumPy or PyTorch.
"""
from . import _signatures
from ._calls import group_call
from ._core import (FileStore, Memory, MemoryStore, Pool, PrefixStore, Store, SymmetricBuffer, TcpServer, TcpStore, Topology,
                    __version__)
from ._group import Group, init
from ._machine import Diagnosis, Finding, Job, PeerPair, doctor, job, p2p_check, peers_verified, topology, usage
from ._ranks import on_every_rank
from ._store import PyStore, store_from_env
from ._symmetric import DeviceView, SymmetricArray, buffer_of, symmetric_empty
from .errors import (Aborted, Error, InvalidArgument, Mismatch, NotFound, OutOfResources, PeerLost, Refused, Timeout,
                     Unsupported)

__all__ = [
    "Group", "init", "group_call", "on_every_rank",
    "Store", "FileStore", "TcpStore", "TcpServer", "MemoryStore", "PrefixStore", "PyStore", "store_from_env",
    "SymmetricBuffer", "Memory", "DeviceView", "Pool", "SymmetricArray", "symmetric_empty", "buffer_of",
    "Topology", "topology", "Diagnosis", "Finding", "doctor", "PeerPair", "p2p_check", "peers_verified", "usage", "Job", "job",
    "Error", "InvalidArgument", "Timeout", "PeerLost", "Aborted", "Mismatch", "Refused", "Unsupported", "OutOfResources",
    "NotFound",
    "__version__",
]

_signatures.install()
