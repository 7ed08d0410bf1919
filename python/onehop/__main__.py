# SPDX-License-Identifier: Apache-2.0
"""The onehop command, which the package brings along: `python -m onehop doctor`."""
import os
import sys
from typing import NoReturn

from ._paths import command


def main() -> NoReturn:
    """Replaces this process by the command."""
    program = str(command())
    try:
        os.execv(program, ["onehop", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"onehop: cannot run {program}: {error.strerror}; reinstall the package")


if __name__ == "__main__":
    main()
