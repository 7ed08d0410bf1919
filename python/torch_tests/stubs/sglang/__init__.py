# SPDX-License-Identifier: Apache-2.0
"""A stand-in for SGLang 0.5.23: what onehop's plug-in touches, with the same signatures, on CPU tensors.

test_engines.py compares the signatures with SGLang's source, if it is there.
"""
