# SPDX-License-Identifier: Apache-2.0
"""python -m onehop.torch build: compiles for the installed torch now, for images and shared caches."""

import argparse
import sys
import time

from . import _build


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m onehop.torch", description=__doc__.splitlines()[0])
    parser.add_subparsers(dest="command", required=True).add_parser("build", help="compile into the cache")
    parser.parse_args()
    for extension in (_build.BACKEND, _build.OPS):
        begin = time.monotonic()
        try:
            path = _build.load_path(extension)
        except (RuntimeError, OSError) as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{path} ({time.monotonic() - begin:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
