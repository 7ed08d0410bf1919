#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source file names its license, in its first line or after the one that names its interpreter.

    scripts/spdx.py              adds the line where it is missing; changes nothing else, and nothing when run again
    scripts/spdx.py --check      says which files lack it; exit code 1 if any does
    scripts/spdx.py --self-test
"""
import subprocess
import sys
import tempfile
from pathlib import Path

LINE = "SPDX-License-Identifier: Apache-2.0"
# Patterns of git, and how a comment of one line begins and ends there. /* */ where a reader may be older than //.
COMMENTS = (
    ("// ", "", ("*.h", "*.cc", "*.cuh", "*.cu")),
    ("/* ", " */", ("*.c", "*.S", "*.pml")),
    ("# ", "", ("*.py", "*.sh", "*.cmake", "*.cmake.in", "CMakeLists.txt", "*/CMakeLists.txt", "Makefile", ".ci/run")),
)


def sources(root):
    """Tracked files, and those that are about to be."""
    for begin, end, patterns in COMMENTS:
        # Whoever owns the checkout: nothing of it is run.
        listed = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard", "--", *patterns], check=True, capture_output=True, text=True).stdout
        for name in sorted(set(listed.split("\0")) - {""}):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink():
                yield path, begin + LINE + end


def place_of(lines):
    return 1 if lines and lines[0].startswith("#!") else 0


def has_line(text, comment):
    lines = text.split("\n")
    at = place_of(lines)
    return len(lines) > at and lines[at] == comment


def with_line(text, comment):
    lines = text.split("\n")
    lines.insert(place_of(lines), comment)
    return "\n".join(lines)


def run(root, check):
    """Returns the files that lacked the line."""
    lacking = []
    for path, comment in sources(root):
        text = path.read_text()
        if not has_line(text, comment):
            lacking.append(path.relative_to(root))
            if not check:
                path.write_text(with_line(text, comment))
    return lacking


def self_test():
    files = {"a.cc": ("int a;\n", f"// {LINE}\nint a;\n"), "b.c": ("", f"/* {LINE} */\n"),
             "c.sh": ("#!/bin/sh\ntrue\n", f"#!/bin/sh\n# {LINE}\ntrue\n"), "d/CMakeLists.txt": ("x()\n", f"# {LINE}\nx()\n"),
             "e.h": (f"// {LINE}\nint e;\n", None), "f.md": ("text\n", None), "g.py": (f"#!/usr/bin/python3\n# {LINE}\n", None)}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        subprocess.run(["git", "init", "-q", root], check=True)
        for name, (before, _) in files.items():
            Path(root, name).parent.mkdir(exist_ok=True)
            Path(root, name).write_text(before)
        lacking = [name for name, (_, after) in files.items() if after]
        wrong = []
        if sorted(map(str, run(root, check=True))) != sorted(lacking):
            wrong.append("the check does not name the files that lack the line")
        if any(Path(root, name).read_text() != before for name, (before, _) in files.items()):
            wrong.append("the check changes files")
        run(root, check=False)
        wrong += [f"{name} became {text!r}" for name, (before, after) in files.items()
                  if (text := Path(root, name).read_text()) != (after or before)]
        if run(root, check=False):
            wrong.append("the second run changes files")
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    check = bool(arguments)
    root = Path(__file__).resolve().parents[1]
    if not Path(root, ".git").exists():
        print("skipped: git knows which files are sources, and this is no checkout")
        return 0
    lacking = run(root, check)
    for path in lacking:
        print(f"{path}: {'no' if check else 'added'} '{LINE}'{' (scripts/spdx.py adds it)' if check else ''}")
    return 1 if check and lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
