# SPDX-License-Identifier: Apache-2.0
"""Stores, among them one that is a Python object, and joining through each."""
import threading
import time
from datetime import timedelta

import numpy as np
import onehop as oh
import pytest


class Table:
    """A store in memory with the methods of torch.distributed's."""

    def __init__(self):
        self.values, self.lock = {}, threading.Lock()

    def set(self, key, value):
        with self.lock:
            self.values[key] = value

    def get(self, key):
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)

    def add(self, key, amount):
        with self.lock:
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            return total

    def compare_set(self, key, expected, desired):
        with self.lock:
            current = self.values.get(key)
            if current == expected or current is None and expected == b"":
                self.values[key] = current = desired
            return expected if current is None else current

    def delete_key(self, key):
        with self.lock:
            return self.values.pop(key, None) is not None


@pytest.fixture(params=["file", "memory", "tcp", "prefix", "python"])
def store(request, tmp_path):
    if request.param == "tcp":
        server = oh.TcpServer()
        request.addfinalizer(server.stop)
        return oh.TcpStore("127.0.0.1", server.port)
    return {"file": lambda: oh.FileStore(tmp_path / "keys"), "memory": oh.MemoryStore, "python": lambda: oh.PyStore(Table()),
            "prefix": lambda: oh.PrefixStore(oh.MemoryStore(), "p")}[request.param]()


def test_operations(store):
    store.set("key", b"\0value")
    assert store.get("key") == b"\0value"
    assert [store.add("count", 5), store.add("count", -7)] == [5, -2]
    assert store.compare_set("new", b"", b"1") == b"1"
    assert store.compare_set("new", b"0", b"2") == b"1"
    assert store.compare_set("new", b"1", b"2") == b"2"
    assert store.delete("new") is True and store.delete("new") is False
    store.wait(["key", "count"], timeout=timedelta(seconds=1))
    begin = time.monotonic()
    with pytest.raises(oh.Timeout, match="'missing'.*250 ms"):
        store.get("missing", timeout=0.25)
    assert 0.2 < time.monotonic() - begin < 5
    with pytest.raises(oh.Timeout, match="missing"):
        store.wait(["key", "missing"], timeout=0)
    assert repr(store).startswith("<onehop ")


def test_wrong_arguments(store):
    with pytest.raises(TypeError):
        store.set("key", "text")
    with pytest.raises(TypeError):
        store.set(3, b"")
    with pytest.raises(oh.InvalidArgument, match="timeout is 'soon'"):
        store.get("key", timeout="soon")
    for timeout in (-1, float("nan"), float("inf"), 10**30):
        with pytest.raises(oh.InvalidArgument, match="timeout is"):
            store.get("key", timeout=timeout)
    with pytest.raises(oh.Error):
        store.set("k" * 100_000, b"")


def test_ranks_join_through_it(store):
    sums = [None, None]

    def rank(r):
        with oh.Group.join(store, r, 2, name="threads") as group:
            sums[r] = group.all_reduce(np.array([r + 1.5])).tolist()

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [[4.0], [4.0]]


def test_what_a_python_store_raises_is_the_cause():
    class Broken(Table):
        def set(self, key, value):
            raise ConnectionResetError("the server is gone")

    with pytest.raises(oh.Error, match="Python store .*Broken: set") as info:
        oh.Group.join(oh.PyStore(Broken()), 0, 2, timeout=1)
    assert isinstance(info.value.__cause__, ConnectionResetError)

    class Silly(Table):
        def compare_set(self, key, expected, desired):
            return 5

        def add(self, key, amount):
            return "many"

    with pytest.raises(oh.Error):
        oh.PyStore(Silly()).add("key", 1)
    with pytest.raises(TypeError, match="int lacks set, get"):
        oh.PyStore(3)


def test_a_python_store_that_ignores_its_timeouts_is_named():
    class Slow(Table):
        def check(self, keys):
            time.sleep(0.8)
            return super().check(keys)

    with pytest.raises(oh.Timeout, match="through Python store .*Slow.*operations of the store did not end by their timeouts"):
        oh.Group.join(oh.PyStore(Slow()), 0, 2, timeout=0.2)


def test_tcp_refuses_what_cannot_work():
    with pytest.raises(oh.InvalidArgument, match="port is 70000"):
        oh.TcpStore("127.0.0.1", 70000)
    with pytest.raises(oh.Error, match="secret"):
        oh.TcpServer(host="0.0.0.0")
    with oh_server("s3cret") as server:
        with pytest.raises(oh.Error):
            oh.TcpStore("127.0.0.1", server.port, secret="wrong", timeout=2).get("key", timeout=1)
        oh.TcpStore("127.0.0.1", server.port, secret="s3cret").set("key", b"1")


class oh_server:
    def __init__(self, secret):
        self.server = oh.TcpServer(secret=secret)

    def __enter__(self):
        return self.server

    def __exit__(self, *_):
        self.server.stop()
        assert self.server.port == 0


def test_join_needs_a_store(tmp_path):
    with pytest.raises(oh.InvalidArgument, match="store is None"):
        oh.Group.join(None, 0, 1)
    with pytest.raises(oh.InvalidArgument, match="PyStore"):
        oh.Group.join(Table(), 0, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(oh.Error):
        oh.FileStore(tmp_path / "file")
