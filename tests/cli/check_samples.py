#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that documents show below the line
<!-- the next commands run in a test -->
and compares what they print with the sample.

    tests/cli/check_samples.py ONEHOP [ROOT]   with that command (default: the documents of this repository)
    tests/cli/check_samples.py --self-test     show that each rule catches what it is for

Numbers, dates, hosts, commits, processors and instruction sets may differ, and so may widths, where lines that begin with "# " are
wrapped, and the order of lines: ranks print side by side. If the sample has a line "...", the command may print more. Lines in
VARIES depend on the machine and are not compared. A file that a document shows by `cat FILE` is there when its commands run.
"""
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

BLOCK = re.compile(r"^<!-- the next commands run in a test -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^\$ cat ([\w.-]+)\n((?:[^$`].*\n)+)", re.MULTILINE)
SAME = (
    (r"(bound to cores, )?(\d+ rounds) .* cores, Linux \S+ \S+ on \S+: ", r"\2 MACHINE, DATE on HOST: "),
    (r"^\d{4}-\d\d-\d\dT\S+ on \S+: ", "DATE on HOST: "),
    (r"^(# onehop \S+) \(\S+\)", r"\1"),
    (r" \([0-9a-f]{7,40}(-dirty)?\)", ""),
    (r"(Cpus_allowed_list:\s+)[\d,-]+", r"\1N"),
    (r"\b(avx512|avx2|baseline)\b", "ISA"),
    (r"below /\S+", "below DIRECTORY"),
    (r"\bunlimited\b|\b\d+ bytes\b", "N"),
    (r"waits (spin|yield).*", "waits"),
    (r"\d+(\.\d+)?", "N"),
    (r"\s+", " "),
)
VARIES = re.compile(r"  (ok|no|- ) (single copy|huge pages|/dev/shm|pidfd|cores|processor|confinement|libonehop_nccl|yama|device files|CUDA|NVML|GPU)"
                    r"| {34}-> |The GPU backend |# note: other programs ")


def normalized(line):
    for pattern, word in SAME:
        line = re.sub(pattern, word, line)
    return line


def lines_of(text):
    lines = [line for line in text.splitlines() if line and not VARIES.match(line)]
    return [normalized(line) for line in re.sub(r"(?<=# )(.*)\n# (?=.)", r"\1 ", "\n".join(lines)).split("\n")] if lines else []


def samples(text):
    """(command, its output) of all blocks."""
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def complaints(command, sample, output):
    shown, printed = lines_of(sample), lines_of(output)
    for line in Counter(shown) - Counter(printed):
        if line != "...":
            yield f"'{command}' does not print: {line}"
    if "..." not in shown:
        for line in Counter(printed) - Counter(shown):
            yield f"the sample of '{command}' lacks: {line}"


def check(onehop, root):
    found = 0
    wrong = []
    clean = {name: value for name, value in os.environ.items()
             if not re.match(r"(ONEHOP|OMPI|PMIX?|SLURM|TORCHELASTIC)_|(LOCAL_)?(RANK|WORLD_SIZE)$", name)}
    with tempfile.TemporaryDirectory(prefix="onehop-samples-") as directory:
        path = f"{Path(onehop).resolve().parent}:{clean['PATH']}"
        for page in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
            text = page.read_text()
            for name, content in FILE.findall(text):
                Path(directory, name).write_text(content)
            for command, sample in samples(text):
                found += 1
                ended = subprocess.run(command, shell=True, cwd=directory, text=True, timeout=60, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                       env={**clean, "PATH": path, "ONEHOP_RUNTIME_DIR": directory, "CUDA_VISIBLE_DEVICES": ""})
                wrong += [f"{page.relative_to(root)}: {each}" for each in complaints(command, sample, ended.stdout)]
    if not found:
        wrong.append("no document has a sample that runs")
    for each in wrong:
        print(each)
    print(f"{found} samples, {len(wrong)} lines differ")
    return 1 if wrong else 0


# Sample, output, and a word of the complaint it must cause (None: it must pass).
SELF_TEST = [
    ("took 3.4 ms\n", "took 12 ms\n", None),
    ("8192 bytes; none\n", "unlimited; none\n", None),
    ("a\nb\n", "b\na\n", None),
    ("[0] 0 of 2\n[1] 1 of 2\n", "[0] 0 of 2\n", "does not print: [N] N of N"),
    ("old text\n", "new text\n", "does not print: old text"),
    ("a\n", "a\nb\n", "lacks: b"),
    ("a\n...\n", "a\nb\n", None),
    ("# 7 rounds\n# A CPU, 2 cores, Linux 6.1\n# 2026-01-01T00:00:00Z on vm: onehop x --y\n# z\n   1   2\n",
     "# 7 rounds\n# Another, of a\n# long name, 64 cores, Linux 6.12.1-x\n# 2026-01-02T00:00:00Z on a.host: onehop x\n# --y z\n 10 20\n", None),
    ("# 7 rounds\n# onehop x --y\n", "# 7 rounds\n# onehop x --w\n", "does not print: # N rounds onehop x --y"),
    ("# onehop 0.1.0 (9bcccde) x\n", "# onehop 0.1.0 (v0.1.0-3-g9bcccde) x\n", None),
    ("0: Cpus_allowed_list:\t0\n", "0: Cpus_allowed_list:\t0,32\n", None),
    ("  ok cores 2 usable\n", "  ok cores 64 usable\n  -  yama ptrace_scope 1\n", None),
    ("  ok sealed memfd  create\n", "  no sealed memfd  failed\n", "does not print:  ok sealed memfd"),
]


def self_test():
    for sample, output, word in SELF_TEST:
        found = list(complaints("x", sample, output))
        assert any(word in each for each in found) if word else not found, (sample, output, found)
    page = "<!-- the next commands run in a test -->\n```console\n$ A=1 onehop x\nout\n$ onehop y\n```\n```console\n$ not this\n```\n"
    assert list(samples(page)) == [("A=1 onehop x", "out\n"), ("onehop y", "")]
    print(f"{len(SELF_TEST)} cases")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        sys.exit(check(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).resolve().parents[2])))
