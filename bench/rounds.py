#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the rounds of two libraries. Two rounds of one library differ, so medians alone do not show which is faster.

    bench/rounds.py --self-test
"""
import sys

VERDICTS = ("ahead", "even", "behind")


def spread(rounds):
    """The slowest round over the fastest."""
    return max(rounds) / min(rounds)


def verdict(ours, theirs):
    """Returns "ahead" if all of our rounds are faster than all of theirs, "behind" if all are slower, "even" if they overlap."""
    return "ahead" if max(ours) < min(theirs) else "behind" if min(ours) > max(theirs) else "even"


def self_test():
    assert spread([2.0, 1.0, 4.0]) == 4
    assert verdict([1.0, 2.0], [2.1, 9.0]) == "ahead"
    assert verdict([2.1, 9.0], [1.0, 2.0]) == "behind"
    assert verdict([1.0, 3.0], [2.0, 4.0]) == verdict([1.0, 5.0], [2.0, 3.0]) == "even"
    assert verdict([1.0], [1.0]) == "even"


if __name__ == "__main__":
    if sys.argv[1:] != ["--self-test"]:
        sys.exit(__doc__)
    self_test()
