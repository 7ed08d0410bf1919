# SPDX-License-Identifier: Apache-2.0
"""Compiles the C++ parts of onehop.torch on first use, and keeps the results.

c10d is not part of torch's stable ABI: a backend compiled for one version of torch does not load in
another. The package therefore contains its source, 3000 lines on top of onehop's C API, and compiles it for
the torch that is installed: about a minute on two cores, once. The cache is $XDG_CACHE_HOME/onehop/torch
(~/.cache by default).

Every binary ends with the digest of its bytes, and is renamed into place when it is complete: a build that
was killed, or a disk that was full, leaves nothing that would be loaded.
"""

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from .. import _paths

_SOURCES = Path(__file__).resolve().parent / "csrc"
_MAGIC = b"onehop-complete\0"
_TRAILER = len(_MAGIC) + hashlib.sha256().digest_size
_TIMEOUT = 900.0  # seconds, for the compiler, and for another process that is compiling


class Extension:
    """A shared library made of `sources`; `defines` and `torch_libraries` as the compiler and linker take
    them."""

    def __init__(self, name: str, sources: list[str], defines: list[str], torch_libraries: list[str]):
        self.name = name
        self.sources = sources
        self.defines = defines
        self.torch_libraries = torch_libraries


# The module's name contains the version so that one process, such as a test, can tell binaries apart.
BACKEND = Extension(
    "_backend_native",
    ["backend.cc", "router.cc", "module.cc"],
    ["-DONEHOP_MODULE_NAME=_backend_native"],
    ["c10", "torch_cpu", "torch", "torch_python"],
)
# Not on torch's stable ABI: its conversions of arguments cost a third of a microsecond per call. A file of its
# own, because it compiles in seconds.
OPS = Extension("_ops_native", ["ops.cc"], [], ["c10", "torch_cpu"])


def load_path(extension: Extension) -> Path:
    """The binary for this torch, compiled now if the cache lacks it.

    RuntimeError if there is no compiler, or if it fails; the message names it. Safe to call from many
    processes at once: one compiles, the others wait for it.
    """
    directory = cache_dir()
    binary = directory / f"{extension.name}-{_key(extension)}.so"
    if _complete(binary):
        return binary
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(binary.with_suffix(".lock")):
        if not _complete(binary):
            print(
                f"onehop.torch: compiling {extension.name} for torch {torch.__version__}, once",
                file=sys.stderr,
                flush=True,
            )
            _compile(extension, binary)
    return binary


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base if base else Path.home() / ".cache") / "onehop" / "torch"


def _key(extension: Extension) -> str:
    """Changes with everything that the binary depends on."""
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            digest.update(len(data).to_bytes(8, "little") + data)

    add(torch.__version__, torch.version.git_version, torch.version.cuda, torch.version.hip)
    add(sysconfig.get_config_var("EXT_SUFFIX"), torch._C._GLIBCXX_USE_CXX11_ABI, Path(torch.__file__).parent)
    add(_compiler_from_environment(), extension.defines)
    for source in [*sorted(_SOURCES.glob("*.h")), *(_SOURCES / name for name in extension.sources)]:
        add(source.name, source.read_bytes())
    include = _paths.include_dir()
    for header in sorted(include.glob("onehop/c/*.h")) + [
        include / "onehop/c_api.h",
        include / "onehop/version.h",
    ]:
        add(header.name, header.read_bytes())
    library = _paths.library().resolve()
    add(library, library.stat().st_size, library.stat().st_mtime_ns)  # its content may take long to read
    return digest.hexdigest()[:20]


def _complete(binary: Path) -> bool:
    try:
        data = binary.read_bytes()
    except FileNotFoundError:
        return False
    body = memoryview(data)[:-_TRAILER]
    return data.endswith(_MAGIC + hashlib.sha256(body).digest())


@contextlib.contextmanager
def _locked(path: Path):
    """Holds an exclusive lock, which ends with the process at the latest."""
    deadline = time.monotonic() + _TIMEOUT
    with open(path, "a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"onehop.torch: another process has been compiling for {_TIMEOUT:.0f} s; it holds {path}"
                    ) from None
                time.sleep(0.05)
        yield


def _compiler_from_environment() -> str:
    return os.environ.get("CXX", "")


def _compiler() -> list[str]:
    chosen = _compiler_from_environment()
    candidates = [chosen] if chosen else ["c++", "g++", "clang++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return command
    missing = f"CXX={chosen} does not exist" if chosen else f"none of {', '.join(candidates)} is on PATH"
    raise RuntimeError(
        f"onehop.torch compiles its adapter for torch {torch.__version__} once and needs a C++20 compiler, "
        f"but {missing}. Install one (such as the package g++), set CXX, or run `python -m onehop.torch build` "
        f"where there is one, with the same torch and onehop, and copy {cache_dir()}"
    )


def _compile(extension: Extension, binary: Path) -> None:
    compiler = _compiler()
    root = Path(torch.__file__).resolve().parent
    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").exists():
        raise RuntimeError(
            f"onehop.torch: {python}/Python.h does not exist; install the headers of Python "
            f"(such as the package python3-dev)"
        )
    library = _paths.library().resolve()
    # torch's headers are those of a system: their warnings are not ours.
    flags = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-DNDEBUG"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", *extension.defines]
    flags += [f"-I{_paths.include_dir()}"]
    for directory in (root / "include", root / "include/torch/csrc/api/include", python):
        flags += ["-isystem", str(directory)]
    with tempfile.TemporaryDirectory(prefix=f"{binary.stem}.", suffix=".tmp", dir=binary.parent) as work:
        _remove_leftovers(binary, Path(work))
        objects = [str(Path(work) / f"{Path(source).stem}.o") for source in extension.sources]
        commands = [
            [*compiler, *flags, "-c", str(_SOURCES / source), "-o", target]
            for source, target in zip(extension.sources, objects)
        ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(_run, commands))
        fresh = Path(work) / "library.so"
        libraries = [
            f"-L{root / 'lib'}",
            f"-Wl,-rpath,{root / 'lib'}",
            *(f"-l{n}" for n in extension.torch_libraries),
        ]
        libraries += [str(library), f"-Wl,-rpath,{library.parent}"]
        # Some compilers come with a static C++ runtime only. A second one in this process would crash where the
        # two meet, such as in exceptions.
        libraries += ["-nodefaultlibs", *_loaded_cxx_runtime(), "-lm", "-lgcc_s", "-lc", "-lgcc"]
        _run([*compiler, "-shared", *objects, "-o", str(fresh), *libraries])
        data = fresh.read_bytes()
        with open(fresh, "ab") as file:
            file.write(_MAGIC + hashlib.sha256(data).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, binary)


def _loaded_cxx_runtime() -> list[str]:
    """The libstdc++ that torch has brought into this process; the compiler's if that is not clear."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if "/libstdc++.so" in line}
    return list(paths) if len(paths) == 1 else ["-lstdc++"]


def _remove_leftovers(binary: Path, current: Path) -> None:
    """Removes what killed builds of this binary left. The caller holds the lock."""
    for old in binary.parent.glob(f"{binary.stem}.*.tmp"):
        if old != current:
            shutil.rmtree(old, ignore_errors=True)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"onehop.torch: the compiler ran longer than {_TIMEOUT:.0f} s: {shlex.join(command)}"
        ) from None
    if done.returncode != 0:
        raise RuntimeError(
            f"onehop.torch: compiling for torch {torch.__version__} failed: {shlex.join(command)}\n"
            f"{done.stderr[-4000:]}"
        )
