#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the all-reduces of PyTorch's symmetric memory as `onehop bench all-reduce --device cuda` measures ours.

One process per GPU, CUDA graphs of as many chained calls, the slowest rank's time, the median over replays; every element is
checked against a sum in double precision and the ranks' bits are compared before anything is timed. Writes the same JSON as the
command does, with the figures as peers, so that bench/compare_gpu.py can lay the two side by side. Multicast is never used.

    bench/peers/torch_symm_mem.py --ranks 4 --type bf16 --sizes 1K:1G:4 --json torch.json
"""
import argparse
import json
import math
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

# Before PyTorch is loaded, in every rank: machines may be shared, and multicast objects are a resource of all of them.
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench_sizes import format_size, sizes_of  # noqa: E402

# As tools/onehop/bench/plan.cc chooses.
MOST_CALLS, FEWEST_CALLS, SAMPLE_US, LATENCY_US, BYTES_PER_US = 100, 4, 80000, 3, 250e3
WARMUP = 2
NAMES = ("pytorch-one-shot", "pytorch-two-shot")


def bus_factor(ranks):
    return 2 * (ranks - 1) / ranks


def choose_calls(size, ranks):
    guess = LATENCY_US + size * bus_factor(ranks) / BYTES_PER_US
    calls = int(min(max(SAMPLE_US / guess, FEWEST_CALLS), MOST_CALLS))
    return calls, 20 if guess * calls < 5000 else 10


def summary(samples):
    ordered = sorted(samples)
    nearest = max(math.ceil(0.95 * len(ordered)), 1) - 1
    return {"median": statistics.median(ordered), "min": ordered[0], "p95": ordered[nearest]}


class Lane:
    """One of PyTorch's all-reduces, over buffers that it works with."""

    def __init__(self, torch, name, buffers, out, group, dependent):
        self.torch, self.name, self.group, self.dependent = torch, name, group, dependent
        self.first, self.second = buffers
        self.out = self.second if dependent else out
        self.two_shot = name == "pytorch-two-shot"

    def views(self, count):
        """Input, where the first call leaves its result."""
        return self.first[:count], (self.first if self.two_shot else self.out)[:count]

    def call(self, index, count):
        ops = self.torch.ops.symm_mem
        if self.two_shot:  # in place, so that each call reduces the output of the one before
            ops.two_shot_all_reduce_(self.first[:count], "sum", self.group)
            return
        source, target = self.first, self.out
        if self.dependent and index % 2 == 1:
            source, target = target, source
        ops.one_shot_all_reduce_out(source[:count], "sum", self.group, target[:count])

    def calls(self, wanted, ranks):
        """The sums of a call that reduces the last one's result grow: as many as stay finite."""
        growing = self.two_shot or self.dependent
        return min(wanted, int(126 / math.log2(ranks))) if growing else wanted


class Bench:
    def __init__(self, torch, dist, rank, arguments, sizes):
        import torch.distributed._symmetric_memory as symm_mem

        self.torch, self.dist, self.rank, self.arguments = torch, dist, rank, arguments
        self.dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[arguments.type]
        self.device = torch.device("cuda", rank)
        self.stream = torch.cuda.Stream(self.device)
        self.group = dist.group.WORLD.group_name
        most = max(sizes) // self.dtype.itemsize
        self.buffers, self.handles = [], []
        for _ in range(2):
            self.buffers.append(symm_mem.empty(most, dtype=self.dtype, device=self.device))
            self.handles.append(symm_mem.rendezvous(self.buffers[-1], self.group))
        out = torch.empty(most, dtype=self.dtype, device=self.device)
        dependent = arguments.mode == "dependent"
        self.lanes = [Lane(torch, name, self.buffers, out, self.group, dependent) for name in NAMES]
        self.pristine = torch.empty(most, dtype=self.dtype, device=self.device)

    def fill(self, target, rank, size):
        generator = self.torch.Generator(device=self.device)
        generator.manual_seed(size * 64 + rank)
        target.uniform_(-1, 1, generator=generator)

    def reference(self, count, size):
        """The sum of all ranks' inputs in double precision, and the sum of their magnitudes."""
        torch = self.torch
        total = torch.zeros(count, dtype=torch.float64, device=self.device)
        magnitude = torch.zeros_like(total)
        part = torch.empty(count, dtype=self.dtype, device=self.device)
        for rank in range(self.arguments.ranks):
            self.fill(part, rank, size)
            wide = part.double()
            total += wide
            magnitude += wide.abs_()
        return total, magnitude

    def everyone(self, value):
        values = [None] * self.arguments.ranks
        self.dist.all_gather_object(values, value)
        return values

    def bits(self, result):
        """Equal for equal bits: a sum of them, weighted by place, modulo 2^64."""
        torch = self.torch
        words = result.view(torch.int32 if self.dtype.itemsize == 4 else torch.int16)
        total = 0
        for begin in range(0, words.numel(), 1 << 26):
            part = words[begin:begin + (1 << 26)].long()
            weights = torch.arange(begin + 1, begin + 1 + part.numel(), device=self.device) * 2654435761
            total = (total * 31 + int((part * weights).sum())) % (1 << 64)
        return total

    def check(self, lane, count, size, reference):
        """Runs one call over poisoned output; what is wrong with its result on any rank, or None."""
        torch = self.torch
        source, result = lane.views(count)
        with torch.cuda.stream(self.stream):
            if not lane.two_shot:
                result.view(torch.uint8).fill_(0xA5)
            source.copy_(self.pristine[:count])
        self.stream.synchronize()
        self.dist.barrier()  # one-shot reads the others' input
        with torch.cuda.stream(self.stream):
            lane.call(0, count)
        self.stream.synchronize()
        total, magnitude = reference
        rounding = 2.0**-8 if self.dtype == torch.bfloat16 else 2.0**-23
        wrong = ~((result.double() - total).abs_() <= self.arguments.ranks * rounding * magnitude + 1e-30)
        bad = int(wrong.sum())
        complaint = None
        if bad:
            at = int(wrong.nonzero()[0])
            complaint = f"{bad} of {count} elements, the first {at}: {float(result[at])}, expected {float(total[at])}"
        findings = self.everyone((complaint, self.bits(result)))
        for rank, (text, bits) in enumerate(findings):
            if text:
                return f"rank {rank}: {text}"
            if bits != findings[0][1]:
                return f"ranks 0 and {rank} hold different bits"
        return None

    def capture(self, lane, calls, count):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream):
            for index in range(calls):
                lane.call(index, count)
        return graph

    def sample(self, lane, graph, calls, count):
        torch = self.torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            lane.views(count)[0].copy_(self.pristine[:count])
            torch.cuda._sleep(2000 * (60 + min(calls, 1000)))  # cycles; the ranks begin when all are queued
            self.handles[0].barrier(channel=0)
            begin.record()
            graph.replay()
            end.record()
        self.stream.synchronize()
        return begin.elapsed_time(end) * 1e3 / calls

    def measure(self, size):
        count = size // self.dtype.itemsize
        ranks = self.arguments.ranks
        wanted, samples = choose_calls(size, ranks)
        row = {"bytes": count * self.dtype.itemsize, "count": count, "samples": samples, "calls_per_sample": wanted, "peers": {}}
        self.fill(self.pristine[:count], self.rank, size)
        reference = self.reference(count, size)
        self.torch.cuda.synchronize()
        prepared, wrong = [], []
        for lane in self.lanes:
            complaint = self.check(lane, count, size, reference)
            if complaint:
                wrong.append(f"{lane.name} at {size} bytes: {complaint}")
                continue
            calls = lane.calls(wanted, ranks)
            prepared.append((lane, calls, self.capture(lane, calls, count), []))
        del reference
        self.torch.cuda.synchronize()
        self.dist.barrier()
        for turn in range(WARMUP + samples):
            for lane, calls, graph, times in prepared:
                us = self.sample(lane, graph, calls, count)
                if turn >= WARMUP:
                    times.append(us)
        for lane, calls, _, times in prepared:
            slowest = [max(each) for each in zip(*self.everyone(times))]
            time_us = summary(slowest)
            row["peers"][lane.name] = {"time_us": time_us, "checked": True, "calls_per_sample": calls,
                                       "busbw_gbps": size / time_us["median"] / 1e3 * bus_factor(ranks)}
        return row, wrong


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def report_of(torch, arguments, rows, notes):
    gpus = [torch.cuda.get_device_name(rank) for rank in range(arguments.ranks)]
    return {
        "format": "onehop-bench", "format_version": 1,
        "library": {"name": "pytorch", "version": torch.__version__},
        "machine": {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "kernel": f"Linux {platform.release()}",
                    "gpus": {"names": gpus, "cuda": torch.version.cuda}},
        "run": {"collective": "all-reduce", "ranks": arguments.ranks, "ranks_are": "processes",
                "launcher": "torch.multiprocessing", "device": "cuda", "type": arguments.type, "op": "sum",
                "algorithm": "auto", "buffers": "symmetric", "in_place": False, "warmup": WARMUP,
                "mode": arguments.mode, "cold": False},
        "results": rows, "notes": notes}


def run_rank(rank, arguments, sizes, rendezvous):
    import datetime

    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group(arguments.backend, init_method=f"file://{rendezvous}", rank=rank, world_size=arguments.ranks,
                            timeout=datetime.timedelta(seconds=60))
    bench = Bench(torch, dist, rank, arguments, sizes)
    rows, notes, failed = [], [f"{NAMES[1]} works in place: each of its calls reduces the output of the one before"], False
    if rank == 0:
        print(f"# PyTorch {torch.__version__} symmetric memory: {arguments.ranks} GPU ranks, {arguments.type} sum, {arguments.mode}")
        print(f"{'bytes':>12} " + " ".join(f"{name:>17}" for name in NAMES), flush=True)
    for size in sizes:
        row, wrong = bench.measure(size)
        rows.append(row)
        notes += wrong
        failed = failed or bool(wrong)
        if rank == 0:
            times = [row["peers"].get(name, {}).get("time_us", {}).get("median") for name in NAMES]
            print(f"{size:>12} " + " ".join(f"{time:17.2f}" if time else f"{'wrong':>17}" for time in times), flush=True)
    if rank == 0:
        for note in notes[1:]:
            print(f"wrong result: {note}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(report_of(torch, arguments, rows, notes), indent=2) + "\n")
    torch.cuda.synchronize()
    dist.barrier()
    # Not a return: handles and process group are given back by the end of the process, in no order that could wait.
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, help="GPUs, one process each (default 4)")
    parser.add_argument("--type", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--sizes", default="1K:1G:4", help="bytes, a list or first:last:factor (default 1K:1G:4)")
    parser.add_argument("--mode", choices=("chain", "dependent"), default="chain", help="as of onehop bench (default chain)")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo", help="how the ranks find each other (default gloo)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which the ranks are killed (default 120)")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    arguments = parser.parse_args()
    try:
        sizes = sizes_of(arguments.sizes)
    except ValueError as error:
        parser.error(f"--sizes: {error}")
    for size in sizes:
        if size < 16 * arguments.ranks or size % (16 * arguments.ranks):
            sys.exit(f"torch_symm_mem: {format_size(size)} is not a multiple of 16 bytes per rank, which PyTorch needs")

    import torch.multiprocessing as multiprocessing

    deadline = time.monotonic() + arguments.timeout
    with tempfile.TemporaryDirectory() as directory:
        context = multiprocessing.start_processes(run_rank, (arguments, sizes, f"{directory}/rendezvous"), nprocs=arguments.ranks,
                                                  join=False, start_method="spawn")
        try:
            while not context.join(timeout=1):
                if time.monotonic() > deadline:
                    sys.exit(f"torch_symm_mem: not done within {arguments.timeout:g} s; the ranks were killed")
        except Exception as error:  # pylint: disable=broad-except
            sys.exit(f"torch_symm_mem: {str(error).strip().splitlines()[-1]}")
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()


if __name__ == "__main__":
    main()
