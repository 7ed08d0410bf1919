# SPDX-License-Identifier: Apache-2.0
"""The package as users get it: imports, command, example, documents."""
import ast
import ctypes
import inspect
import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import get_args

import onehop as oh
import pytest
from onehop._types import Algorithm, Device, Framework, Health, Op, Outcome, ShareBy

ROOT = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sysconfig.get_path("scripts")) / "onehop")


def run(*command, **options):
    return subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=60, **options)


def test_import_needs_neither_numpy_nor_torch_nor_a_driver():
    program = """
import sys
before = set(sys.modules)
import onehop
assert not {"numpy", "torch", "cupy"} & set(sys.modules), sorted(set(sys.modules) - before)
maps = open("/proc/self/maps").read()
assert "libcuda" not in maps and "libcudart" not in maps
print(onehop.__version__)
"""
    result = run(sys.executable, "-c", program)
    assert (result.returncode, result.stdout) == (0, oh.__version__ + "\n"), result.stderr


def test_the_command_comes_along():
    for command in ([COMMAND], [sys.executable, "-m", "onehop"]):
        result = run(*command, "--version")
        assert result.returncode == 0 and oh.__version__ in result.stdout, result.stderr
        assert run(*command, "nonsense").returncode != 0


def test_programs_run_with_the_library_in_the_place_of_nccl(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import ctypes, os, sys
nccl = ctypes.CDLL("libnccl.so.2")
version = ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
print(version.value > 22000, "libonehop_nccl.so" in open("/proc/self/maps").read(), os.environ.get("ONEHOP_NCCL"), sys.argv[1:])
""")
    for name in ([program], ["--", sys.executable, program]):
        result = run(sys.executable, "-m", "onehop.nccl", "--mode", "alone", *name, "a b", "--mode")
        assert (result.returncode, result.stdout) == (0, "True True alone ['a b', '--mode']\n"), result.stderr
    result = run(sys.executable, "-m", "onehop.nccl")
    assert result.returncode == 2 and "command" in result.stderr


def test_everything_public_has_a_docstring():
    for name in oh.__all__:
        each = getattr(oh, name)
        if name == "__version__":
            continue
        assert each.__doc__, name
        if isinstance(each, type) and not issubclass(each, oh.Error):
            for member, value in vars(each).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert getattr(value, "__doc__", None), f"{name}.{member}"


def test_stub_and_marker_are_installed():
    package = Path(oh.__file__).parent
    assert (package / "py.typed").exists()
    stub = (package / "_core.pyi").read_text()
    compile(stub, "_core.pyi", "exec")
    assert "def all_reduce(self, x: Array, out: Array | None = None" in stub and "std::" not in stub


def parameters(signature):
    return {name: (parameter.kind, parameter.default) for name, parameter in signature.parameters.items()}


def test_signatures_are_those_of_the_stub():
    """Of all public functions, and of the methods of all classes. inspect's are what help(), IPython and editors show."""
    assert str(inspect.signature(oh.Group.reduce)) == (
        "(self, x: 'Array', out: 'Array | None' = None, op: 'Op' = 'sum', root: 'int' = 0, *, stream: 'Stream' = None, "
        "dtype: 'DType' = None, symmetric: 'bool' = False, factor: 'float' = 1.0, own_factor: 'Array | None' = None, "
        "timeout: 'float | timedelta | None' = None) -> 'Array | None'")
    stub = ast.parse((Path(oh.__file__).parent / "_core.pyi").read_text())
    compared = 0
    for node in (each for each in stub.body if isinstance(each, ast.ClassDef)):
        owner = getattr(oh, node.name, None)
        for method in (each for each in node.body if isinstance(each, ast.FunctionDef) and not each.decorator_list):
            found = inspect.getattr_static(owner, method.name, None)
            if type(found).__name__ != "nb_method" or hasattr(found, "__wrapped__"):
                continue
            method.body = [ast.Pass()]
            namespace = {}
            exec("from __future__ import annotations\n" + ast.unparse(method), namespace)
            expected = inspect.signature(namespace[method.name])
            assert parameters(inspect.signature(getattr(owner, method.name))) == parameters(expected), f"{node.name}.{method.name}"
            compared += 1
    assert compared > 40
    for name in oh.__all__:
        value = getattr(oh, name)
        if callable(value) and not inspect.isclass(value):
            assert inspect.signature(value), name


def test_signatures_of_bound_methods_and_classes(alone):
    assert list(inspect.signature(alone.send).parameters) == ["x", "dst", "stream", "dtype", "timeout"]
    assert list(inspect.signature(oh.Pool).parameters) == ["group", "nbytes"]

    class Own(oh.Pool):
        def __init__(self, mine):
            pass

    assert list(inspect.signature(Own).parameters) == ["mine"]
    assert "root" in inspect.signature(alone.broadcast).bind("x", root=1).arguments


PROGRAM = """
from datetime import timedelta
from typing import Any, assert_type

import numpy as np
import onehop as oh

g = oh.init(device="cuda", timeout=timedelta(seconds=5))
assert_type(g, oh.Group)
assert_type(g.rank, int)
assert_type(g.split(0), oh.Group | None)
x = np.ones(5, np.float32)
g.all_reduce(x, op="max", stream=None, algorithm="two-shot")
oh.Group.join(oh.MemoryStore(), 0, 1, device=f"cuda:{g.rank}", share_by=g.share_by)
oh.Group.join_local(["cpu", 0], share_by="ipc")
oh.symmetric_empty(g, 5, like="torch")
with oh.group_call():
    g.send(x, 1)
assert_type(g.shrink(timedelta(seconds=5)), oh.Group)
b = g.allocate(1024)
assert_type(b[1:2], oh.SymmetricBuffer)
assert_type(memoryview(b.local), memoryview)
with oh.Group.join(oh.FileStore("/tmp/x"), 0, 1) as h:
    h.barrier()
try:
    g.check()
except oh.PeerLost as error:
    assert_type(error.rank, int | None)
    assert_type(error.code, str)
assert_type(oh.__version__, str)
assert_type(oh.topology().as_dict(), dict[str, Any])
"""


def test_a_type_checker_understands_it(tmp_path):
    """In strict mode; and it finds the mistakes."""
    pytest.importorskip("mypy")
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(PROGRAM)
    bad.write_text("import numpy as np\nimport onehop as oh\noh.init(timeout='soon')\noh.init().all_reduce()\noh.nothing\n"
                   "oh.init().all_reduce(np.ones(3), op='mean')\noh.init().all_reduce([1, 2])\n"
                   "oh.init().all_reduce(np.ones(3)).nothing\n"
                   "oh.init().all_gather(np.ones(3), algorithm='ring')\noh.init(share_by='pipe')\noh.init(device=0.5)\n"
                   "oh.symmetric_empty(oh.init(), 3, like='jax')\n")
    check = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache")
    result = run(*check, good)
    assert result.returncode == 0, result.stdout + result.stderr
    result = run(*check, bad)
    assert [line.split(":")[1] for line in result.stdout.splitlines() if "error:" in line] == [str(n) for n in range(3, 13)], result.stdout


def refusal(call):
    with pytest.raises(oh.InvalidArgument) as info:
        call("nonsense")
    return str(info.value)


def test_names_in_annotations_are_those_that_calls_accept(alone):
    calls = [(Op, lambda name: alone.all_reduce(bytearray(4), op=name, dtype="f32")),
             (Algorithm, lambda name: alone.all_reduce(bytearray(4), algorithm=name, dtype="f32")),
             (ShareBy, lambda name: oh.Group.join(oh.MemoryStore(), 0, 1, share_by=name))]
    for names, call in calls:
        known = re.search("; known: ([^;]+)$", refusal(call))
        assert known and known[1].split() == list(get_args(names))
        for name in get_args(names):
            try:
                call(name)
            except oh.Error as error:  # for another reason: host ranks do not share memory as GPUs do
                assert "unknown" not in str(error)
    known = refusal(lambda name: oh.symmetric_empty(alone, 3, like=name)).partition("there are")[2]
    assert re.findall(r"'(\w+)'", known) == list(get_args(Framework))
    known = refusal(lambda name: oh.Group.join(oh.MemoryStore(), 0, 1, device=name)).partition("pass")[2]
    assert re.findall(r'"(\w+)"', known) == [name for each in get_args(Device) for name in get_args(each)]


def test_names_in_annotations_are_those_of_results(alone):
    assert alone.share_by in get_args(ShareBy) and alone.usage().keys() == set(get_args(Algorithm))
    library = ctypes.CDLL(str(next(Path(oh.__file__).parent.glob("libonehop.so*"))))
    library.onehop_peer_outcome_name.restype = ctypes.c_char_p
    names = (library.onehop_peer_outcome_name(number).decode() for number in itertools.count())
    assert tuple(itertools.takewhile(lambda name: name != "unknown", names)) == get_args(Outcome)


@pytest.mark.skipif(not (ROOT / "examples/python").is_dir(), reason="the repository is not here")
def test_the_example_runs():
    program = ROOT / "examples/python/all_reduce.py"
    # Unbuffered, a line and its end would be two writes, and the lines of the ranks would mix.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = run(COMMAND, "launch", "-n", "3", "--", sys.executable, program, env=environment)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"rank {r} of 3: all sums are 6" for r in range(3)]


@pytest.mark.skipif(not (ROOT / "docs/reference").is_dir(), reason="the repository is not here")
def test_the_reference_is_up_to_date():
    result = run(sys.executable, ROOT / "scripts/python_reference.py", "--check")
    assert result.returncode == 0, result.stdout + result.stderr


def from_environment(*arguments, **variables):
    program = "import onehop as oh; print(oh.job()); g = oh.init(); print(g.rank, g.size); oh.store_from_env().set('x', b'1')"
    return run(*arguments, sys.executable, "-c", program, env={**os.environ, **variables})


def test_init_from_the_environment():
    result = from_environment(COMMAND, "launch", "-n", "1", "--")
    assert result.returncode == 0 and "local_rank=0, launcher='onehop'" in result.stdout and "0 1" in result.stdout, result.stderr
    result = from_environment(ONEHOP_RANK="two", ONEHOP_SIZE="2")
    assert result.returncode != 0 and "ONEHOP_RANK" in result.stderr


def test_what_this_machine_has():
    topology = oh.topology()
    assert topology.as_dict() and "fully connected" in topology.connectivity([-1, -1])
    copy = oh.topology(topology.to_json())
    assert copy.to_json() == topology.to_json() and copy.to_text() and "<svg" in copy.to_svg()
    assert copy._repr_svg_() == copy.to_svg() and re.fullmatch(r"<onehop.Topology of \d+ GPUs>", repr(copy))
    assert isinstance(copy.notes, list) and copy.device_count >= 0
    with pytest.raises(oh.Error) as info:
        oh.topology("{}")
    assert info.value.code == "protocol"
    if not oh.doctor().gpus_usable:
        with pytest.raises(oh.Unsupported):
            oh.p2p_check(nbytes=1 << 20)
        with pytest.raises(oh.Unsupported):
            oh.Group.join(oh.MemoryStore(), 0, 1, device=0)


def test_doctor_says_what_the_command_says():
    diagnosis = oh.doctor()
    ended = run(COMMAND, "doctor", "--json", "-")
    report = json.loads(ended.stdout)
    assert diagnosis.usable == report["host_backend_works"] == (ended.returncode == 0)
    assert diagnosis.gpus_usable == report["gpu_backend_works"] == (run(COMMAND, "doctor", "--require", "cuda").returncode == 0)
    assert [each.name for each in diagnosis.findings] == [each["name"] for each in report["checks"]]
    assert all(each.health in get_args(Health) for each in diagnosis.findings)
    assert diagnosis.summary.startswith("the host backend works here; the GPU backend ")


def test_doctor_says_when_groups_cannot_be_formed(monkeypatch):
    monkeypatch.setenv("ONEHOP_RUNTIME_DIR", "/proc/nowhere")
    diagnosis = oh.doctor()
    assert not diagnosis.usable and diagnosis.summary.startswith("the host backend does not work here; ")
    failed = next(each for each in diagnosis.findings if each.name == "private directory")
    assert (failed.health, failed.essential) == ("fails", True) and "ONEHOP_RUNTIME_DIR" in failed.remedy


def test_doctor_without_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr("onehop._machine.command", lambda: tmp_path / "onehop")
    with pytest.raises(oh.Error, match="cannot run .*onehop: No such file or directory; reinstall the package"):
        oh.doctor()


# Runs a program in another interpreter of this process, and prints what it raises.
INTERPRETERS = """
import importlib, sys
WAYS = {}
try:
    import _testcapi
    WAYS["legacy"] = _testcapi.run_in_subinterp
except (ImportError, AttributeError):
    pass
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    def run(program, module=module, **options):
        made = module.create(**options)
        try:
            return module.run_string(made, program)
        finally:
            module.destroy(made)
    WAYS["isolated"] = run
    break
"""
IN_ANOTHER = """
import sys
sys.path[:] = {path!r}
try:
    import onehop
    text = "imported"
except ImportError as error:
    text = str(error)
with open({file!r}, "a") as file:
    file.write(text + "\\n")
"""
IN_MAIN = """
import numpy as np
import onehop as oh
store = oh.PyStore(type("S", (), dict(set=print, get=print, check=lambda *_: True, add=lambda *_: 7, compare_set=print,
                                      delete_key=print))())
for _ in range(2):
    for _ in range(3):
        assert not run_in_another()
    with oh.Group.join(oh.MemoryStore(), 0, 1) as group:
        x = np.ones(100)
        assert (group.all_reduce(x, op="max") == 1).all() and group.allocate(64).local.nbytes == 64
        try:
            group.all_reduce(x, op="bogus")
        except oh.InvalidArgument:
            pass
        assert store.add("key", 1) == 7
"""


@pytest.mark.parametrize("first", [True, False], ids=["before the main one", "after the main one"])
@pytest.mark.parametrize("way", ["legacy", "isolated"])
def test_other_interpreters_are_refused_and_the_main_one_works_on(way, first, tmp_path):
    found = run(sys.executable, "-c", INTERPRETERS + f"print({way!r} in WAYS)")
    if found.stdout != "True\n":
        pytest.skip(f"this Python cannot make a {way} sub-interpreter: {found.stderr}")
    file = tmp_path / "errors"
    program = INTERPRETERS + f"""
inner = {IN_ANOTHER.format(path=sys.path, file=str(file))!r}
def run_in_another():
    return WAYS[{way!r}](inner)
""" + ("assert not run_in_another()\n" if first else "") + IN_MAIN
    result = run(sys.executable, "-c", program)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    lines = file.read_text().splitlines()
    assert len(lines) == 6 + first
    # Where an interpreter has a GIL of its own, Python may refuse by itself.
    expected = ["onehop works in the main interpreter only"] + (["does not support loading in subinterpreters"] if way == "isolated" else [])
    assert all(any(each in line for each in expected) for line in lines), lines
