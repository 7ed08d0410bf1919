# SPDX-License-Identifier: Apache-2.0
"""Errors: the documented class, the rank that is to blame, and never a hang or a crash."""
import atexit
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import onehop as oh
import pytest
from conftest import meet


def work_until_a_rank_dies(rank, size, directory, victim):
    group = oh.Group.join(oh.FileStore(directory), rank, size)
    x = np.ones(1000, np.float32)
    for _ in range(10):
        group.all_reduce(x, op="max")
    meet(directory, size)
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    died = time.monotonic()
    with pytest.raises(oh.PeerLost, match=f"rank {victim}") as info:
        while True:
            group.all_reduce(x, op="max")
    assert info.value.rank == victim and info.value.code == "peer_lost"
    with pytest.raises(oh.PeerLost):
        group.check()
    return time.monotonic() - died


def test_survivors_of_a_killed_rank_learn_its_number(ranks):
    outcomes = ranks(3, work_until_a_rank_dies, 1, may_fail=True, join=False)
    assert outcomes[1].exit_code == -signal.SIGKILL
    for survivor in (outcomes[0], outcomes[2]):
        assert survivor.error is None and survivor.exit_code == 0, survivor.error
        assert survivor.value < 10  # seconds; the group's timeout is 30


def shrinks(rank, size, directory):
    group = oh.Group.join(oh.FileStore(directory), rank, size)
    assert group.parent_ranks == ()
    meet(directory, size)
    if rank in (0, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(oh.PeerLost):
        while True:
            group.barrier()
    survivors = group.shrink()
    assert type(survivors) is type(group) and survivors.parent_ranks == (1, 3)
    assert survivors.size == 2 and survivors.parent_ranks[survivors.rank] == rank
    assert survivors.all_gather_object(rank) == [1, 3]
    with pytest.raises(oh.InvalidArgument, match="shrink that one"):
        group.shrink()
    with pytest.raises(oh.InvalidArgument, match="timeout is -1"):
        survivors.shrink(timeout=-1)
    survivors.barrier()


def test_the_ranks_that_are_left_form_a_group(ranks):
    outcomes = ranks(4, shrinks, may_fail=True, join=False)
    for survivor in (outcomes[1], outcomes[3]):
        assert survivor.error is None and survivor.exit_code == 0, survivor.error


def test_a_rank_that_exits_without_leaving_says_goodbye(tmp_path):
    program = textwrap.dedent("""
        import sys, onehop as oh
        store = oh.FileStore(sys.argv[1])
        g = oh.Group.join(store, int(sys.argv[2]), 2)
        b = g.allocate(4096)
        g.barrier()
        if g.rank == 1:
            store.get("begun")
        else:
            store.set("begun", b"")
            try:
                g.barrier()
            except oh.PeerLost as error:
                print(error.rank, error)
    """)
    processes = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "store"), str(rank)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for rank in range(2)]
    results = [process.communicate(timeout=30) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert results[0][0].startswith("1 rank 1 has left the group"), results
    assert results[1][1] == "", results


def await_sleep(pid):
    """Until a process waits in the kernel: one that is starved is ready to run all the time."""
    seen, deadline = 0, time.monotonic() + 30
    while seen < 5:
        assert time.monotonic() < deadline, f"process {pid} does not sleep"
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        seen = seen + 1 if state == "S" else 0
        time.sleep(0.02)


def interrupt(tmp_path, body, size=2):
    """Sends SIGINT to rank 0 while it waits in `body`; returns what the ranks printed, and how long rank 0 took to end."""
    program = textwrap.dedent("""
        import sys, signal, time, onehop as oh
        rank, size = int(sys.argv[2]), int(sys.argv[3])
        store = oh.FileStore(sys.argv[1])
    """) + textwrap.dedent(body)
    processes = [subprocess.Popen([sys.executable, "-u", "-c", program, str(tmp_path / "store"), str(rank), "2"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(size)]
    assert processes[0].stdout.readline() == "waits\n"
    time.sleep(0.5)  # it is about to wait; a signal that comes too early would end it as well
    await_sleep(processes[0].pid)
    begin = time.monotonic()
    processes[0].send_signal(signal.SIGINT)
    output = processes[0].communicate(timeout=30)[0]
    took = time.monotonic() - begin
    return output, took, [process.communicate(timeout=30)[0] for process in processes[1:]]


def test_ctrl_c_ends_a_collective_and_fails_the_group(tmp_path):
    output, took, others = interrupt(tmp_path, """
        g = oh.Group.join(store, rank, size, timeout=60)
        if rank == 0:
            store.get("joined")
            try:
                print("waits")
                g.barrier()
            except KeyboardInterrupt:
                print("interrupted")
            try:
                g.check()
            except oh.Aborted as error:
                print(error.rank)
        else:
            store.set("joined", b"")
            while True:
                try:
                    g.check()
                    time.sleep(0.01)
                except oh.Aborted as error:
                    print(error.rank)
                    break
    """)
    assert output == "interrupted\n0\n"
    assert others == ["0\n"]
    assert took < 5


def test_ctrl_c_ends_joining_and_waiting_for_a_key(tmp_path):
    for call in ("oh.Group.join(store, rank, size, timeout=60)", "store.get('nothing', timeout=60)",
                 "oh.Group.join(oh.PyStore(Mine()), rank, size, timeout=60)"):
        output, took, _ = interrupt(tmp_path, f"""
            class Mine:
                def set(self, key, value): store.set(key, value)
                def get(self, key): return store.get(key)
                def check(self, keys):
                    try: store.wait(keys, timeout=0); return True
                    except oh.Timeout: return False
                def add(self, key, n): return store.add(key, n)
                def compare_set(self, key, a, b): return store.compare_set(key, a, b)
                def delete_key(self, key): return store.delete(key)
            try:
                print("waits")
                {call}
            except KeyboardInterrupt:
                print("interrupted")
        """, size=1)
        assert output == "interrupted\n", f"{call}: {output}"
        assert took < 5


def test_signal_handlers_run_while_a_call_waits_and_it_goes_on(tmp_path):
    output, _, _ = interrupt(tmp_path, """
        g = oh.Group.join(store, rank, size, timeout=60)
        handled = []
        signal.signal(signal.SIGINT, lambda *_: (handled.append(1), store.set("handled", b"")))
        if rank == 0:
            print("waits")
        else:
            store.get("handled")
        g.barrier()
        print(len(handled))
    """)
    assert output == "1\n"


def misuse_after_fork(group):
    """In the child of a fork, calls raise; the parent's group works on."""
    x = np.ones(10)
    group.all_reduce(x)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            group.all_reduce(x)
        except oh.InvalidArgument as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            group.leave()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    group.all_reduce(x)
    assert (x == 4).all()


def test_fork(ranks):
    ranks(2, misuse_after_fork)


def exits_after_fork(group):
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # leaves nothing that is the parent's
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    group.barrier()


def test_exit_of_a_forked_child(ranks):
    ranks(2, exits_after_fork)


def one_rank_rejects(group):
    x = np.ones(100, np.float32)
    wrong = {0: dict(op="bogus"), 1: {}}[group.rank]
    for call in (lambda **o: group.all_reduce(x, **o), lambda **o: group.reduce_scatter(x, **o)):
        with pytest.raises(oh.InvalidArgument) as info:
            call(**wrong)
        assert group.rank == 0 or info.value.rank == 0
    with pytest.raises(oh.InvalidArgument):
        group.all_gather(x[::2] if group.rank == 0 else x[:50])
    with pytest.raises(oh.InvalidArgument):
        group.broadcast("not an array" if group.rank == 0 else x)
    group.all_reduce(x)  # the group is usable
    assert (x == 2).all()
    with pytest.raises(oh.Mismatch, match="100.*50|50.*100"):
        group.all_reduce(x[:100 if group.rank == 0 else 50])
    group.barrier()


def test_what_one_rank_rejects_fails_on_all_ranks_at_once(ranks):
    ranks(2, one_rank_rejects, timeout=20)


def times_out(rank, size, directory):
    group = oh.Group.join(oh.FileStore(directory), rank, size)
    meet(directory, size)
    if rank == 0:
        with pytest.raises(oh.Timeout) as info:
            group.barrier(timeout=0.2)
        assert info.value.rank == 1 and isinstance(info.value, TimeoutError)
        assert "barrier" in str(info.value) and "200 ms" in str(info.value)
    else:
        with pytest.raises(oh.Timeout):
            while True:
                group.check()
                time.sleep(0.01)


def test_a_deadline_names_the_rank(ranks):
    ranks(2, times_out, join=False)


def aborts(rank, size, directory):
    group = oh.Group.join(oh.FileStore(directory), rank, size)
    meet(directory, size)
    if rank == 1:
        group.abort("enough")
    with pytest.raises(oh.Aborted, match="enough") as info:
        group.barrier()
    assert info.value.rank == 1
    group.leave()
    with pytest.raises(oh.InvalidArgument, match="left"):
        group.barrier()
    with pytest.raises(oh.InvalidArgument, match="left"):
        group.all_reduce(np.ones(3))


def test_abort_and_leave(ranks):
    ranks(2, aborts, join=False)


def test_abort_from_another_thread_ends_a_wait(tmp_path):
    store = oh.MemoryStore()
    groups, errors = [None, None], []

    def rank(r):
        groups[r] = oh.Group.join(store, r, 2)
        if r == 0:
            try:
                groups[0].barrier()
            except oh.Aborted as error:
                errors.append(str(error))

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
    for thread in threads:
        thread.start()
    threads[1].join()
    while groups[0] is None:
        time.sleep(0.01)
    groups[0].abort("from the main thread")
    threads[0].join()
    assert len(errors) == 1 and "from the main thread" in errors[0]


def test_joining_names_the_missing_rank(tmp_path):
    with pytest.raises(oh.Timeout, match="rank 1 did not come") as info:
        oh.Group.join(oh.FileStore(tmp_path / "store"), 0, 2, timeout=0.3)
    assert info.value.rank == 1
    with pytest.raises(oh.InvalidArgument, match="-1"):
        oh.Group.join(oh.MemoryStore(), -1, 2, timeout=1)
    with pytest.raises(oh.NotFound, match="launcher|torchrun"):
        oh.init()


def test_errors_have_the_documented_classes():
    for each in (oh.Timeout, oh.PeerLost, oh.Aborted, oh.Mismatch, oh.Refused, oh.Unsupported, oh.OutOfResources,
                 oh.InvalidArgument, oh.NotFound):
        assert issubclass(each, oh.Error) and issubclass(each, RuntimeError)
        copy = pickle.loads(pickle.dumps(each("message", 3)))
        assert (type(copy), str(copy), copy.rank, copy.code) == (each, "message", 3, each.code)
    assert issubclass(oh.Timeout, TimeoutError) and issubclass(oh.OutOfResources, MemoryError)
    assert issubclass(oh.InvalidArgument, ValueError) and issubclass(oh.NotFound, LookupError)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:", -2, True, 1.5])
def test_unknown_devices_are_named(device):
    with pytest.raises(oh.InvalidArgument, match="device is"):
        oh.Group.join(oh.MemoryStore(), 0, 1, device=device)
