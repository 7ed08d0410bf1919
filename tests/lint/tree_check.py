# SPDX-License-Identifier: Apache-2.0
"""What the checks of a tree share: their command line, and the self-test that shows that each rule catches what it is for."""
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def judge(cases, check):
    """The exit code of a self-test. `cases` are (name, {path: text}, word): in a tree of these files `check(root)` must complain
    with that word, or say nothing where it is None."""
    wrong = 0
    for name, files, expected in cases:
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                file = Path(root, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            _, complaints = check(Path(root))
        caught = any(expected in complaint for complaint in complaints) if expected else not complaints
        if not caught:
            wrong += 1
            print(f"{name}: expected {expected or 'no complaint'}, got {complaints}", file=sys.stderr)
    print(f"{len(cases) - wrong} of {len(cases)} cases judged right")
    return 1 if wrong else 0


def main(check, cases, self_check=None):
    """The exit code of `PROGRAM [ROOT | --self-test]`. `check(root)` returns how much it looked at, and its complaints;
    `self_check` takes its place in the self-test."""
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return judge(cases, self_check or check)
    root = Path(arguments[0]) if arguments else ROOT
    seen, complaints = check(root)
    if seen == 0:
        complaints = [f"nothing to check under {root}"]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0
