# SPDX-License-Identifier: Apache-2.0
"""A rank dies. The others learn which one, form a new group and go on; no process is restarted:

    onehop launch -n 3 --keep-going -- python survive_dead_rank.py
"""
import os
import signal
import sys

import numpy as np
import onehop as oh

STEPS, LAST_STEP_OF_THE_DEAD = 20, 10


def train(g, step):
    """One step of whatever the job does; here, the ranks count themselves."""
    assert (g.all_reduce(np.ones(100_000, np.float32)) == g.size).all(), step
    return step + 1


g = oh.init(timeout=20)
step, dying = 0, g.size - 1
if g.size < 2:
    sys.exit("survive_dead_rank.py: needs at least 2 ranks: onehop launch -n 3 --keep-going -- python survive_dead_rank.py")
while step < STEPS:
    if g.rank == dying and step == LAST_STEP_OF_THE_DEAD:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        step = train(g, step)
    except oh.PeerLost as lost:
        print(f"rank {g.rank}, step {step}: {lost}")
        g = g.shrink()
        dying = -1
        step = int(g.all_reduce(np.array([step]), op="min")[0])  # a step that not all had finished is repeated
print(f"rank {g.rank} of {g.size} has done {step} steps")
g.leave()
