#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files use the terms of the field, and none of the private words that earlier versions had for the same things.

    tests/lint/check_words.py [ROOT]        check a tree (default: this repository)
    tests/lint/check_words.py --self-test   show that each rule catches what it is for
"""
import re
import sys

import tree_check

TOPS = ("src", "include", "tools", "nccl", "docs", "tests", "examples", "bench", "python/src")
# History, data from elsewhere, and this list.
SKIPPED = ("bench/results", "docs/decisions", "tests/data", "tests/fuzz/corpus", "tests/lint/check_words.py")
SUFFIXES = {".c", ".cc", ".cmake", ".cu", ".cuh", ".h", ".in", ".inc", ".md", ".pml", ".py", ".sh", ".txt"}


def word(forms):
    """Alone or as part of a snake_case name, in any case."""
    return rf"(?<![A-Za-z])(?i:{forms})(?![A-Za-z])"


def name(forms):
    """Exactly this identifier."""
    return rf"\b(?:{forms})\b"


# What must not be written, and what to write instead.
RETIRED = [(re.compile(pattern), instead) for pattern, instead in (
    (r"(?i:self[-_ ]?timed)", "push"),
    (word("meetings?"), "barrier"),
    (r"\bmeet(_\w+)?\(|`meet(_\w+)?`", "barrier"),
    (word("gates?"), "barrier, handshake"),
    (r"(?<!e-)" + word("mail|mailbox|mailboxes"), "Lamport buffer"),
    (r"(?<!gpu-)" + word("bundles?|bundled"), "packed LL, unit"),
    (name("Flagged") + r"|\bflagged\.(cuh|pml)", "LL"),
    (name("Pair(Links?|Streams?|Messages?|Head)") + r"|pair_(link|stream|message)s?", "point-to-point channel, ring"),
    (word("relay|relays|relayed"), "forward, scatter and all-gather"),
    (word("consult|consults|consulted"), "check, use"),
    (word("minds"), "a plain verb"),
    (word("speaks"), "a plain verb"),
    (word("twins?"), "what it is"),
    (word("alike"), "the same, in the same way, equally"),
    (word("rigs?"), "context"),
    (word("contenders?"), "implementation"),
    (word("spots?"), "position, offset"),
    (word("teams?") + r"|\b[A-Z]\w*Team\b", "communicator, group, step barrier"),
    (name("Way|(Default|Device|Host)Way|candidate_ways"), "algorithm, choice"),
    (name("ShareWays|share_ways(_test)?"), "share methods"),
    (name("DeviceProtocol"), "algorithm"),
    (name("(Call|Pointer)Defect"), "argument error, pointer error"),
    (r"\bsrc/kernel\b|(?<!/)\bkernel/(cuda|host)\b", "src/backend"),
    (r"\bgil_scoped_\w+", "without_gil or with_gil (python/src/gil.h), which end well when the interpreter does"),
)]


def check_line(text):
    for pattern, instead in RETIRED:
        for found in sorted({match[0] for match in pattern.finditer(text)}):
            yield f"'{found}': write {instead}"


def check_tree(root):
    files = [
        file for top in TOPS for file in sorted((root / top).rglob("*"))
        if file.is_file() and file.suffix in SUFFIXES
        and not any(file.relative_to(root).is_relative_to(skipped) for skipped in SKIPPED)
    ]
    complaints = []
    for file in files:
        path = file.relative_to(root)
        complaints += [f"{path}: the name has {what}" for what in check_line(path.name)]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            complaints += [f"{path}:{number}: {what}" for what in check_line(line)]
    return len(files), complaints


# A line, and how the advice of the complaint must begin (None: the line must pass).
LINES = [
    ("class SelfTimed {", "push"),
    ("// A self-timed all-reduce.", "push"),
    ("// Meetings of all ranks.", "barrier"),
    ("  if (!meet(p)) return;", "barrier"),
    ("| `meet_at_place` | release |", "barrier"),
    ("  open_gate();", "barrier, handshake"),
    ("constexpr int kMost = mail_bytes(4);", "Lamport buffer"),
    ("// Floats travel through mailboxes.", "Lamport buffer"),
    ("// Messages as bundles.", "packed LL"),
    ("struct Flagged {};", "LL"),
    ("// See flagged.cuh.", "LL"),
    ("  PairStream(p).send();", "point-to-point channel"),
    ('#include "a/pair_links.h"', "point-to-point channel"),
    ("  relay_stream(p);", "forward"),
    ("#define MUTATION_NO_RELAY", "forward"),
    ("  deadline = consult(guard);", "check"),
    ("// A rank that minds.", "a plain verb"),
    ("// The server speaks first.", "a plain verb"),
    ("// The twin of send().", "what it is"),
    ("// All ranks choose alike.", "the same"),
    ("  run(rig);", "context"),
    ("  for (auto& contender : all)", "implementation"),
    ("// The spot in symmetric memory.", "position"),
    ("class DeviceTeam;", "communicator"),
    ("  team_.publish();", "communicator"),
    ("// See device_team.cc.", "communicator"),
    ("  const Way way = choose();", "algorithm"),
    ("  ShareWays usable;", "share methods"),
    ("  candidate_ways(2);", "algorithm"),
    ("  DeviceProtocol protocol;", "algorithm"),
    ("  CallDefect defect;", "argument error"),
    ("// src/kernel/host/reduce.h", "src/backend"),
    ("// (kernel/cuda/call.cuh)", "src/backend"),
    ("  const nb::gil_scoped_release release;", "without_gil"),
    # The same letters in ordinary English, in longer words and in paths of others.
    ("// The calls meet at the barrier, in place of a copy; this is the only way to exchange data both ways.", None),
    ("// One steam engine, delegated and aggregated, spotless, original, mind that each speaker may twine.", None),
    ("// Send an e-mail; scripts/gpu-bundle.sh packs it; a chunked copy; two defects; passed in chunks.", None),
    ("  first_line(\"/proc/sys/kernel/yama\"); // the kernel of the host, and a pair of messages", None),
]
SELF_TEST = [(line, {"src/a.h": f"{line}\n"}, instead and f"write {instead}") for line, instead in LINES] + [
    ("names of files", {"src/self_timed.cuh": "\n"}, "self_timed.cuh: the name has 'self_timed'"),
    ("the line is named", {"docs/a.md": "One.\nA relay.\n"}, "docs/a.md:2: 'relay'"),
    ("history is left as it was", {"docs/decisions/0001.md": "The crew.\n", "bench/results/a.md": "The crew.\n"}, None),
]


if __name__ == "__main__":
    sys.exit(tree_check.main(check_tree, SELF_TEST))
