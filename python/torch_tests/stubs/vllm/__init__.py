# SPDX-License-Identifier: Apache-2.0
"""A stand-in for vLLM 0.33.0: what onehop's plug-in touches, with the same signatures, on CPU tensors.

test_engines.py compares the signatures with vLLM's source, if it is there.
"""
