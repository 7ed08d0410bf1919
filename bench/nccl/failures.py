# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with backend "nccl" when something ends: each prints what happened, per rank. The exit code is 0 only if every rank has seen
what it must have seen (verdicts.py has the deadline and the tolerances).

    python failures.py RANKS kill          the last rank is killed: the next call of each other rank gives NaN or raises, and says which rank died
    python failures.py RANKS abort         rank 0 aborts a communicator whose all-reduce waits for the others: it returns, its data are NaN, and
                                           the next call of each other rank raises, and says that rank 0 aborted
    python failures.py RANKS exit          the last rank exits without destroying anything: it can, the others go on as long as they do not wait
                                           for it, and the next call of each raises, and says which rank left
    python failures.py RANKS cycles N      N groups, one after another: what is free after a tenth is free at the end
    python failures.py RANKS burst N       52 groups at a time, N times: the same after the first time

torch's watchdog, which would end a process at the first asynchronous error, is off in the first three: each rank's own call must fail.
BACKEND=gloo runs it in host memory, to try the program itself; gloo's errors name no rank, so there "kill", "abort" and "exit" fail.
"""
import gc
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import verdicts
from collectives import on_gpus, say, start, synchronize

BURST = 52
PAUSE = 1.0  # while a survivor of "exit" waits for nobody
SETTLING = 10.0  # seconds for what groups leave in threads of their own


def memory():
    pages = int(open("/proc/self/statm", encoding="ascii").read().split()[1])
    free = torch.cuda.mem_get_info()[0] if on_gpus() else 0
    return verdicts.Memory(free / 2**20, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd")))


def settled_memory():
    """When it does not change any more: communicators are left in threads of their own. No object of a group may be referenced."""
    gc.collect()
    limit = time.monotonic() + SETTLING
    last = memory()
    while time.monotonic() < limit:
        time.sleep(0.5)
        now = memory()
        if (now.gpu_free, now.descriptors) == (last.gpu_free, last.descriptors):
            break
        last = now
    return now


def expect_sum(ranks, device, group=None):
    data = torch.ones(100, device=device)
    dist.all_reduce(data, group=group)
    synchronize()
    assert bool((data == ranks).all()), "a sum is wrong"


class Scenario:
    """One rank's part of a scenario, which raises if this rank has not seen what it must have. `ready` waits for all ranks, `together` for
    those that are left."""

    def __init__(self, rank, ranks, device, ready, together):
        self.rank, self.ranks, self.device, self.ready, self.together = rank, ranks, device, ready, together

    def expect_error(self, kind):
        """Calls until one raises. Until then no element of a result may look right: all ranks' data are in each."""
        begin = time.monotonic()
        text, calls = None, 0
        while text is None and time.monotonic() < begin + 4 * verdicts.DEADLINE:
            data = torch.ones(100, device=self.device)
            try:
                dist.all_reduce(data)
                synchronize()
            except Exception as error:  # torch has several types for it
                text = f"{type(error).__name__}: {error}"
                break
            assert bool(data.isnan().all()), f"data of a failed call look right: {data[~data.isnan()][0].item()}"
            calls += 1
            time.sleep(0.1)
        seconds = time.monotonic() - begin
        problems = verdicts.error_problems(kind, self.ranks, text, seconds, remote_error=on_gpus())
        assert not problems, "; ".join(problems)
        return f"{f'NaN from {calls} calls, ' if calls else ''}{text.partition(':')[0]} after {seconds:.2f} s"

    def kill(self):
        self.ready.wait()
        if self.rank == self.ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.expect_error("kill")

    def abort(self):
        if self.rank != 0:
            self.ready.wait()  # until rank 0 has aborted
            return self.expect_error("abort")
        begin = time.monotonic()
        data = torch.ones(1000, device=self.device)
        try:
            dist.all_reduce(data)
            dist.distributed_c10d._get_default_group()._get_backend(self.device).abort()
            synchronize()
            seconds = time.monotonic() - begin
        finally:
            self.ready.wait()
        assert bool(data.isnan().all()), f"data of an aborted call look right: {data[~data.isnan()][0].item()}"
        assert seconds <= verdicts.DEADLINE, f"the abort took {seconds:.1f} s, more than {verdicts.DEADLINE:g}"
        return f"aborted, {seconds:.2f} s"

    def exit(self):
        self.ready.wait()
        if self.rank == self.ranks - 1:
            return "exits"
        time.sleep(PAUSE)
        return f"went on for {PAUSE:g} s, {self.expect_error('exit')}"

    def cycles(self, count):
        begin, before = time.monotonic(), None
        for cycle in range(count):
            group = dist.new_group(list(range(self.ranks)))
            expect_sum(self.ranks, self.device, group)
            dist.destroy_process_group(group)
            group = None
            if cycle == count // 10:
                before = settled_memory()
        return self.compare(before, count, f"{count} in {time.monotonic() - begin:.1f} s")

    def burst(self, count):
        begin, before = time.monotonic(), None
        for _ in range(count):
            groups = [dist.new_group(list(range(self.ranks))) for _ in range(BURST)]
            for group in groups:
                expect_sum(self.ranks, self.device, group)
            while groups:
                dist.destroy_process_group(groups.pop())
            group = None
            before = before or settled_memory()
        return self.compare(before, count * BURST, f"{count} times {BURST} in {time.monotonic() - begin:.1f} s")

    def compare(self, before, cycles, what):
        after = settled_memory()
        problems = verdicts.memory_problems(before, after, cycles)
        said = (f"{what}, then and at the end {before.gpu_free:.0f} and {after.gpu_free:.0f} MiB of GPU memory free, "
                f"{before.host:.0f} and {after.host:.0f} MiB in host memory, {before.descriptors} and {after.descriptors} descriptors")
        assert not problems, f"{'; '.join(problems)} ({said})"
        return said


def main(rank, ranks, port, kind, arguments, ready, together):
    if kind in verdicts.REASONS:
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    good = False
    try:
        device = start(rank, ranks, port)
        expect_sum(ranks, device)
        say(f"rank {rank}: right: {getattr(Scenario(rank, ranks, device, ready, together), kind)(*arguments)}")
        good = True
    except threading.BrokenBarrierError:
        say(f"rank {rank}: WRONG: another rank did not come")
    except Exception as error:  # whatever it is, its text is the verdict, and must be seen
        say(f"rank {rank}: WRONG: {type(error).__name__}: {' '.join(str(error).split())}")
    if good and kind in ("cycles", "burst"):
        dist.destroy_process_group()
    elif good and kind == "exit" and rank == ranks - 1:
        return  # as a program that forgets to destroy
    else:
        try:  # A survivor that ends is one more rank to be named by the errors of the others.
            if kind in verdicts.REASONS:
                together.wait(timeout=4 * verdicts.DEADLINE)
        except threading.BrokenBarrierError:  # another one has not come: its own verdict
            pass
        os._exit(0 if good else 1)


def run(ranks, kind, arguments):
    """Returns what was wrong."""
    context = mp.get_context("spawn")
    ready = context.Barrier(ranks, timeout=60)
    together = context.Barrier(len(verdicts.survivors_of(kind, ranks)))
    started = mp.spawn(main, (ranks, 29000 + os.getpid() % 500, kind, arguments, ready, together), ranks, join=False)
    limit = time.monotonic() + verdicts.limit_of(kind, *arguments)
    for process in started.processes:
        process.join(max(1, limit - time.monotonic()))
    codes = [process.exitcode for process in started.processes]
    say(f"exit codes {codes}")
    for process in started.processes:
        process.kill()
    return verdicts.code_problems(kind, codes)


if __name__ == "__main__":
    wrong = run(int(sys.argv[1]), sys.argv[2], [int(each) for each in sys.argv[3:]])
    say(f"{sys.argv[2]}: {'right' if not wrong else '; '.join(wrong)}")
    sys.exit(1 if wrong else 0)
