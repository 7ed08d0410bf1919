#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the library, the command and the examples, on every core, and remembers what was clean.

    scripts/clang-tidy.py BUILD_DIR [PATH...]     PATH limits the run to files below it

A file is checked again only when it, a header of ours that it includes, its compile command or .clang-tidy has changed.
The build should have no tests and compile many files as one (the preset "lint"): GoogleTest's macros make up most of what
clang-tidy says about tests, at three times the cost, and what a test does wrong shows when it runs, under the sanitizers.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def sources(file):
    """The sources in a file of a unity build, or the file itself."""
    if not file.name.startswith("unity_"):
        return [file]
    return [Path(name.decode()) for name in INCLUDE.findall(file.read_bytes())]


def selected(file, wanted):
    paths = [source.relative_to(ROOT).as_posix() for source in sources(file) if source.suffix == ".cc"]
    return any(not path.startswith("tests/") and (not wanted or any(path.startswith(w) for w in wanted)) for path in paths)


def own_files(file):
    """The file and every header of ours that it includes, directly or not."""
    seen, left = set(), [file]
    while left:
        current = left.pop()
        if current in seen:
            continue
        seen.add(current)
        for name in INCLUDE.findall(current.read_bytes()):
            for base in (current.parent, ROOT / "src", ROOT / "include", ROOT / "tools" / "onehop"):
                header = base / name.decode()
                if header.is_file():
                    left.append(header.resolve())
                    break
    return sorted(seen)


def fingerprint(entry, version):
    digest = hashlib.sha256(version)
    digest.update((ROOT / ".clang-tidy").read_bytes())
    digest.update(entry["command"].encode())
    for file in own_files(Path(entry["file"])):
        digest.update(str(file).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def check(entry, build):
    # A unity build's file includes sources, and GCC has warnings that clang does not know.
    result = subprocess.run(["clang-tidy", "--quiet", "--checks=-bugprone-suspicious-include",
                             "--extra-arg=-Wno-unknown-warning-option", "-p", str(build), entry["file"]],
                            capture_output=True, text=True, check=False)
    return result.returncode == 0, result.stdout.strip() or result.stderr.strip()


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    build, wanted = Path(arguments[0]).resolve(), arguments[1:]
    database = build / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"clang-tidy: {database} does not exist; configure that build first")
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    cache = build / "clang-tidy-clean"
    cache.mkdir(exist_ok=True)

    # One entry per file: the layers are compiled once each, but nothing forbids another target to share a source.
    entries = {e["file"]: e for e in json.loads(database.read_text())
               if Path(e["file"]).is_relative_to(ROOT) and selected(Path(e["file"]), wanted)}
    prints = {file: fingerprint(entry, version) for file, entry in entries.items()}
    todo = [entry for file, entry in entries.items() if not (cache / prints[file]).exists()]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        for entry, (clean, output) in zip(todo, pool.map(lambda e: check(e, build), todo)):
            if clean:
                (cache / prints[entry["file"]]).touch()
            else:
                failed += 1
                print(output, flush=True)
    print(f"clang-tidy: {len(entries)} files, {len(todo)} checked now, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
