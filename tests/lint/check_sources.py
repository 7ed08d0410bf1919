#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks docs/sources.md: every behavior that it numbers is there with all its cells, and the files, functions and tests
that it names exist.

    tests/lint/check_sources.py [ROOT]        check a tree (default: this repository)
    tests/lint/check_sources.py --self-test   show that each rule catches what it is for
"""
import re
import sys

import tree_check

PAGE = "docs/sources.md"
ROWS = {"000": 33, "001": 33, "002": 23, "003": 23, "004": 29}
NUMBERS = [f"{table}.{i}" for table, count in ROWS.items() for i in range(1, count + 1)]
CELLS = ["behavior", "in onehop", "differs", "test"]
UNTESTED = {"001.7", "001.24"}  # ROCm

LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)\)")
CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"^\| (\d{3}\.\d+) \|(.*)\|\s*$", re.MULTILINE)
GTEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
EXAMPLE = re.compile(r"^\s*onehop_example\((\w+)([^)]*)\)", re.MULTILINE)
CTEST = re.compile(r"\badd_test\(NAME ([\w.]+)")
# Files whose tests run only where there are GPUs.
ON_GPUS = re.compile(r"tests/gpu/|tests/(\w+/)?cuda_|.*/real_devices_test")


def tests_of(root):
    """The names of all tests, as ctest has them but for the parameters of a suite, and whether they need GPUs."""
    tests = {}
    for top in ("src", "tests"):
        for file in (root / top).rglob("*_test.cc"):
            needs_gpus = ON_GPUS.match(file.relative_to(root).as_posix()) is not None
            tests.update({f"{suite}.{name}": needs_gpus for suite, name in GTEST.findall(file.read_text())})
    for top in ("src", "tests", "examples"):
        for file in (root / top).rglob("CMakeLists.txt"):
            text = file.read_text()
            tests.update({f"example.{name}": "CUDA" in options.split() for name, options in EXAMPLE.findall(text)})
            tests.update(dict.fromkeys(CTEST.findall(text), False))
    for file in root.glob("tests/fuzz/fuzz_*.cc"):
        tests[f"fuzz_replay.{file.stem.removeprefix('fuzz_')}"] = False
    return tests


def check_where(root, cell):
    targets = LINK.findall(cell)
    text = ""
    for target in targets:
        file = (root / PAGE).parent / target
        if file.is_file():
            text += file.read_text()
        else:
            yield f"there is no file {target}"
    if not targets:
        yield "no file is linked"
    elif text:
        for name in CODE.findall(cell):
            for part in name.split("::"):
                if not re.search(rf"\b{re.escape(part)}\b", text):
                    yield f"`{name}` is in none of the files that it links"
                    break


def check_tests(cell, tests):
    names = CODE.findall(cell)
    if not names:
        yield "no test is named"
    elif all(tests.get(name, False) for name in names) != cell.startswith("only on GPUs: "):
        yield "must begin with 'only on GPUs: ' if no other test is named, and not otherwise"
    for name in names:
        if name not in tests:
            yield f"there is no test {name}"


def check_row(root, number, cells, tests):
    if len(cells) != len(CELLS):
        yield f"{len(cells)} cells after the number, expected {len(CELLS)}"
        return
    for name, cell in zip(CELLS, cells):
        if not cell or "TODO" in cell:
            yield f"'{name}' is still to be filled in"
    _, where, differs, test = cells
    if number in UNTESTED:
        if not differs.startswith("none: ") or not test.startswith("no test: "):
            yield "must say 'none: ' and 'no test: ', each with a reason"
        return
    if not re.match(r"equal\b|(better|different)(: |, as above)", differs):
        yield f"'{differs[:20]}' is neither equal nor better or different with how"
    yield from check_where(root, where)
    yield from check_tests(test, tests)


def check_tree(root, expected=tuple(NUMBERS)):
    root = root.resolve()
    page = root / PAGE
    if not page.is_file():
        return 1, [f"there is no {PAGE}"]
    tests = tests_of(root)
    found = [(number, [cell.strip() for cell in text.split("|")]) for number, text in ROW.findall(page.read_text())]
    complaints = []
    if [number for number, _ in found] != list(expected):
        missing = [number for number in expected if number not in dict(found)]
        complaints.append(f"the rows are not {len(expected)} in order; missing: {' '.join(missing) or 'none'}")
    complaints += [f"row {number}: {what}" for number, cells in found for what in check_row(root, number, cells, tests)]
    return len(expected), [f"{PAGE}: {each}" for each in complaints]


# A row of the page, what else the tree has, and a word of the complaint they must cause (None: they must pass).
TREE = {
    "src/a.cc": "void f() {}\nint A::g() {}\n",
    "src/a_test.cc": "TEST(Suite, Name) {\n",
    "tests/b_test.cc": "TEST_P(Other, Name) {\n",
    "tests/gpu/b_test.cc": "TEST_P(Gpu, Name) {\n",
    "tests/fault/cuda_b_test.cc": "TEST_F(GpuFault, Name) {\n",
    "src/cuda_b_test.cc": "TEST(Driver, Name) {\n",
    "tests/fuzz/fuzz_c.cc": "",
    "examples/CMakeLists.txt": "onehop_example(d 01_d.cu RANKS 2 CUDA)\nadd_test(NAME example.e\n  COMMAND e)\n",
}
SELF_TEST = [
    ("| 000.1 | It does. | [a.cc](../src/a.cc) `f`, `A::g` | equal | `Suite.Name` |", None),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | better: more | `Other.Name`, `fuzz_replay.c` |", None),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | different: less | only on GPUs: `Gpu.Name`, `GpuFault.Name`, `example.d` |", None),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal | `Gpu.Name`, `example.e` |", None),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal | `Driver.Name` |", None),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal | `Gpu.Name` |", "'only on GPUs: ' if"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal | only on GPUs: `Suite.Name` |", "'only on GPUs: ' if"),
    ("| 000.2 | It does. | [a.cc](../src/a.cc) | equal | `Suite.Name` |", "missing: 000.1"),
    ("", "missing: 000.1"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal |", "3 cells"),
    ("| 000.1 | | [a.cc](../src/a.cc) | equal | `Suite.Name` |", "'behavior' is still"),
    ("| 000.1 | It does. | [b.cc](../src/b.cc) | equal | `Suite.Name` |", "no file ../src/b.cc"),
    ("| 000.1 | It does. | nothing | equal | `Suite.Name` |", "no file is linked"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) `h` | equal | `Suite.Name` |", "`h` is in none"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) `B::g` | equal | `Suite.Name` |", "`B::g` is in none"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | better | `Suite.Name` |", "neither equal"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | worse | `Suite.Name` |", "neither equal"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | none: no | no test: no |", "neither equal"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal | none |", "no test is named"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal | `Suite.Names` |", "no test Suite.Names"),
    ("| 000.1 | It does. | [a.cc](../src/a.cc) | equal | TODO(branch), `Suite.Name` |", "'test' is still"),
    ("| 001.7 | It does. | nothing | none: why | no test: why |", None),
    ("| 001.7 | It does. | nothing | none | none |", "each with a reason"),
]


def cases():
    for row, expected in SELF_TEST:
        yield row, {**TREE, PAGE: f"# Rows\n\n| | a |\n|---|---|\n{row}\n"}, expected


def check_one_row(root):
    return check_tree(root, ["001.7"] if "| 001.7 |" in (root / PAGE).read_text() else ["000.1"])


if __name__ == "__main__":
    sys.exit(tree_check.main(check_tree, list(cases()), check_one_row))
