# SPDX-License-Identifier: Apache-2.0
"""The exceptions of onehop. Each has a message of one line, which says what to do."""
from __future__ import annotations

__all__ = ["Error", "InvalidArgument", "Timeout", "PeerLost", "Aborted", "Mismatch", "Refused", "Unsupported", "OutOfResources",
           "NotFound"]


class Error(RuntimeError):
    """A call failed. The classes below say why; `Error` itself stands for a failed call of the system
    or of the CUDA driver, and for malformed data.

    code: the name of the error in the C API, such as "peer_lost".
    rank: the rank on which the failure began, or None if only the caller is affected.
    """

    code: str = "system"
    rank: int | None = None

    def __init__(self, message: str = "", rank: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.rank = rank
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.rank, self.code)


class InvalidArgument(Error, ValueError):
    """An argument of this rank, or of the rank `rank`, is invalid. The message names it."""

    code = "invalid_argument"


class Timeout(Error, TimeoutError):
    """A deadline passed. The message names what was awaited, and `rank` whose turn it was."""

    code = "timeout"

    def __str__(self) -> str:  # OSError, a base of TimeoutError, would print its own fields
        return str(self.args[0]) if self.args else ""


class PeerLost(Error):
    """The process of `rank` died, or left the group while others needed it. Leave, and form a new group without it."""

    code = "peer_lost"


class Aborted(Error):
    """The group was aborted by `rank`. Leave it and form a new one."""

    code = "aborted"


class Mismatch(Error):
    """Ranks made different calls. The message names the difference; those calls wrote nothing."""

    code = "mismatch"


class Refused(Error):
    """All ranks agreed that this group cannot be formed, for the reason in the message."""

    code = "refused"


class Unsupported(Error):
    """This machine, driver or build does not support it."""

    code = "unsupported"


class OutOfResources(Error, MemoryError):
    """Memory, descriptors or address space are exhausted."""

    code = "out_of_resources"


class NotFound(Error, LookupError):
    """A key, a file or the variables of a launcher do not exist."""

    code = "not_found"


_CLASSES = {each.code: each for each in (InvalidArgument, Timeout, PeerLost, Aborted, Mismatch, Refused, Unsupported,
                                         OutOfResources, NotFound)}


def _of(code: str, message: str, rank: int | None) -> Error:
    """The exception of an error of the C API."""
    return _CLASSES.get(code, Error)(message, rank, code)
