# SPDX-License-Identifier: Apache-2.0
"""Measurements from Python, each a program: `python -m onehop.bench.decode`, `python -m onehop.bench.overhead`.

Collectives by themselves are measured by the command: `python -m onehop bench`.
"""
