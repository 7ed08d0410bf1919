# SPDX-License-Identifier: Apache-2.0
"""Every rank contributes its rank + 1; every rank gets the sums: onehop launch -n 4 -- python all_reduce.py"""
import numpy as np
import onehop as oh

with oh.init() as g:
    x = np.full(1_000_000, g.rank + 1, np.float32)
    g.all_reduce(x)  # sum, in place
    assert (x == g.size * (g.size + 1) / 2).all()
    print(f"rank {g.rank} of {g.size}: all sums are {x[0]:g}")
