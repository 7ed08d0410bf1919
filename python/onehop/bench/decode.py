# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of a tensor-parallel transformer with random weights that decodes one token per sequence and step.

    python -m onehop.bench.decode --ranks 2 --json decode.json        one process per rank, on GPUs if there are enough
    torchrun --nproc-per-node 2 -m onehop.bench.decode                the ranks of a launcher
    python -m onehop.bench.decode --list                              what can be compared here

Two all-reduces per layer are all that the ranks exchange. The same steps are measured with each all-reduce: on GPUs as replays
of a CUDA graph, in turns, many rounds of each; the slowest rank counts. Before anything is timed, the logits of every engine are
compared with those of sums in float32.

Whether the bits of a sequence depend on the batch that it is in is a question about the all-reduce only if the rest of the model
is the same for all batches. Libraries for matrix products choose kernels by the number of rows. So for this check, not for the
timed steps, all products and attention have as many rows as the largest batch, and only the all-reduce is called with fewer.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# Before PyTorch is loaded, and inherited by the ranks. Multicast objects are a resource of the whole machine, which may be shared.
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import onehop as oh  # noqa: E402

from . import _ranks, _report  # noqa: E402
from ._ranks import BadInput, fail  # noqa: E402

if TYPE_CHECKING:
    import torch

    from ._decoder import Shape
    from ._engines import Engine

NAME = "onehop.bench.decode"
# Largest difference of the logits from those of sums in float32, relative to their norm. With 32 layers it was 0.04 in bf16 for
# gloo between 4 ranks, which rounds after each addition, and 0.74 for a sum of 8 ranks that lacked one.
TOLERANCE = {"bf16": 0.15, "f32": 1e-3}
WARMUP_ROUNDS = 1


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line. BadInput if a value makes no sense by itself or with the others."""

    def batches(text: str) -> list[int]:
        try:
            return sorted({int(part) for part in text.split(",")})
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers; write it like 1,4,16") from None

    parser = _ranks.Parser(prog=f"python -m {NAME}", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--ranks", type=int, help="processes; 2 to 8 on GPUs, to 64 on the CPU (default: the GPUs, else 2; that of the launcher)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: GPUs if there is one for each rank (default)")
    add("--dtype", choices=("auto", "bf16", "f32"), default="auto", help="default: bf16 on GPUs, f32 on the CPU")
    add("--engines", help="those to compare, with commas between them (default: all that work here; see --list)")
    add("--batches", type=batches, default=[1, 2, 4, 8, 16, 32, 64], help="sequences per step (default 1,2,4,8,16,32,64)")
    add("--hidden", type=int, default=4096, help="width of the model (default 4096)")
    add("--layers", type=int, default=32, help="default 32")
    add("--heads", type=int, default=32, help="heads of queries (default 32)")
    add("--kv-heads", type=int, default=8, help="heads of keys and values (default 8)")
    add("--inner", type=int, default=14336, help="inner width of the MLP (default 14336)")
    add("--vocabulary", type=int, default=32000, help="default 32000")
    add("--context", type=int, default=256, help="tokens in the cache of each sequence (default 256)")
    add("--rounds", type=int, default=9, help="rounds of which the median is taken (default 9)")
    add("--steps", type=int, default=20, help="steps of a round (default 20)")
    add("--timeout", type=float, default=60, help="seconds that a rank waits for another; setting up an engine, or a round, may take "
                                                  "twice as long (default 60)")
    add("--json", type=Path, metavar="FILE", help="write machine, versions, settings and all figures")
    add("--list", action="store_true", help="list the engines, and why those that cannot be used here cannot")
    options = parser.parse_args(arguments)
    for name in ("hidden", "layers", "heads", "kv_heads", "inner", "vocabulary", "context", "rounds", "steps"):
        if getattr(options, name) < 1:
            raise BadInput(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be at least 1")
    if options.batches[0] < 1:
        raise BadInput(f"--batches has {options.batches[0]}; a batch has at least 1 sequence")
    if not 1 <= options.timeout <= 86400:
        raise BadInput(f"--timeout is {options.timeout:g}; it must be from 1 to 86400 seconds")
    if options.hidden % options.heads:
        raise BadInput(f"--hidden {options.hidden} is not divisible by --heads {options.heads}")
    if options.heads % options.kv_heads:
        raise BadInput(f"--heads {options.heads} is not divisible by --kv-heads {options.kv_heads}")
    _report.check_target(options.json)
    return options


def import_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BadInput(f"needs PyTorch, and importing it failed: {error}") from None


def resolve(options: argparse.Namespace, ranks_of_launcher: int | None) -> None:
    """Replaces what is "auto" or left out, and checks what depends on the number of ranks and on the machine."""
    import torch

    from ._engines import ENGINES

    gpus = torch.cuda.device_count()
    if ranks_of_launcher is not None and options.ranks not in (None, ranks_of_launcher):
        raise BadInput(f"--ranks is {options.ranks}, but the launcher started {ranks_of_launcher}; leave it out")
    if options.ranks is None:
        options.ranks = ranks_of_launcher or (min(gpus, 8) if gpus > 1 and options.device != "cpu" else 2)
    if options.device == "auto":
        options.device = "cuda" if 0 < options.ranks <= min(gpus, 8) else "cpu"
    most = 8 if options.device == "cuda" else 64
    if not 2 <= options.ranks <= most:
        raise BadInput(f"--ranks is {options.ranks}; it must be from 2 to {most} on this device, {options.device}")
    if options.device == "cuda" and gpus < options.ranks:
        raise BadInput(f"--device cuda with {options.ranks} ranks needs as many GPUs, and PyTorch sees {gpus}; use --device cpu")
    if options.dtype == "auto":
        options.dtype = "bf16" if options.device == "cuda" else "f32"
    for name in ("kv_heads", "inner", "vocabulary"):
        if getattr(options, name) % options.ranks:
            raise BadInput(f"--{name.replace('_', '-')} {getattr(options, name)} is not divisible by {options.ranks} ranks")
    if options.engines is not None:
        options.engines = list(dict.fromkeys(options.engines.split(",")))
        for name in options.engines:
            if name not in ENGINES:
                raise BadInput(f"--engines has '{name}'; known: {', '.join(ENGINES)}")
            obstacle = ENGINES[name].obstacle(options.device)
            if obstacle:
                raise BadInput(f"--engines has '{name}', which cannot be used here: {obstacle}")
    check_memory(options)


def shape_of(options: argparse.Namespace) -> Shape:
    from ._decoder import Shape

    return Shape(options.hidden, options.layers, options.heads, options.kv_heads, options.inner, options.vocabulary, options.context)


def check_memory(options: argparse.Namespace) -> None:
    """BadInput if weights and caches do not fit the host's memory, or that of the first GPU."""
    import torch

    shape = shape_of(options)
    size = {"bf16": 2, "f32": 4}[options.dtype]
    needed = (shape.weights(options.ranks) + shape.cache(options.ranks, options.batches[-1])) * size
    if options.device == "cpu":
        needed *= options.ranks
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) << 10
    else:
        free = torch.cuda.get_device_properties(0).total_memory
    if needed > 0.9 * free:
        raise BadInput(f"weights and caches need {needed / 1e9:.1f} GB, and there are {free / 1e9:.1f}; use a smaller --layers, "
                       "--hidden, --inner, --vocabulary or --context")


def list_engines(device: str) -> None:
    """What --list prints."""
    import torch

    from ._engines import ENGINES

    if device == "auto":
        device = "cuda" if torch.cuda.device_count() > 1 else "cpu"
    print(f"engines on this device, {device}:")
    width = max(map(len, ENGINES))
    for name, engine in ENGINES.items():
        obstacle = engine.obstacle(device)
        print(f"  {name:{width}}  {engine.title}" + (f": not available, {obstacle}" if obstacle else ""))


class Rank:
    """One rank of the measurement."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch

        from ._decoder import Decoder
        from ._engines import Reference, Setting

        job = oh.job()
        self.options, self.rank, self.ranks = options, job.rank, job.size
        _ranks.compile_adapter()
        # Twice: an engine's own error, which says more, comes first.
        self.watchdog = _ranks.Watchdog(f"{NAME}: rank {job.rank}", 2 * options.timeout)
        self.watchdog.phase("starting")
        timeout = timedelta(seconds=options.timeout)
        # On the host, for what is not measured: if a rank dies, its barriers and objects end at once, and say so.
        self.control = oh.init(name="bench-decode", timeout=timeout)
        if options.device == "cuda":
            torch.cuda.set_device(job.local_rank)
            device = torch.device("cuda", job.local_rank)
            self.stream = torch.cuda.Stream(device)
            torch.cuda.set_stream(self.stream)
        else:
            torch.set_num_threads(max(1, _report.usable_cores() // self.ranks))
            device = torch.device("cpu")
        self.server = _ranks.init_process_group(self.control, "gloo", timeout)
        most = options.batches[-1]
        self.watchdog.phase("making the weights")
        dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[options.dtype]
        self.decoder = Decoder(shape_of(options), self.rank, self.ranks, most, device, dtype)
        self.setting = Setting(self.control, device, dtype, most, options.hidden, timeout)
        self.reference: Engine = Reference(self.setting)
        self.engines: dict[str, Engine] = {}
        self.unavailable: dict[str, str] = {}
        self.invariant: dict[str, bool] = {}

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    def agree(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        return self.control.all_gather_object(value)

    def make_engines(self) -> None:
        """Those that were asked for. One that fails is left out if it was not asked for by name."""
        from ._engines import ENGINES

        for name, engine in ENGINES.items():
            if self.options.engines is not None and name not in self.options.engines:
                continue
            reason = engine.obstacle(self.options.device)
            if reason is None:
                self.watchdog.phase(f"setting up {name}")
                made = None
                try:
                    made = engine(self.setting)
                    self.decoder.step(made, 1)
                except Exception as error:  # of any of the libraries
                    reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
                reasons = [f"rank {rank}: {each}" for rank, each in enumerate(self.agree(reason)) if each is not None]
                if not reasons:
                    assert made is not None
                    self.engines[name] = made
                    continue
                reason = reasons[0]
                if self.options.engines is not None or name.startswith("onehop"):
                    fail(f"{NAME}: {name} failed on {reason}")
            self.unavailable[name] = reason
            self.say(f"not measured: {name}: {reason}")

    def check_invariance(self) -> None:
        """Fails if the logits of a sequence with one of onehop's engines depend on the batch. What others do is reported."""
        most = self.options.batches[-1]
        for name, engine in self.engines.items():
            self.watchdog.phase(f"comparing batches of {name}")
            # Bits, not values: NaN would differ from itself.
            expected = self.bits(self.decoder.step(engine, most))
            differing = [batch for batch in reversed(self.options.batches)
                         if not bool((self.bits(self.decoder.step(engine, batch, rows=most)) == expected[:batch]).all())]
            everyones = sorted({batch for each in self.agree(differing) for batch in each}, reverse=True)
            self.invariant[name] = not everyones
            if everyones and name.startswith("onehop"):
                if everyones[0] == most:
                    fail(f"{NAME}: {name}: two steps with the same batch of {most} give logits of different bits")
                fail(f"{NAME}: {name}: the logits of a sequence differ in their bits between batches of {everyones[0]} and {most}")

    @staticmethod
    def bits(x: torch.Tensor) -> torch.Tensor:
        import torch

        return x.contiguous().view(torch.uint8)

    def capture(self, engine: Engine, batch: int) -> tuple[Callable[[], Any], torch.Tensor]:
        """A function that makes a step, and where it leaves the logits."""
        import torch

        if self.options.device == "cpu":
            logits = self.decoder.step(engine, batch).clone()
            return lambda: logits.copy_(self.decoder.step(engine, batch)), logits
        self.decoder.step(engine, batch)  # libraries prepare themselves before the capture
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            logits = self.decoder.step(engine, batch)
        return graph.replay, logits

    def error_of(self, logits: torch.Tensor, expected: torch.Tensor) -> float:
        """Relative to the norm of the logits; of the rank where it is largest."""
        wanted = expected.double()
        errors = self.agree(float((logits.double() - wanted).norm() / wanted.norm()))
        return math.nan if any(map(math.isnan, errors)) else max(errors)

    def time(self, step: Callable[[], Any]) -> float:
        """Microseconds of a step."""
        steps = self.options.steps
        self.control.barrier()
        if self.options.device == "cpu":
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            return (time.perf_counter() - begin) * 1e6 / steps
        import torch

        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        step()  # the ranks begin together: its all-reduces wait for all of them
        first.record()
        for _ in range(steps):
            step()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3 / steps

    def measure(self, batch: int) -> dict[str, Any]:
        """All engines with one batch: in turns, each round beginning with another one."""
        self.watchdog.phase(f"batch {batch}: the reference")
        expected = self.decoder.step(self.reference, batch)
        steps, errors = {}, {}
        for name, engine in self.engines.items():
            self.watchdog.phase(f"batch {batch}: preparing {name}")
            step, logits = self.capture(engine, batch)
            step()
            errors[name] = self.error_of(logits, expected)
            if not errors[name] <= TOLERANCE[self.options.dtype]:
                fail(f"{NAME}: {name}, batch {batch}: the logits are off by {errors[name]:.3g} of their norm; "
                     f"{TOLERANCE[self.options.dtype]:g} are allowed")
            steps[name] = step
        times: dict[str, list[float]] = {name: [] for name in steps}
        order = list(steps)
        for turn in range(WARMUP_ROUNDS + self.options.rounds):
            for name in order[turn % len(order):] + order[:turn % len(order)]:
                self.watchdog.phase(f"batch {batch}: round {turn + 1} of {name}")
                took = self.time(steps[name])
                if turn >= WARMUP_ROUNDS:
                    times[name].append(took)
        self.watchdog.phase(f"batch {batch}: collecting the times")
        everyones = self.agree(times)
        result: dict[str, Any] = {}
        for name in steps:
            slowest = [max(each) for each in zip(*(times[name] for times in everyones))]
            median = statistics.median(slowest)
            result[name] = {"tokens_per_s": batch * 1e6 / median,
                            "step_us": {"median": median, "min": min(slowest), "max": max(slowest)},
                            "rounds_us": slowest, "relative_error": errors[name]}
        return {"batch": batch, "engines": result}

    def run(self) -> None:
        describe(self)
        self.make_engines()
        self.check_invariance()
        self.say(f"\ntokens per second, median of {self.options.rounds} rounds of {self.options.steps} steps in turns")
        table = _report.Table(["batch", *(engine.title for engine in self.engines.values())]) if self.rank == 0 else None
        results = []
        for batch in self.options.batches:
            results.append(self.measure(batch))
            if table is not None:
                show_speed(results[-1], table)
        self.watchdog.phase("reporting")
        if self.rank == 0:
            show_results(self, results)
            if self.options.json is not None:
                _report.write_json(self.options.json, report(self, results))
        self.control.barrier()
        self.control.leave()


def versions(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"python": ".".join(map(str, sys.version_info[:3])), "torch": torch.__version__, "cuda": torch.version.cuda}
    if options.device == "cuda" and torch.distributed.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def machine(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    found = _report.machine()
    if options.device == "cuda":
        driver = Path("/sys/module/nvidia/version")
        found["gpus"] = {"names": [torch.cuda.get_device_name(rank) for rank in range(options.ranks)],
                         "driver": driver.read_text().strip() if driver.exists() else "", "cuda": torch.version.cuda}
    return found


def describe(rank: Rank) -> None:
    """The first lines: what is measured, on what."""
    options = rank.options
    where = machine(options)
    gpus = where.get("gpus")
    place = f"{options.ranks} x {gpus['names'][0]}, driver {gpus['driver']}" if gpus else f"{where['cpu']}, {where['cores']} cores"
    known = ", ".join(f"{name} {version}" for name, version in versions(options).items() if version)
    rank.say(f"{NAME}: onehop {oh.__version__}, {known}\n"
             f"{options.ranks} ranks on {place}; multicast (NVLS) off\n"
             f"{options.dtype}, hidden {options.hidden}, {options.layers} layers, {options.heads} heads, {options.kv_heads} of keys and "
             f"values, MLP {options.inner}, vocabulary {options.vocabulary}, context {options.context}; "
             f"{'a CUDA graph per step' if options.device == 'cuda' else 'no CUDA graphs'}")


def show_speed(row: dict[str, Any], table: _report.Table) -> None:
    """A row of the first table."""
    rates = [each["tokens_per_s"] for each in row["engines"].values()]
    table.row([str(row["batch"]), *(f"{rate:.1f}" for rate in rates)], [1 + rates.index(max(rates))])


def show_results(rank: Rank, results: list[dict[str, Any]]) -> None:
    """The second table."""
    print("\nwhat the sums are like")
    table = _report.Table([f"{'all-reduce':>{max(len(engine.title) for engine in rank.engines.values())}}", "largest error of the logits",
                           "same bits in every batch"])
    for name, engine in rank.engines.items():
        error = max(row["engines"][name]["relative_error"] for row in results)
        table.row([engine.title, f"{error:.1e}", "yes" if rank.invariant[name] else "no"])


def report(rank: Rank, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What --json writes."""
    options = rank.options
    settings = {name: getattr(options, name) for name in ("ranks", "device", "dtype", "batches", "hidden", "layers", "heads", "kv_heads",
                                                          "inner", "vocabulary", "context", "rounds", "steps", "timeout")}
    return {"format": "onehop-decode", "format_version": 1, **_report.origin(NAME), "versions": versions(options),
            "machine": machine(options),
            "run": settings | {"launcher": oh.job().launcher, "graphs": options.device == "cuda", "multicast": False,
                               "tolerance": TOLERANCE[options.dtype]},
            "engines": {name: {"title": engine.title, "batch_invariant": rank.invariant[name]} for name, engine in rank.engines.items()},
            "unavailable": rank.unavailable, "results": results}


def run_rank(options: argparse.Namespace) -> NoReturn:
    """A rank of the job. Does not return: process groups and graphs of several libraries are given back by the end of the process,
    in no order that could wait."""
    rank = oh.job().rank
    try:
        Rank(options).run()
    except Exception as error:
        import torch.distributed as dist

        if not isinstance(error, (oh.Error, dist.DistError)):
            import traceback

            traceback.print_exc()
        fail(f"{NAME}: rank {rank}: {str(error).strip() or type(error).__name__}")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    job = _ranks.job()
    try:
        options = parse()
        import_torch()
        if options.list:
            list_engines(options.device)
            return
        resolve(options, None if job is None else job.size)
    except BadInput as error:
        _ranks.refuse(NAME, error)
    if job is None:
        _ranks.launch(NAME, options.ranks)
    run_rank(options)


if __name__ == "__main__":
    main()
