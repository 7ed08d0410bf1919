# SPDX-License-Identifier: Apache-2.0
"""Runs a program that uses NCCL with libonehop_nccl.so in NCCL's place, as `onehop nccl-run` does:

    python -m onehop.nccl train.py            a Python program, with this Python
    python -m onehop.nccl torchrun ...        any other
    python -m onehop.nccl --mode off train.py

docs/nccl.md says what is carried, and what the modes are.
"""
import sys
from typing import NoReturn

from ._paths import become_command


def main() -> NoReturn:
    """Replaces this process by the program."""
    options, program = [], sys.argv[1:]
    while program and program[0].startswith("-") and program[0] != "--":
        takes_value = program[0] == "--mode"
        options += program[:1 + takes_value]
        program = program[1 + takes_value:]
    if program[:1] == ["--"]:
        program = program[1:]
    if program and program[0].endswith(".py"):
        program = [sys.executable, *program]
    become_command("nccl-run", *options, "--", *program)


if __name__ == "__main__":
    main()
