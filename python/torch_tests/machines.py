# SPDX-License-Identifier: Apache-2.0
"""Processes that take each other to be on different machines: each sees a boot id of its own, by a mount that
is private to it."""

import ctypes
import os
import tempfile
import uuid

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


def enter(machine: int, job: str) -> None:
    """Puts this process, and those that it starts, on a machine of `job`. OSError if that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{what}: {os.strerror(error)}")

    check(libc.unshare(_CLONE_NEWNS), "unshare")
    check(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "making mounts private")
    with tempfile.NamedTemporaryFile("w") as file:  # the mount keeps it
        file.write(f"{uuid.uuid5(uuid.NAMESPACE_OID, f'{job} {machine}')}\n")
        file.flush()
        mounted = libc.mount(file.name.encode(), _BOOT_ID.encode(), None, _MS_BIND, None)
        check(mounted, f"mounting over {_BOOT_ID}")


def why_not() -> str:
    """Why this process may not do that; "" if it may."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enter(0, "probe")
        except OSError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()
