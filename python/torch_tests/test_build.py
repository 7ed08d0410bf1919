# SPDX-License-Identifier: Apache-2.0
"""The compiler's cache: many processes at once, killed builds, damaged files, no compiler."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest
import torch

from onehop.torch import _build


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """A compiler that notes each call, and takes SLOWER seconds longer, and an empty cache."""
    log = tmp_path / "calls"
    wrapper = tmp_path / "compiler"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {log}\nsleep ${{SLOWER-0}}\nexec c++ "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(wrapper))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def small(tmp_path, monkeypatch):
    """An extension that compiles at once. The machinery is the same as for what is shipped, which takes half a minute."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "small.cc").write_text("extern int small;\nint small = 1;\n")
    monkeypatch.setattr(_build, "_SOURCES", sources)
    return _build.Extension("small", ["small.cc"], [], ["c10"])


LOAD = """
import pathlib, sys
from onehop.torch import _build
_build._SOURCES = pathlib.Path(sys.argv[1])
print(_build.load_path(_build.Extension("small", ["small.cc"], [], ["c10"])))
"""


def start():
    """Compiles for so long that others come meanwhile, and that it can be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", LOAD, str(_build._SOURCES)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLOWER": "1"},
    )


def test_four_processes_compile_once(counting, small):
    processes = [start() for _ in range(4)]
    paths = {p.communicate(timeout=300)[0] for p in processes}
    assert all(p.returncode == 0 for p in processes) and len(paths) == 1
    assert counting() == 2  # compile, link
    assert str(_build.load_path(small)) == paths.pop().strip()
    assert counting() == 2


def test_truncated_file_is_compiled_again(counting, small, capfd):
    path = _build.load_path(small)
    line = f"onehop.torch: compiling small for torch {torch.__version__}, once\n"
    assert capfd.readouterr().err == line
    good = path.read_bytes()
    for damaged in (good[: len(good) // 2], b"", good[:-1], good[:100] + b"?" + good[101:]):
        path.write_bytes(damaged)
        assert not _build._complete(path)
    before = counting()
    assert _build.load_path(small) == path and _build._complete(path)
    assert counting() == before + 2
    assert capfd.readouterr().err == line
    assert _build.load_path(small) == path and capfd.readouterr().err == ""


def test_killed_build_recovers(counting, small):
    process = start()
    deadline = time.monotonic() + 60
    while counting() == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counting() == 1 and process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    path = _build.load_path(small)
    assert _build._complete(path)
    assert not list(path.parent.glob("*.tmp"))


def test_one_cxx_runtime(counting, monkeypatch):
    """Also with a compiler that links a static one, exceptions reach Python."""
    monkeypatch.setenv("CXX", "c++ -static-libstdc++")
    program = (
        "import torch; from onehop.torch import _ops; _ops._kernels(); "
        "torch.ops.onehop.all_reduce(torch.ones(3), 'nobody')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "no group is registered as 'nobody'" in done.stderr, done
    needed = subprocess.run(
        ["readelf", "-dW", str(_build.load_path(_build.OPS))], capture_output=True, text=True, check=True
    )
    assert "[libstdc++.so.6]" in needed.stdout


def test_operators_without_a_group_name_the_remedy():
    """Also before a group has been registered, which loads the kernels."""
    for call in (
        "all_reduce(x, 'nobody')",
        "all_reduce_(x, 'nobody')",
        "all_gather(x, group='nobody')",
        "all_reduce_add_rms_norm_(x, x.clone(), x, 1e-6, 'nobody')",
    ):
        program = f"import torch, onehop.torch; x = torch.ones(3); torch.ops.onehop.{call}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        message = "RuntimeError: onehop: no group is registered as 'nobody': call onehop.torch.register_group"
        assert done.returncode == 1 and message in done.stderr, done


def test_key_follows_compiler_and_library(counting, monkeypatch, tmp_path):
    first = _build._key(_build.OPS)
    monkeypatch.setenv("CXX", "g++")
    second = _build._key(_build.OPS)
    library = tmp_path / "libonehop.so.0"
    library.write_bytes(b"another")
    monkeypatch.setattr(_build._paths, "library", lambda: library)
    assert len({first, second, _build._key(_build.OPS)}) == 3


@pytest.mark.parametrize("compiler", ["/nowhere/c++", None])
def test_no_compiler(tmp_path, compiler):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    environment.pop("CXX", None)
    if compiler:
        environment["CXX"] = compiler
    done = subprocess.run(
        [sys.executable, "-m", "onehop.torch", "build"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    for word in ("C++20 compiler", compiler or "c++, g++, clang++", "CXX", "python -m onehop.torch build"):
        assert word in done.stderr


def test_compiler_error_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "c++ -include /nonexistent.h")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="(?s)compiling for torch.*error"):
        _build.load_path(_build.OPS)
    assert not list((tmp_path / "onehop" / "torch").glob("*.so"))


def test_build_command():
    """What an image runs. The session's fixture has compiled already."""
    done = subprocess.run(
        [sys.executable, "-m", "onehop.torch", "build"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.count(".so (") == 2
