# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every call that waits, at once: each case is a process that waits in one call and gets a SIGINT."""
from __future__ import annotations

import inspect
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import onehop as oh
import pytest

BOUND_S = 10  # on an idle machine it takes 20 to 100 ms, and each call's own deadline is 60 s
AT_ONCE = 16  # processes that wait at the same time

PRELUDE = """
import array, fcntl, os, signal, sys, threading, time
import onehop as oh

directory = sys.argv[1]
path = os.path.join(directory, "store")


def elsewhere(body):
    '''Runs body(tell) in a process of its own, which then sleeps. Returns what it tells, and its number.'''
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            body(lambda text="": os.write(write, (str(text) + "\\n").encode()))
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    return os.fdopen(read).readline().strip(), pid


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)  # until then it may still answer


kept = []  # what must live while its process sleeps


def holds_the_lock(tell):
    kept.append(open(os.path.join(path, "lock"), "w"))
    fcntl.flock(kept[-1], fcntl.LOCK_EX)
    tell()


def locked():
    '''A file store, of which another process holds the lock.'''
    store = oh.FileStore(path)
    elsewhere(holds_the_lock)
    return store


def serves(tell):
    kept.append(oh.TcpServer())
    tell(kept[-1].port)


def stopped_server():
    '''The port of a TCP server that is stopped.'''
    port, pid = elsewhere(serves)
    stop(pid)
    return int(port)


def stopped_tcp():
    '''A TCP store that is connected to a server, which has been stopped since.'''
    port, pid = elsewhere(serves)
    store = oh.TcpStore("127.0.0.1", int(port))
    stop(pid)
    return store


def threads():
    '''A group of two ranks, of which the other one makes no calls.'''
    store, other = oh.MemoryStore(), []
    thread = threading.Thread(target=lambda: other.append(oh.Group.join(store, 1, 2, timeout=60)), daemon=True)
    thread.start()
    group = oh.Group.join(store, 0, 2, timeout=60)
    thread.join()
    return group, other[0]


def with_stopped_rank():
    '''A group of two processes, of which the other one is stopped.'''
    def joins(tell):
        tell()
        kept.append(oh.Group.join(oh.FileStore(path), 1, 2, timeout=60))
    _, pid = elsewhere(joins)
    group = oh.Group.join(oh.FileStore(path), 0, 2, timeout=60)
    stop(pid)
    return group


def stops_while_joining(point):
    '''Another process joins as rank 1, and is stopped at a point of it.'''
    if os.fork() == 0:
        os.environ["ONEHOP_FAULT"] = f"{point}:1:stop"
        os.execv(sys.executable, [sys.executable, "-c",
                                  f"import onehop as oh; oh.Group.join(oh.FileStore({path!r}), 1, 2, timeout=60)"])


class Mine:
    '''A store for PyStore.'''
    def __init__(self): self.store = oh.MemoryStore()
    def set(self, key, value): self.store.set(key, value)
    def get(self, key): return self.store.get(key)
    def check(self, keys):
        try: self.store.wait(keys, timeout=0); return True
        except oh.Timeout: return False
    def add(self, key, n): return self.store.add(key, n)
    def compare_set(self, key, a, b): return self.store.compare_set(key, a, b)
    def delete_key(self, key): return self.store.delete(key)


x = array.array("f", [1.0] * 1000)
y = array.array("f", [0.0] * 2000)
"""

CALL = """
try:
    print("waits", flush=True)
    call()
    print("returned", flush=True)
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
except BaseException as error:
    print(f"{type(error).__name__}: {error}", flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Case:
    covers: str  # the public name, or Class.method
    call: str
    setup: str = ""
    what: str = ""

    @property
    def name(self) -> str:
        return f"{self.covers} {self.what}".strip()


def _stores() -> list[Case]:
    operations = {"get": "store.get('missing', timeout=60)", "wait": "store.wait(['missing'], timeout=60)",
                  "set": "store.set('k', b'v', timeout=60)", "add": "store.add('k', 1, timeout=60)",
                  "compare_set": "store.compare_set('k', b'', b'v', timeout=60)", "delete": "store.delete('k', timeout=60)"}
    cases = [Case(f"Store.{name}", operation, "store = stopped_tcp()", "of a stopped TCP server")
             for name, operation in operations.items()]
    cases += [Case(f"Store.{name}", operations[name], "store = locked()", "behind another process's lock")
              for name in ("set", "add", "compare_set", "delete")]
    for what, store in {"memory": "oh.MemoryStore()", "file": "oh.FileStore(path)", "Python": "oh.PyStore(Mine())",
                        "TCP": "oh.TcpStore('127.0.0.1', int(elsewhere(serves)[0]))",
                        "prefix": "oh.PrefixStore(oh.FileStore(path), 'a')"}.items():
        for name in ("get", "wait"):
            cases.append(Case(f"Store.{name}", operations[name], f"store = {store}", f"of a {what} store"))
    cases += [
        Case("TcpStore", "oh.TcpStore('127.0.0.1', 1, timeout=60)", what="without a server"),
        Case("TcpStore", "oh.TcpStore('127.0.0.1', port, timeout=60)", "port = stopped_server()", "of a stopped server"),
        Case("store_from_env", "oh.store_from_env(timeout=60)",
             "os.environ.update(ONEHOP_RANK='0', ONEHOP_SIZE='2', ONEHOP_STORE=f'tcp://127.0.0.1:{stopped_server()}')", "of a stopped server"),
    ]
    return cases


def _joining() -> list[Case]:
    join = "oh.Group.join(store, {rank}, 2, timeout=60)"
    cases = [Case("Group.join", join.format(rank=rank), f"store = {store}", f"as rank {rank}, {what}")
             for rank in (0, 1)
             for what, store in {"alone in a file store": "oh.FileStore(path)", "behind another process's lock": "locked()",
                                 "over a stopped TCP server": "stopped_tcp()", "alone in a memory store": "oh.MemoryStore()",
                                 "alone in a Python store": "oh.PyStore(Mine())"}.items()]
    # The other rank is stopped at these points of joining.
    cases += [Case("Group.join", join.format(rank=0), f"stops_while_joining({point!r}); store = oh.FileStore(path)",
                   f"with a rank stopped at {point!r}")
              for point in ("announced", "ack", "connect", "allocate", "map")]
    cases.append(Case("init", "oh.init(timeout=60)",
                      "os.environ.update(ONEHOP_RANK='0', ONEHOP_SIZE='2', ONEHOP_STORE='file:' + path)"))
    return cases


def _groups() -> list[Case]:
    one = "g, other = threads()"
    stopped = "g = with_stopped_rank()"
    cases = [Case(f"Group.{call.partition('(')[0]}", f"g.{call}", one) for call in (
        "all_reduce(x)", "all_gather(x, y)", "reduce_scatter(y, x)", "all_to_all(y, y[:])", "broadcast(x, root=1)", "reduce(x, root=0)",
        "gather(x, y)", "scatter(y, x, root=1)", "recv(x, 1)", "barrier()", "split(0)", "allocate(4096)", "all_gather_object(1)",
        "broadcast_object(root=1)", "all_to_all_v(x, [500, 500], y, [500, 500])")]
    cases += [
        Case("Group.send", "g.send(large, 1)", one + "; large = array.array('f', [0]) * (8 << 20)"),
        Case("Group.barrier", "g.barrier()", stopped, "with a stopped rank"),
        Case("Group.split", "g.split(0)", stopped, "with a stopped rank"),
        Case("Group.all_reduce", "g.all_reduce(x, op='bogus')", one, "that tells the others of a wrong argument"),
        Case("Group.allocate", "g.allocate(0)", one, "that tells the others of a wrong argument"),
    ]
    # The thread's call fails with the group. Its traceback would get between what the process prints.
    behind = one + "; threading.excepthook = lambda _: None; threading.Thread(target=g.barrier, daemon=True).start(); time.sleep(0.1)"
    cases += [Case(f"Group.{call.partition('(')[0]}", f"g.{call}", behind, "behind another thread's call") for call in (
        "all_reduce(x)", "barrier()", "send(x, 1)", "recv(x, 1)", "split(0)", "allocate(4096)", "all_gather_object(1)")]
    buffer = one + """
mate = threading.Thread(target=lambda: theirs.append(other.allocate(4096)))
theirs = []
mate.start()
b = g.allocate(4096)
mate.join()"""
    cases += [Case("SymmetricBuffer.barrier", "b.barrier(timeout=60)", buffer),
              Case("SymmetricBuffer.wait_signal", "b.wait_signal(1, timeout=60)", buffer),
              Case("Pool", "oh.Pool(g, 4096)", one),
              Case("symmetric_empty", "oh.symmetric_empty(g, 10)", one)]
    cases += [Case("Group.shrink", "g.shrink(timeout=60)", one),
              Case("on_every_rank", "oh.on_every_rank([g, other], lambda rank: rank.recv(x, 1 - rank.rank))", one)]
    in_block = """
def receives():
    with oh.group_call():
        g.recv(x, 1)"""
    cases.append(Case("group_call", "receives()", one + in_block))
    return cases


CASES = _stores() + _joining() + _groups()

# What waits for nobody, or cannot be interrupted. The names of results and of exceptions are not calls of the library.
NEVER_WAITS = {
    "FileStore", "MemoryStore", "PrefixStore", "PyStore", "TcpServer", "TcpServer.stop", "job", "usage", "buffer_of",
    "Group.abort", "Group.check", "Group.usage", "Group.watch",
    "Group.leave",  # on a GPU it waits for the device, and must, since other ranks depend on this one's work
    "SymmetricBuffer.device_view", "SymmetricBuffer.peer", "SymmetricBuffer.put_signal",
    "Pool.allocate", "Pool.buffer", "Pool.free", "Pool.offset", "Pool.use",
    "Group.join_local",  # its ranks come at once
    "topology", "Topology.connectivity", "Topology.as_dict", "Topology.to_json", "Topology.to_svg", "Topology.to_text",
}
NEEDS_MORE = {
    "Group.from_torch": "needs torch; it is Group.join",
    "Group.synchronize": "waits on a GPU only (CApiGroup tests)",
    "Group.register": "waits on a GPU only",
    "doctor": "runs the command", "p2p_check": "in the driver", "peers_verified": "in the driver",
}


def public_callables() -> set[str]:
    """The functions of the package, its classes that are made by a call, and their methods."""
    names = set()
    for name in oh.__all__:
        each = getattr(oh, name)
        if not callable(each):
            continue
        if not inspect.isclass(each):
            names.add(name)
            continue
        if issubclass(each, Exception) or hasattr(each, "__dataclass_fields__"):
            continue
        methods = {method for base in each.__mro__ if base.__module__.startswith("onehop") for method, value in vars(base).items()
                   if not method.startswith("_") and (callable(value) or isinstance(value, (classmethod, staticmethod)))}
        names |= {f"{name}.{method}" for method in methods}
        if name in ("Pool", "TcpServer"):
            names.add(name)  # the others come from functions and methods
    return names


def test_every_public_call_has_a_case():
    listed = {case.covers for case in CASES} | NEVER_WAITS | set(NEEDS_MORE)
    assert public_callables() == listed


@dataclass
class Ended:
    text: str
    took: float | None = None


def _interrupt(batch: list[Case], directory: Path) -> dict[str, Ended]:
    """Runs the cases at the same time. None of them starts while another one is measured."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEHOP_")}
    processes = []
    for number, case in enumerate(batch):
        own = directory / str(number)
        own.mkdir(parents=True)
        program = PRELUDE + case.setup + f"\ndef call(): return {case.call}\n" + CALL
        # The session includes the case's own children, which are ended with it.
        processes.append(subprocess.Popen([sys.executable, "-c", program, str(own)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          bufsize=0, env=environment, start_new_session=True))
    try:
        ended: dict[str, Ended] = {}
        for case, process in zip(batch, processes):
            line = process.stdout.readline().decode()
            if line != "waits\n":
                ended[case.name] = Ended(line)
        time.sleep(0.3)  # they are about to wait; a signal that comes too early would end them as well
        for case, process in zip(batch, processes):
            if case.name in ended:
                continue
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            heard = select.select([process.stdout], [], [], 3 * BOUND_S)[0]
            line = process.stdout.readline().decode().strip() if heard else "still waits"
            try:
                ended[case.name] = Ended("interrupted", float(line) - begin)
            except ValueError:
                ended[case.name] = Ended(line)
        return ended
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    directory = tmp_path_factory.mktemp("interrupts")
    ended: dict[str, Ended] = {}
    for begin in range(0, len(CASES), AT_ONCE):
        ended |= _interrupt(CASES[begin:begin + AT_ONCE], directory / str(begin))
    print()
    for name, each in ended.items():
        print(f"{name:70} " + (f"{each.took * 1000:6.1f} ms" if each.took is not None else each.text))
    return ended


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ctrl_c_ends(case, outcomes):
    outcome = outcomes[case.name]
    assert outcome.text == "interrupted"
    assert outcome.took < BOUND_S
