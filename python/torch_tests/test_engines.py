# SPDX-License-Identifier: Apache-2.0
"""The plug-ins of vLLM and SGLang, in stand-ins for the engines (stubs/), with real processes and process groups.

The stand-ins have the engines' signatures. Where the engines' sources are, that is compared: the installed packages, or the
directories that ONEHOP_TEST_VLLM_SOURCE and ONEHOP_TEST_SGLANG_SOURCE name, such as unpacked wheels.
"""

import ast
import importlib.util
import logging
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import meet

HERE = Path(__file__).resolve().parent
STUBS = HERE / "stubs"
GPUS = torch.cuda.device_count()

on_devices = pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(GPUS == 0, reason="needs a GPU"))],
)


class Log(logging.Handler):
    """What the plug-ins log in this process."""

    def __init__(self):
        super().__init__()
        self.lines = []
        for name in ("vllm.onehop", "sglang.onehop"):
            logging.getLogger(name).addHandler(self)
            logging.getLogger(name).setLevel(logging.INFO)

    def emit(self, record):
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


def engine(device="cpu", vllm="", sglang=""):
    """Makes a stand-in importable in this rank, with the plug-in on or off."""
    if device == "cuda":
        torch.cuda.set_device(local_rank(device))
        if GPUS < dist.get_world_size():
            os.environ["ONEHOP_ALLOW_OVERLAPPING_DEVICES"] = "1"
    sys.path.insert(0, str(STUBS))
    os.environ["ONEHOP_VLLM"] = vllm
    os.environ["ONEHOP_SGLANG"] = sglang
    return Log()


def local_rank(device):
    return dist.get_rank() % GPUS if device == "cuda" else -1


def vllm_group(device="cpu", name="tp", ranks=None):
    from vllm.distributed.parallel_state import GroupCoordinator

    ranks = ranks if ranks is not None else [list(range(dist.get_world_size()))]
    return GroupCoordinator(ranks, local_rank(device), "gloo", True, group_name=name)


def sglang_group(device="cpu"):
    from sglang.srt.distributed.parallel_state import init_model_parallel_group
    from sglang.srt.plugins import load_plugins

    load_plugins()
    return init_model_parallel_group([list(range(dist.get_world_size()))], local_rank(device), "gloo")


def value(rank, shape, dtype, device):
    """Small whole numbers, whose sums are exact in every type."""
    generator = torch.Generator().manual_seed(100 * rank + len(shape))
    return torch.randint(0, 7, shape, generator=generator).to(dtype).to(device)


def everyone(size, shape, dtype, device):
    return [value(rank, shape, dtype, device) for rank in range(size)]


def collectives(rank, size, kind):
    log = engine(kind, vllm="1")
    group = vllm_group(kind)
    comm, device = group.device_communicator, group.device
    where = "GPUs" if kind == "cuda" else "host ranks"
    assert len(log.lines) == (1 if rank == 0 else 0)
    if rank == 0:
        assert f"INFO: onehop {onehop_version()} carries group 'tp:0': {size} {where}" in log.lines[0]
    assert type(comm).__name__ == "Communicator" and comm.unique_name == "tp:0" and comm.ca_comm is None

    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64, torch.uint8):
        for shape in ((3, 8), (1,), (4, 0), (5, 2, 7)):
            parts = everyone(size, shape, dtype, device)
            x = parts[rank].clone()
            y = comm.all_reduce(x)
            assert y.data_ptr() != x.data_ptr() or x.numel() == 0
            assert torch.equal(x, parts[rank]) and torch.equal(y, sum(parts[1:], parts[0]))
            assert y.dtype == dtype and y.shape == x.shape
        parts = everyone(size, (6, 4), dtype, device)
        y = comm.all_reduce(parts[rank].t())
        assert torch.equal(y, sum(parts[1:], parts[0]).t())
        assert y.stride() == torch.empty_like(parts[rank].t()).stride()

    for dtype in (torch.bfloat16, torch.int16, torch.bool, torch.complex64, torch.float8_e4m3fn):
        for shape in ((3, 4, 5), (0, 4, 2)):
            parts = everyone(size, shape, torch.float32, device)
            parts = [part.to(dtype) for part in parts]
            bits = [part.to(torch.complex64) for part in parts]  # types that torch.cat and torch.equal lack
            for dim in (0, 1, 2, -1):
                y = comm.all_gather(parts[rank], dim)
                assert y.dtype == dtype and torch.equal(y.to(torch.complex64), torch.cat(bits, dim))
                z = comm.gather(parts[rank], size - 1, dim)
                if rank == size - 1:
                    assert torch.equal(z.to(torch.complex64), torch.cat(bits, dim))
                else:
                    assert z is None
            y = comm.custom_all_gather(parts[rank])
            assert torch.equal(y.to(torch.complex64), torch.cat(bits))
            x = parts[rank].clone()
            assert comm.broadcast(x, 1) is x and torch.equal(x.to(torch.complex64), bits[1])
        x = parts[rank].transpose(0, 2).clone(memory_format=torch.contiguous_format).transpose(0, 2)
        assert torch.equal(comm.broadcast(x, 1).to(torch.complex64), bits[1])

    parts = everyone(size, (4 * size, 2 * size, 3 * size), torch.float32, device)
    total = sum(parts[1:], parts[0])
    for dim in (0, 1, 2, -1):
        y = comm.reduce_scatter(parts[rank], dim)
        assert torch.equal(y, total.chunk(size, dim)[rank]) and y.is_contiguous()
        assert torch.equal(comm.reduce_scatterv(parts[rank], dim), y)
    assert torch.equal(comm.custom_reduce_scatter(parts[rank]), total.chunk(size)[rank])
    assert comm.custom_reduce_scatter(parts[rank][:size + 1]) is None
    with pytest.raises(ValueError, match=f"{size + 1} rows cannot be divided among {size} ranks"):
        comm.reduce_scatter(parts[rank][:size + 1], 0)

    for sizes in ([2] * size, list(range(size)), [0] * (size - 1) + [5]):
        parts = [value(r, (sizes[r], 6), torch.bfloat16, device) for r in range(size)]
        flags = [part > 3 for part in parts]
        y, z = comm.all_gatherv([parts[rank], flags[rank]], 0, sizes)
        assert torch.equal(y, torch.cat(parts)) and torch.equal(z, torch.cat(flags))
        assert torch.equal(comm.all_gatherv(parts[rank], sizes=sizes), y)
        wide = everyone(size, (sum(sizes), 5), torch.float32, device)
        total = sum(wide[1:], wide[0])
        mine = total.split(sizes)[rank]
        assert torch.equal(comm.reduce_scatterv(wide[rank], 0, sizes), mine)
        tall = wide[rank].t().contiguous()
        assert torch.equal(comm.reduce_scatterv(tall, -1, sizes), mine.t())
        for out in (torch.empty_like(mine), torch.empty(5, sizes[rank], device=device).t()):
            y = comm.reduce_scatterv_into_output(wide[rank], out, 0, sizes)
            assert torch.equal(out, mine) and torch.equal(y, mine)
    if size > 2:
        with pytest.raises(ValueError, match="do not fit sizes"):
            comm.all_gatherv(parts[rank][:0].new_empty(9, 6), 0, list(range(size)))
    assert torch.equal(comm.all_gatherv(wide[rank]), torch.cat(wide))

    x = value(rank, (4, 3), torch.float32, device)
    if rank % 2 == 0 and rank + 1 < size:
        comm.send(x)
        comm.send(x.t(), rank + 1)
    elif rank % 2 == 1:
        before = value(rank - 1, (4, 3), torch.float32, device)
        assert torch.equal(comm.recv(x.shape, x.dtype), before)
        assert torch.equal(comm.recv(x.t().shape, x.dtype, rank - 1), before.t())

    with torch.inference_mode():
        again = vllm_group(kind, "ep")
        assert torch.equal(again.all_reduce(x), sum(everyone(size, (4, 3), torch.float32, device)))
    with group.graph_capture():
        group.all_reduce(x)
    assert comm.calls == [] and again.device_communicator.calls == []
    comm.suspend()
    comm.resume()
    joined = comm._joined
    again.destroy()
    group.destroy()
    group.device_communicator.destroy()
    assert comm.calls == ["suspend", "resume", "destroy", "destroy"]
    with pytest.raises(ValueError, match="left"):
        joined.group.check()


def onehop_version():
    import onehop

    return onehop.__version__


@on_devices
@pytest.mark.parametrize("size", [2, 3, 4])
def test_vllm_collectives(ranks, device, size):
    ranks(size, collectives, device, backend="gloo")


def compiled(rank, size, device):
    engine(device, vllm="1")
    group = vllm_group(device)
    comm = group.device_communicator

    def program(x):
        local = comm.custom_all_gather(x)  # None, so that Dynamo has nothing to trace
        return group.all_reduce(x * 2) + (1 if local is None else 1000)

    x = value(rank, (4, 8), torch.bfloat16, group.device)
    expected = sum(everyone(size, (4, 8), torch.bfloat16, group.device)) * 2 + 1
    program = torch.compile(program, fullgraph=True, backend="aot_eager")
    assert torch.equal(program(x), expected)
    x = value(rank, (5, 8), torch.bfloat16, group.device).t()
    expected = sum(everyone(size, (5, 8), torch.bfloat16, group.device)).t() * 2 + 1
    assert torch.equal(program(x), expected)
    group.destroy()


@on_devices
def test_vllm_in_torch_compile(ranks, device):
    ranks(2, compiled, device, backend="gloo")


def same_bits(rank, size, device, make):
    """The sum of a row does not depend on the rows beside it, nor on the collective."""
    engine(device, vllm="1", sglang="1")
    group = make(device)
    for dtype in (torch.bfloat16, torch.float32):
        generator = torch.Generator().manual_seed(rank)
        rows = torch.randn(1025, 512, generator=generator).to(dtype).to(group.device)
        expected = group.all_reduce(rows.clone())
        for batch in (1, 2, 7, 64, 300):
            y = group.all_reduce(rows[:batch].clone())
            assert torch.equal(y.view(torch.uint8), expected[:batch].view(torch.uint8)), (dtype, batch)
        if make is vllm_group:
            comm = group.device_communicator
            even = 1024 // size * size
            part = expected[:even].chunk(size)[rank]
            assert torch.equal(comm.reduce_scatter(rows[:even], 0), part)
            sizes = [even // size] * (size - 1) + [even // size + 1025 - even]
            assert torch.equal(comm.reduce_scatterv(rows, 0, sizes), expected.split(sizes)[rank])
    group.destroy()


@on_devices
@pytest.mark.parametrize("make", [vllm_group, sglang_group])
def test_bits_do_not_depend_on_the_batch(ranks, device, make):
    ranks(4, same_bits, device, make, backend="gloo")


def captured(rank, size, make):
    engine("cuda", vllm="1", sglang="1")
    group = make("cuda")
    x = torch.zeros(16, 4096, dtype=torch.bfloat16, device=group.device)
    graph = torch.cuda.CUDAGraph()
    with group.graph_capture(), torch.cuda.graph(graph):  # nothing has warmed up
        y = group.all_reduce(x)
        if make is vllm_group:
            z = group.device_communicator.all_gatherv(y[:rank + 1], 0, [r + 1 for r in range(size)])
    for step in range(3):
        x.fill_(rank + step)
        graph.replay()
        torch.cuda.synchronize()
        total = sum(r + step for r in range(size))
        assert (y == total).all()
        if make is vllm_group:
            assert (z == total).all() and z.shape[0] == size * (size + 1) // 2
    del graph
    group.destroy()


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
@pytest.mark.parametrize("make", [vllm_group, sglang_group])
@pytest.mark.parametrize("segments", ["False", "True"])
def test_graphs(ranks, monkeypatch, make, segments):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", f"expandable_segments:{segments}")
    ranks(2, captured, make, backend="gloo")


def fallbacks(rank, size):
    log = engine(vllm="1")
    from vllm.platforms import current_platform

    # What onehop does not reduce.
    group = vllm_group()
    comm = group.device_communicator
    x = torch.ones(4, dtype=torch.complex64)
    assert torch.equal(comm.all_reduce(x), x * size) and comm.calls == ["all_reduce"]
    for call in ("reduce_scatter", "reduce_scatterv"):
        getattr(comm, call)(x, 0)
    comm.reduce_scatterv_into_output(x, x, 0)
    assert comm.calls[1:] == ["reduce_scatter", "reduce_scatterv", "reduce_scatterv_into_output"]
    assert comm.custom_reduce_scatter(x) is None
    comm.calls.clear()
    comm.all_gatherv(x, 1)
    assert comm.calls == ["all_gatherv"]
    group.destroy()

    # Groups of one rank, and those that do not communicate through their communicator.
    assert vllm_group("cpu", "tp", [[r] for r in range(size)]).device_communicator is None
    assert vllm_group("cpu", "pp").device_communicator._joined is None
    assert len(log.lines) == (1 if rank == 0 else 0)

    # A rank that cannot join: all decline, the first one says why, and vLLM's own communicators are there.
    if rank == 1:
        os.environ["ONEHOP_ENGINE_TIMEOUT"] = "soon"
    group = vllm_group()
    comm = group.device_communicator
    assert comm._joined is None and comm.ca_comm is not None
    y = torch.ones(4)
    assert torch.equal(group.all_reduce(y), y * size)
    for call, arguments in {
        "all_gather": (y,),
        "all_gatherv": (y,),
        "reduce_scatter": (y,),
        "gather": (y,),
        "broadcast": (y,),
        "send": (y,),
        "recv": (y.shape, y.dtype),
    }.items():
        getattr(comm, call)(*arguments)
        assert comm.calls[-1] == call
    assert comm.calls[:2] == ["_log_all_reduce_backend_selection", "all_reduce"]
    assert comm.custom_all_gather(y) is None
    if rank == 0:
        assert log.lines[1:] == [
            "WARNING: onehop does not carry group 'tp:3', the engine's own communicators do: rank 1: "
            "ONEHOP_ENGINE_TIMEOUT='soon' makes no sense; set it to seconds, more than 0 and at most 86400"
        ]
    else:
        assert log.lines == []
    os.environ["ONEHOP_ENGINE_TIMEOUT"] = ""

    # Too many GPUs: no rank begins to join.
    from onehop.engines import _joined

    real = dist.get_world_size
    dist.get_world_size = lambda group=None: 16 if group is comm.cpu_group else real(group)
    try:
        assert _joined.join(comm.cpu_group, torch.device("cuda", 0), "dp:0", logging.getLogger("vllm.onehop")) is None
    finally:
        dist.get_world_size = real
    if rank == 0:
        assert "it has 16 ranks; onehop carries groups of at most 8 GPUs of one machine" in log.lines[-1]

    # Elastic expert parallelism insists on the class itself.
    from vllm.config import vllm as config

    class Elastic:
        class parallel_config:
            enable_elastic_ep = True

    config._current_vllm_config = Elastic
    assert current_platform.get_device_communicator_cls().endswith(".CudaCommunicator")
    assert "elastic expert parallelism" in log.lines[-1]


def test_vllm_falls_back_on_all_ranks(ranks):
    ranks(3, fallbacks, backend="gloo")


def off(rank, size):
    log = engine(vllm="0")
    group = vllm_group()
    assert type(group.device_communicator).__module__.startswith("vllm.") and "onehop.engines" not in sys.modules
    group = sglang_group()
    assert type(group.ca_comm).__module__.startswith("sglang.") and "onehop.engines" not in sys.modules
    assert log.lines == []


def test_off(ranks):
    ranks(2, off, backend="gloo")


def sglang_calls(rank, size, kind):
    log = engine(kind, sglang="1")
    group = sglang_group(kind)
    ours, device = group.ca_comm, group.device
    assert type(ours).__name__ == "AllReduce" and not ours.disabled
    assert len(log.lines) == (1 if rank == 0 else 0)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for shape in ((1,), (3, 5), (700, 1024)):  # neither multiples of 16 bytes nor of a few megabytes
            parts = everyone(size, shape, dtype, device)
            assert ours.should_custom_ar(parts[rank])
            y = group.all_reduce(parts[rank])
            assert y is not parts[rank] and torch.equal(y, sum(parts[1:], parts[0]))
    x = torch.ones(3, dtype=torch.complex64, device=device)
    assert not ours.should_custom_ar(x) and ours.custom_all_reduce(x) is None
    with group.graph_capture():
        assert torch.equal(group.all_reduce(parts[rank]), sum(parts[1:], parts[0]))
    ours.close()
    ours.close()
    assert ours.disabled and not ours.should_custom_ar(parts[rank])
    del ours
    group.destroy()

    # Deterministic inference: SGLang's custom all-reduce is off, onehop's is not.
    from sglang.srt.distributed import parallel_state
    from sglang.srt.environ import envs

    parallel_state.set_custom_all_reduce(False)
    assert sglang_group(kind).ca_comm is None
    envs.SGLANG_ENABLE_DETERMINISTIC_INFERENCE.set(True)
    parallel_state.set_custom_all_reduce(enable=False)
    group = sglang_group(kind)
    assert type(group.ca_comm).__name__ == "AllReduce"
    inner = group.ca_comm._joined.group
    group.destroy()  # lets go of it, without close
    with pytest.raises(ValueError, match="left"):
        inner.check()

    # A rank that cannot join.
    os.environ["ONEHOP_ENGINE_TIMEOUT"] = "-1" if rank == 0 else ""
    assert sglang_group(kind).ca_comm is None  # deterministic: SGLang's own would not be
    parallel_state.set_custom_all_reduce(True)
    assert type(sglang_group(kind).ca_comm).__name__ == "CustomAllreduce"
    if rank == 0:
        assert [line for line in log.lines if line.startswith("WARNING")] == log.lines[-2:]
        assert "rank 0: ONEHOP_ENGINE_TIMEOUT='-1'" in log.lines[-1]


@on_devices
def test_sglang(ranks, device):
    ranks(2, sglang_calls, device, backend="gloo")


def killed(rank, size):
    """A rank dies: whoever calls is told, and a process that only replays graphs ends."""
    engine(vllm="1")
    from onehop.engines import _joined

    group = vllm_group()
    group.all_reduce(torch.ones(4))
    meet()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    if rank == 2:
        time.sleep(60)
        raise AssertionError("a process that makes no calls went on after the failure")
    with pytest.raises(Exception, match="rank 1 died") as caught:
        while True:
            group.all_reduce(torch.ones(4))
    assert type(caught.value).__name__ == "PeerLost" and time.monotonic() - begin < 10
    time.sleep(_joined.Joined.GRACE + 3)  # it was told, so it goes on
    group.device_communicator.destroy()


def test_killed_rank(ranks):
    ranks(3, killed, killed=(1, 2), backend="gloo", deadline=60)


def python(program, **environment):
    environment = {**os.environ, "ONEHOP_VLLM": "", "ONEHOP_SGLANG": "", **environment}
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


LOAD = """
import sys
from importlib.metadata import entry_points
[plugin] = [each for each in entry_points(group={group!r}) if each.name == "onehop"]
print(plugin.load()(), *[name for name in ("onehop", "torch", "vllm", "sglang") if name in sys.modules])
"""


@pytest.mark.parametrize("group", ["vllm.platform_plugins", "sglang.srt.plugins"])
def test_entry_points(group):
    """Of the installed package. Off, they import nothing; on without an engine, they say so and stay off."""
    variable = "ONEHOP_VLLM" if group.startswith("vllm") else "ONEHOP_SGLANG"
    assert len([each for each in entry_points(group=group) if each.name == "onehop"]) == 1
    program = LOAD.format(group=group)
    for text in ("", "0", "off"):
        assert python(program, **{variable: text}) == (0, "None", "")
    code, output, errors = python(program, **{variable: "perhaps"})
    assert (code, output) == (0, "None")
    assert errors == f"onehop is off: {variable}='perhaps' makes no sense; set it to 1 or 0"
    if importlib.util.find_spec(group.split(".")[0]) is None:
        code, output, errors = python(program, **{variable: "1"})
        assert code == 0 and output.startswith("None") and errors.startswith("onehop is off: No module named")


def test_the_name_of_the_platform():
    program = LOAD.format(group="vllm.platform_plugins")
    code, output, errors = python(program, ONEHOP_VLLM="1", PYTHONPATH=str(STUBS))
    assert (code, output, errors) == (0, "onehop.engines.vllm_platform.Platform onehop vllm", "")
    no_gpus = "import vllm.platforms\nvllm.platforms.cuda_platform_plugin = lambda: None\n" + program
    code, output, errors = python(no_gpus, ONEHOP_VLLM="on", PYTHONPATH=str(STUBS))
    assert output.startswith("None") and errors == "onehop is off: vLLM finds no NVIDIA GPUs"


# Signatures, from source texts: the engines need GPUs and many packages to be imported.


def names_of(function):
    """Parameters by name and kind, the number of those with a default, and how the function is decorated."""
    a = function.args
    bare = {ast.unparse(each) for each in function.decorator_list}
    return {
        "parameters": [x.arg for x in a.posonlyargs + a.args],
        "defaults": len(a.defaults),
        "keywords": [(x.arg, default is None) for x, default in zip(a.kwonlyargs, a.kw_defaults, strict=True)],
        "open": (a.vararg is not None, a.kwarg is not None),
        "decorated": bare & {"classmethod", "staticmethod", "property", "contextmanager"},
    }


def definitions(file):
    """{name: signature} of a file's functions and methods, None for its classes and other names."""
    found = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef):
            found[node.name] = None
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    found[f"{node.name}.{each.name}"] = names_of(each)
                elif isinstance(each, ast.Assign | ast.AnnAssign):
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    found.update({f"{node.name}.{x.id}": None for x in targets if isinstance(x, ast.Name)})
        elif isinstance(node, ast.Assign):
            found.update({x.id: None for x in node.targets if isinstance(x, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = None
        elif isinstance(node, ast.ImportFrom):
            found.update({x.asname or x.name: None for x in node.names})
        elif isinstance(node, ast.FunctionDef) and node.col_offset == 0:
            found[node.name] = names_of(node)
    return found


def source_of(engine):
    """The directory with the engine's package; skips if there is none."""
    named = os.environ.get(f"ONEHOP_TEST_{engine.upper()}_SOURCE")
    if named:
        assert (Path(named) / engine / "__init__.py").is_file(), f"{named} has no package {engine}"
        return Path(named)
    found = importlib.util.find_spec(engine)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"neither is {engine} installed, nor does ONEHOP_TEST_{engine.upper()}_SOURCE name its source")
    return Path(found.submodule_search_locations[0]).parent


def calls_of(function_name, file):
    """The keywords of the calls of a name in a file."""
    return [
        (len(node.args), {each.arg for each in node.keywords})
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function_name
    ]


# How the stand-ins are made.
PRIVATE_TO_STUBS = {"_library", "found", "owner", "platforms"}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_stand_ins_have_the_engines_signatures(engine):
    source = source_of(engine)
    compared = 0
    for stub in sorted((STUBS / engine).rglob("*.py")):
        real = source / stub.relative_to(STUBS)
        assert real.is_file(), f"{engine} has no {stub.relative_to(STUBS)}"
        known = definitions(real)
        for name, signature in definitions(stub).items():
            if name in PRIVATE_TO_STUBS:
                continue
            assert name in known, f"{real} has no {name}"
            if signature is not None:
                assert signature == known[name], f"{name} of {real}"
                compared += 1
    assert compared > 10


@pytest.mark.parametrize(
    "root",
    [pytest.param(lambda engine: STUBS, id="stubs"), pytest.param(source_of, id="engines")],
)
def test_the_plugins_have_the_signatures_that_they_replace(root):
    import onehop.engines

    ours = Path(onehop.engines.__file__).parent
    vllm, sglang = root("vllm") / "vllm/distributed/device_communicators", root("sglang") / "sglang/srt"
    base = definitions(vllm / "base_device_communicator.py")
    cuda = definitions(vllm / "cuda_communicator.py")
    overridden = 0
    for name, signature in definitions(ours / "vllm_communicator.py").items():
        kind, _, method = name.partition(".")
        if kind != "Communicator" or method in ("", "_moves", "_reduces", "_gather_rows", "_scatter_rows", "_check_sizes"):
            continue
        theirs = cuda.get(f"CudaCommunicator.{method}", base.get(f"DeviceCommunicatorBase.{method}"))
        assert signature == theirs, method
        overridden += 1
    assert overridden == 15
    custom = definitions(sglang / "distributed/device_communicators/custom_all_reduce.py")
    mine = definitions(ours / "sglang.py")
    for method in ("should_custom_ar", "custom_all_reduce", "close"):
        assert mine[f"AllReduce.{method}"] == custom[f"CustomAllreduce.{method}"], method
    assert mine["_dispatch"]["parameters"][1:] == custom["dispatch_custom_allreduce"]["parameters"]
    # How the engines call what the plug-ins provide.
    accepted = set(definitions(ours / "vllm_communicator.py")["Communicator.__init__"]["parameters"])
    state = sglang / "distributed/parallel_state.py"
    for positional, keywords in calls_of("CAClass", state) + calls_of("dispatch_custom_allreduce", state):
        assert positional == 0 and keywords == {"group", "device"}
    assert calls_of("CAClass", state) and calls_of("dispatch_custom_allreduce", state)
    if root is source_of:
        made = calls_of("device_comm_cls", vllm.parent / "parallel_state.py")
        assert made and all(positional == 0 and keywords <= accepted for positional, keywords in made)


def test_sglang_uses_no_more_of_a_custom_all_reduce():
    """What GroupCoordinator takes from it without asking whether it is there."""
    state = source_of("sglang") / "sglang/srt/distributed/parallel_state.py"
    used, asked = set(), set()
    for node in ast.walk(ast.parse(state.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("ca_comm", "self.ca_comm"):
            used.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("hasattr", "getattr") and len(node.args) > 1:
            if isinstance(node.args[1], ast.Constant):
                asked.add(node.args[1].value)
    provided = definitions(Path(importlib.util.find_spec("onehop.engines.sglang").origin))
    provided = {name.partition(".")[2] for name in provided if name.startswith("AllReduce.")} | {"disabled"}
    assert "custom_all_reduce" in used and used - asked - {"disabled"} <= provided | asked
