# SPDX-License-Identifier: Apache-2.0
"""What this machine has, what works on it, and the job that started this process."""
from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from json import loads
from typing import TYPE_CHECKING

from . import _core
from ._core import Topology
from ._paths import command
from ._types import Health, Outcome
from .errors import Error

if TYPE_CHECKING:
    from ._group import Group


@dataclass(frozen=True)
class Job:
    """The rank of this process, as its launcher numbers it."""

    rank: int
    size: int
    local_rank: int
    launcher: str


def job() -> Job:
    """Reads the launcher's environment variables, without joining. `NotFound` without a launcher."""
    return Job(*_core._job_from_env())


def topology(json: str | None = None) -> Topology:
    """Probes this machine, or parses what `Topology.to_json` wrote."""
    return _core._topology_probe() if json is None else _core._topology_from_json(json)


@dataclass(frozen=True)
class Finding:
    """One check of `doctor`. `health` is "works", "fails" or "not applicable"; `remedy` says how to fix what fails."""

    section: str
    name: str
    health: Health
    detail: str
    remedy: str
    essential: bool


@dataclass(frozen=True)
class Diagnosis:
    """What works on this machine, as `onehop doctor` says.

    usable: groups of host ranks work, all that `onehop doctor` requires by default. gpus_usable: at least one GPU works as well
    (`onehop doctor --require cuda`). summary: both, in one line.
    """

    usable: bool
    gpus_usable: bool
    summary: str
    findings: tuple[Finding, ...]


def doctor() -> Diagnosis:
    """Checks what onehop needs of this machine and of the GPUs that this process sees. Failed checks are no errors.

    Runs the command `onehop doctor`, which starts a group of two ranks and initializes CUDA. That can take seconds.
    """
    program = str(command())
    try:
        ended = subprocess.run([program, "doctor", "--json", "-"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
        report = loads(ended.stdout)
    except OSError as error:
        raise Error(f"cannot run {program}: {error.strerror}; reinstall the package") from error
    except ValueError as error:
        raise Error(f"{program} doctor ended with exit code {ended.returncode} and no report; run it in a terminal") from error
    usable = report["host_backend_works"]
    host = "the host backend works here" if usable else "the host backend does not work here"
    findings = tuple(Finding(section=each["section"], name=each["name"], health=each["status"].replace("_", " "),
                             detail=each["detail"], remedy=each["remedy"], essential=each["essential"])
                     for each in report["checks"])
    return Diagnosis(usable, report["gpu_backend_works"], f"{host}; {report['gpu_summary']}", findings)


@dataclass(frozen=True)
class PeerPair:
    """What the GPU `source` can do with the memory of `target`.

    Bandwidths are in 10^9 bytes per second, the latency in nanoseconds; None if not measured. `tests` has the outcome of each
    test: "passed", "failed", "hung", "skipped" or "not-run". `failure` is about the first that did not pass.
    """

    source: int
    target: int
    ok: bool
    failure: str
    store_gbps: float | None
    load_gbps: float | None
    copy_gbps: float | None
    latency_ns: float | None
    tests: dict[str, Outcome]


def p2p_check(devices: Sequence[int] | None = None, *, nbytes: int | None = None, measure_bandwidth: bool = True,
              timeout: float | timedelta | None = None, remember: bool = False) -> list[PeerPair]:
    """Verifies that data crosses between GPUs, for every ordered pair of `devices` (all, if None), and measures it.

    nbytes: per test, a multiple of 16; 256 MiB if None. timeout: of all pairs together; 60 s if None. remember: record the
    outcome for `peers_verified`. Faults of devices and links are in the results and raise nothing.
    """
    pairs = _core._check_peers(None if devices is None else list(devices), nbytes, measure_bandwidth, timeout, remember)
    return [PeerPair(*each) for each in pairs]


def peers_verified(devices: Sequence[int]) -> bool:
    """Whether each of the GPUs reaches every other one, by tests that run at most once per boot, driver and pair."""
    return _core._peers_verified(list(devices))


def usage(group: Group) -> dict[str, int]:
    """Number of collectives of this rank by algorithm: `Group.usage`."""
    return group.usage()
