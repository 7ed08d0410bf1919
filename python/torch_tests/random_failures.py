# SPDX-License-Identifier: Apache-2.0
"""Random failures in random collectives of two GPU ranks: random_failures.py [--cases N] [--first SEED] [--only TEXT] [--parallel N].

In each case rank 1 fails, and rank 0 goes on as a careless program would. It must not end with exit code 0, must tell
why, and nothing that it computed after the failure may look right. The ranks of all cases are forked from here, so
that torch is imported once. Exit code 0 if all cases went well.
"""

import argparse
import faulthandler
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

FAILURES = ("stop", "kill", "exit", "count", "type", "operation", "collective", "root")
FORMS = ("eager", "async", "graph", "compiled", "second group")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
ENDS = ("call", "check", "barrier", "destroy", "exit", "sleep")

# How rank 0 ends: a call raised the failure; the watcher or the end of the interpreter told of it.
RAISED, TOLD = 33, 1
# What must not happen.
FINITE, BROKEN = 44, 45
LIMIT = 60  # seconds for a case


class Case:
    def __init__(self, seed):
        choose = random.Random(seed)
        self.failure = choose.choice(FAILURES)
        self.form = choose.choice(FORMS)
        self.collective = choose.choice(COLLECTIVES)
        if self.form == "compiled":  # what torch.ops.onehop has
            self.collective = choose.choice(COLLECTIVES[:4])
        if self.failure == "root":
            self.collective = choose.choice(COLLECTIVES[4:])
            self.form = choose.choice(("eager", "async", "graph", "second group"))
        if self.failure == "operation":
            self.collective = choose.choice(("all_reduce", "reduce_scatter"))
        self.count = 2 * int(10 ** choose.uniform(0.5, 6))  # two blocks
        self.type = choose.choice(("float32", "float16", "bfloat16", "float64"))
        self.rounds = choose.randrange(4)  # before the failure
        self.end = choose.choice(ENDS)

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


def run_rank(case, rank, directory):
    """Ends the process, or returns where a program would end."""
    faulthandler.dump_traceback_later(LIMIT - 10)
    begin = time.monotonic()

    def reached(what):
        print(f"# {what} after {time.monotonic() - begin:.1f} s", flush=True)

    import torch
    import torch.distributed as dist

    import onehop.torch

    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.set_default_device(device)
    torch.ones(1).item()
    reached("CUDA")
    timeout = timedelta(seconds=6)
    dist.init_process_group("onehop", init_method=f"file://{directory}/store", rank=rank, world_size=2, timeout=timeout)
    group = dist.new_group([0, 1], timeout=timeout) if case.form == "second group" else dist.group.WORLD
    name = onehop.torch.register_group(group)

    def call(collective, count, dtype, op=dist.ReduceOp.SUM, root=None, asynchronous=False):
        """Returns the output, and the part of it that comes from the other rank."""
        x = torch.ones(count, dtype=dtype)
        options = {"group": group, "async_op": asynchronous}
        half = count // 2
        theirs = slice((1 - rank) * half, (2 - rank) * half)
        y, part = x, slice(None)
        if case.form == "compiled":
            if collective == "all_reduce":
                y = torch.ops.onehop.all_reduce(x, name, op="max" if op == dist.ReduceOp.MAX else "sum")
            elif collective == "all_gather":
                y, part = torch.ops.onehop.all_gather(x[:half], name), theirs
            elif collective == "reduce_scatter":
                y = torch.ops.onehop.reduce_scatter(x, name, op="max" if op == dist.ReduceOp.MAX else "sum")
            elif collective == "all_to_all":
                y, part = torch.ops.onehop.all_to_all_single(x, name), theirs
            else:
                dist.broadcast(x, 1, group=group)
            return y, part, None
        work = None
        if collective == "all_reduce":
            work = dist.all_reduce(x, op, **options)
        elif collective == "all_gather":
            y, part = torch.zeros(2 * half, dtype=dtype), theirs
            work = dist.all_gather_into_tensor(y, x[:half], **options)
        elif collective == "reduce_scatter":
            y = torch.zeros(half, dtype=dtype)
            work = dist.reduce_scatter_tensor(y, x, op, **options)
        elif collective == "all_to_all":
            y, part = torch.zeros(count, dtype=dtype), theirs
            work = dist.all_to_all_single(y, x, **options)
        elif collective == "broadcast":
            work = dist.broadcast(x, 1 if root is None else root, **options)
        elif collective == "reduce":
            work = dist.reduce(x, 0 if root is None else root, op, **options)
        return y, part, work

    dtype = getattr(torch, case.type)
    right = (case.collective, case.count, dtype)
    wrong = {
        "count": ((case.collective, case.count + 2, dtype), {}),
        "type": ((case.collective, case.count, torch.int32), {}),
        "operation": (right, {"op": dist.ReduceOp.MAX}),
        "collective": (("broadcast" if case.collective != "broadcast" else "all_reduce", case.count, dtype), {}),
        "root": (right, {"root": 0 if case.collective == "broadcast" else 1}),
    }
    step = call
    if case.form == "compiled":
        step = torch.compile(call, backend="aot_eager", dynamic=False)

    def capture(arguments, options):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call(*arguments, **options)
        return graph, result

    def expect_right(y):
        torch.cuda.synchronize()
        if case.collective in ("all_gather", "all_to_all", "broadcast"):
            assert (y == 1).all(), y
        elif case.collective != "reduce" or rank == 0:
            assert (y == 2).all(), y

    call(*right)
    torch.cuda.synchronize()
    reached("a call")
    graph = None
    if case.form == "graph" and case.failure in ("stop", "kill", "exit"):
        graph, captured = capture(right, {})
    for _ in range(case.rounds):
        if graph is not None:
            graph.replay()
            y = captured[0]
        else:
            y, _, work = step(*right)
        expect_right(y)
    torch.cuda.synchronize()
    dist.barrier(group=group)
    onehop.torch.check()
    reached("the failure")

    if rank == 1:
        time.sleep(0.2)  # rank 0 may still wait for the end of the barrier
        if case.failure == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif case.failure == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif case.failure == "exit":
            os._exit(0)
        else:
            arguments, options = wrong[case.failure]
            if case.form == "graph":
                capture(arguments, options)[0].replay()
            else:
                step(*arguments, **options)
        time.sleep(60)

    try:
        if case.form == "graph":
            if graph is None:
                graph, captured = capture(right, {})
            graph.replay()
            y, part, work = captured
        else:
            options = {"asynchronous": True} if case.form == "async" else {}
            y, part, work = step(*right, **options)
        if work is not None:
            work.wait()
        torch.cuda.synchronize()
        reached("synchronized")
        if not y[part].isnan().all():
            print("finite:", y[part], f"{int(y[part].isfinite().sum())} of {y[part].numel()}")
            sys.stdout.flush()
            os._exit(FINITE)
        if case.end == "call":
            dist.all_reduce(torch.ones(1), group=group)
        elif case.end == "check":
            onehop.torch.check()
        elif case.end == "barrier":
            dist.barrier(group=group)
        elif case.end == "destroy":
            dist.destroy_process_group()
        elif case.end == "sleep":
            time.sleep(30)
    except (dist.DistBackendError, RuntimeError):
        traceback.print_exc()
        sys.exit(RAISED)


def start(case, rank, directory):
    """The pid of the rank's process, in which this raises SystemExit."""
    sys.stdout.flush()
    child = os.fork()
    if child != 0:
        return child
    log = os.open(directory / f"{rank}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        run_rank(case, rank, directory)
    except Exception:
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(BROKEN)
    sys.exit(0)


def verdict(code, log):
    """What went wrong; empty if nothing did."""
    if code is None:
        return f"rank 0 did not end within {LIMIT} s"
    if code not in (RAISED, TOLD):
        return f"rank 0 ended with exit code {code}"
    if "rank 1" not in log and "ranks disagree" not in log:
        return "rank 0 did not say why"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="of these, the cases whose description contains this: 'stop, form graph'")
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    options = parser.parse_args()
    os.environ["ONEHOP_TORCH_FAILURE_GRACE"] = "1"
    os.environ["ONEHOP_ALLOW_OVERLAPPING_DEVICES"] = "1"
    os.environ.pop("ONEHOP_TORCH_ON_FAILURE", None)

    # What the ranks need, before they are forked. No CUDA call: a forked process could make none.
    import torch._dynamo
    import torch._functorch.aot_autograd  # noqa: F401

    import onehop.torch  # noqa: F401

    begin = time.monotonic()
    seeds = range(options.first, options.first + options.cases)
    waiting = [seed for seed in seeds if options.only in str(Case(seed))]
    running = {}  # rank 0's pid: seed, folder, rank 1's pid, begin
    ends = {RAISED: 0, TOLD: 0}
    failures = 0
    folder = tempfile.mkdtemp()  # removed by this process only
    while waiting or running:
        while waiting and len(running) < options.parallel:
            seed = waiting.pop(0)
            directory = Path(folder, str(seed))
            directory.mkdir()
            ranks = [start(Case(seed), rank, directory) for rank in range(2)]
            running[ranks[0]] = (seed, directory, ranks[1], time.monotonic())
        time.sleep(0.02)
        for pid, (seed, directory, other, started) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            seconds = time.monotonic() - started
            if ended == 0 and seconds < LIMIT:
                continue
            if ended == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.kill(other, signal.SIGKILL)
            os.waitpid(other, 0)
            del running[pid]
            code = os.waitstatus_to_exitcode(status) if ended != 0 else None
            logs = [(directory / f"{rank}.log").read_text(errors="replace") for rank in range(2)]
            problem = verdict(code, logs[0])
            if problem:
                failures += 1
                print(f"case {seed} ({Case(seed)}): {problem}\n--- rank 0\n{logs[0]}\n--- rank 1\n{logs[1]}", flush=True)
            else:
                ends[code] += 1
            if options.verbose:
                phases = ", ".join(line[2:] for line in logs[0].splitlines() if line.startswith("# "))
                print(f"case {seed} ({Case(seed)}): {seconds:.1f} s, exit code {code}; {phases}", flush=True)
    shutil.rmtree(folder)
    print(
        f"{sum(ends.values()) + failures} failures: {ends[RAISED]} raised, {ends[TOLD]} told at the end or by the watcher, "
        f"{failures} wrong; {time.monotonic() - begin:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
