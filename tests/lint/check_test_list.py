#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what ctest lists in a build tree: names that people can read and pass on, and GPU tests as one entry where there
is no GPU.

    tests/lint/check_test_list.py BUILD

Names are what --gtest_filter takes: letters, digits and a few signs. A parameter that nobody named shows its number and
one that nobody prints its bytes, which differ in every run.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = re.compile(r"[\w./-]+")
BYTES = re.compile(rb"\d+-byte object")
FILTER = "--gtest_filter="


def listed(build, gpu_tests):
    # ctest writes logs where it is asked, and another one is running in the build tree.
    with tempfile.TemporaryDirectory(prefix="onehop-test-list-") as outside:
        Path(outside, "CTestTestfile.cmake").write_text(f"subdirs([==[{build}]==])\n")
        shown = subprocess.run(["ctest", "--test-dir", outside, "--show-only=json-v1"], check=True, capture_output=True,
                               env=os.environ | {"ONEHOP_GPU_TESTS": gpu_tests})
    return json.loads(shown.stdout)["tests"]


def labels(test):
    return next((each["value"] for each in test.get("properties", []) if each["name"] == "LABELS"), [])


def programs_of(tests):
    """GoogleTest programs, of which ctest knows how to run one test."""
    return sorted({test["command"][0] for test in tests
                   if any(argument.startswith(FILTER) for argument in test.get("command", []))})


def complaints_about(every, without_gpus):
    if len(every) < 2:
        yield f"ctest lists {len(every)} tests"
    for test in every:
        if not NAME.fullmatch(test["name"]):
            yield f"the name '{test['name']}'"
    for program in programs_of(every):
        shown = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True).stdout
        for line in shown.splitlines():
            if BYTES.search(line):
                yield f"{program} prints bytes: '{line.decode(errors='replace').strip()}' (give the type a PrintTo)"
    on_gpus = [test["name"] for test in every if "cuda" in labels(test)]
    left = [test["name"] for test in without_gpus if "cuda" in labels(test)]
    if on_gpus and left != ["gpu_tests"]:
        yield f"without GPUs ctest lists {len(left)} tests labeled cuda, which must be the one entry gpu_tests"


def main(build):
    complaints = list(complaints_about(listed(build, "all"), listed(build, "none")))
    for complaint in complaints[:20]:
        print(f"check_test_list.py: {complaint}", file=sys.stderr)
    if len(complaints) > 20:
        print(f"... and {len(complaints) - 20} more", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
