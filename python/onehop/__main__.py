# SPDX-License-Identifier: Apache-2.0
"""The onehop command, which the package brings along: `python -m onehop doctor`."""
import sys
from typing import NoReturn

from ._paths import become_command


def main() -> NoReturn:
    """Replaces this process by the command."""
    become_command(*sys.argv[1:])


if __name__ == "__main__":
    main()
