#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Types lines into bash, zsh and fish, and looks at what they complete them to.

    completions_test.py FOLDER [SHELL...]      FOLDER: has onehop.bash, _onehop and onehop.fish

A shell that is not here is skipped.
"""
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 30
# What is typed, and the line after a tab.
LINES = [
    ("onehop doc", "onehop doctor"),
    ("onehop bench all-r", "onehop bench all-reduce"),
    ("onehop help env", "onehop help environment"),
    ("onehop bench all --peer n", "onehop bench all --peer nccl"),
    ("onehop bench all --type b", "onehop bench all --type bf16"),
    ("onehop bench all --type=b", "onehop bench all --type=bf16"),
    ("onehop bench --type=bf16 --op=pre", "onehop bench --type=bf16 --op=premul_sum"),
    ("onehop bench all --peer=n", "onehop bench all --peer=nccl"),
    ("onehop bench all --mode=iso", "onehop bench all --mode=isolated"),
    ("onehop tune --links nv", "onehop tune --links nvlink"),
    ("onehop tune --types bf16,e4", "onehop tune --types bf16,e4m3"),
    ("onehop tune --types=bf16,f32,e4", "onehop tune --types=bf16,f32,e4m3"),
    ("onehop tune --collectives all-reduce,bro", "onehop tune --collectives all-reduce,broadcast"),
    ("onehop tune --explain all-r", "onehop tune --explain all-reduce"),
    ("onehop tune --explain all-reduce 4M b", "onehop tune --explain all-reduce 4M bf16"),
    ("onehop tune --explain all-reduce 4M", "onehop tune --explain all-reduce 4M"),
    ("onehop tune --explain all-reduce 4M bf16 --sym", "onehop tune --explain all-reduce 4M bf16 --symmetric"),
    ("onehop compare re", "onehop compare report.json"),
    ("onehop compare report.json fol", "onehop compare report.json folder/"),
    ("onehop compare report.json folder/", "onehop compare report.json folder/inner.json"),
    ("onehop compare a", r"onehop compare a\ b.json"),
    ("onehop bench --from re", "onehop bench --from report.json"),
    ("onehop bench --from=re", "onehop bench --from=report.json"),
    ("onehop bench all --html re", "onehop bench all --html report.html"),
    ("onehop tune --out re", "onehop tune --out report.json"),
    ("onehop topo --svg re", "onehop topo --svg report.svg"),
    ("onehop launch --log-dir fo", "onehop launch --log-dir folder/"),
    ("onehop launch -n 2 -- ./rep", "onehop launch -n 2 -- ./report."),
    ("onehop launch -n 2 ./rep", "onehop launch -n 2 ./report."),
    ("onehop launch -n 2 --bind=nu", "onehop launch -n 2 --bind=numa"),
    ("onehop launch -n re", "onehop launch -n re"),
]
FILES = ["report.json", "report.html", "report.svg", "a b.json", "a c.txt", "folder/inner.json", "folder/inner.txt"]
# What is offered where there are several, in bash: "=" is a word of its own in COMP_WORDS.
OFFERS = [
    (["bench", "all", "--type", "=", ""], ["bf16", "e4m3", "e5m2", "f16", "f32", "f64", "i32", "i64", "i8", "u32", "u64", "u8"]),
    (["bench", "all", "--type", "="], ["bf16", "e4m3", "e5m2", "f16", "f32", "f64", "i32", "i64", "i8", "u32", "u64", "u8"]),
    (["bench", "all", "--type", "=", "i"], ["i32", "i64", "i8"]),
    (["bench", "all", "--type=i"], ["--type=i32", "--type=i64", "--type=i8"]),
    (["tune", "--types=i8,i"], ["--types=i8,i32", "--types=i8,i64"]),
    (["tune", "--types", "i32,i"], ["i32,i64", "i32,i8"]),
    (["tune", "--types", "=", "i32,i8,i"], ["i32,i8,i64"]),
    (["tune", "--collectives", "all-reduce,all-"], ["all-reduce,all-gather", "all-reduce,all-to-all"]),
    (["tune", "--links", ""], ["nvlink", "pcie"]),
    (["tune", "--explain", "=", "all-"], ["all-gather", "all-reduce", "all-to-all"]),
    (["tune", "--explain", "all-reduce", "4M", "i"], ["i32", "i64", "i8"]),
    (["tune", "--explain", "all-reduce", ""], []),
    (["compare", ""], ["a b.json", "folder", "report.json"]),
    (["compare", "--html", "=", "re"], ["report.html"]),
    (["compare", "--fa"], ["--fail"]),
    (["topo", "--json", "--s"], ["--svg"]),
    (["launch", "--log-dir", ""], ["folder"]),
    (["launch", "-n", "2", "--", "--js"], []),
]


class Terminal:
    """A shell that works in `folder`. Ctrl-X w writes the line to the file `line`."""

    def __init__(self, command, folder, setup):
        self._line = folder / ".line"
        self._output = b""
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        self._send(f"{setup}; echo > .line\n")
        self._wait()

    def _send(self, text):
        os.write(self._terminal, text.encode())

    def _wait(self):
        """Until the file is complete, which ends in a newline."""
        end = time.monotonic() + LIMIT_S
        while not (self._line.exists() and self._line.read_text().endswith("\n")):
            if select.select([self._terminal], [], [], 0.01)[0]:
                self._output += os.read(self._terminal, 1 << 16)
            if time.monotonic() > end:
                sys.exit(f"the shell does not answer; it wrote:\n{self._output.decode(errors='replace')}")
        text = self._line.read_text()[:-1]
        self._line.unlink()
        return text

    def complete(self, line):
        self._send(f"\x15{line}\t\x18w")
        return self._wait()

    def end(self):
        os.close(self._terminal)
        os.waitpid(self._pid, 0)  # it may write its history


def bash(folder, documents):
    setup = f"bind 'set bell-style none'; bind -x '\"\\C-xw\": printf \"%s\\n\" \"$READLINE_LINE\" > .line'; source {shlex.quote(str(documents))}/onehop.bash"
    return Terminal(["bash", "--norc", "--noprofile", "-i"], folder, setup)


def zsh(folder, documents):
    setup = (f"unsetopt beep; fpath=({shlex.quote(str(documents))} $fpath); autoload -Uz compinit; compinit -u -D; w() print -r -- $BUFFER > .line; "
             "zle -N w; bindkey -e; bindkey '^Xw' w")
    return Terminal(["zsh", "-f", "-i"], folder, setup)


def offered_by_bash(words, folder, documents):
    script = 'set -u; source "$0/onehop.bash"; COMP_WORDS=(onehop "$@") COMP_CWORD=$#; _onehop; printf "%s\\n" "${COMPREPLY[@]}"'
    ran = subprocess.run(["bash", "-c", script, documents, *words], cwd=folder, text=True, stdout=subprocess.PIPE, check=True)
    return sorted(filter(None, ran.stdout.split("\n")))


def offered_by_fish(line, folder, documents):
    """It says so without a terminal."""
    environment = {**os.environ, "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(["fish", "--no-config", "-c", "source $argv[1]/onehop.fish; complete -C $argv[2]", documents, line],
                         cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    return [each.partition("\t")[0] for each in ran.stdout.splitlines()]


def complaints_about(shell, folder, documents):
    if shell == "bash":
        for words, expected in OFFERS:
            offered = offered_by_bash(words, folder, documents)
            if offered != expected:
                yield f"bash offers {offered} for {words}, not {expected}"
    if shell == "fish":
        for line, expected in LINES:
            wanted = expected.split(" ", line.count(" "))[-1].replace("\\", "")
            first = offered_by_fish(line, folder, documents)[:1]
            good = not first if line == expected else first and first[0].startswith(wanted)
            if not good:
                yield f"fish offers {first} for '{line}', not '{wanted}'"
        return
    terminal = {"bash": bash, "zsh": zsh}[shell](folder, documents)
    for line, expected in LINES:
        completed = terminal.complete(line)
        if completed.rstrip(" ,") != expected:
            yield f"{shell} completes '{line}' to '{completed}', not '{expected}'"
    terminal.end()


def main(documents, *shells):
    complaints = []
    for shell in shells or ("bash", "zsh", "fish"):
        if not shutil.which(shell):
            print(f"skipped: there is no {shell} here")
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for each in FILES:
                (folder / each).parent.mkdir(exist_ok=True)
                (folder / each).touch()
            complaints += complaints_about(shell, folder, str(Path(documents).resolve()))
    for each in complaints:
        print(each, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
