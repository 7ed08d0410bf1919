# SPDX-License-Identifier: Apache-2.0
"""Arguments that are text or paths: what the C API could not take is refused, and what it can take arrives whole."""
import os
from pathlib import Path

import numpy as np
import onehop as oh
import pytest

# Every such argument: its name in messages, and a call that passes it. `g` is a group of one rank, `s` a store, `x` an array.
TEXTS = {
    "set": ("key", lambda t, g, s, x: s.set(t, b"v")),
    "get": ("key", lambda t, g, s, x: s.get(t, timeout=0)),
    "wait": ("keys", lambda t, g, s, x: s.wait(["a", t], timeout=0)),
    "add": ("key", lambda t, g, s, x: s.add(t, 1)),
    "compare_set": ("key", lambda t, g, s, x: s.compare_set(t, b"", b"1")),
    "delete": ("key", lambda t, g, s, x: s.delete(t)),
    "PrefixStore": ("prefix", lambda t, g, s, x: oh.PrefixStore(s, t)),
    "TcpServer host": ("host", lambda t, g, s, x: oh.TcpServer(host=t)),
    "TcpServer secret": ("secret", lambda t, g, s, x: oh.TcpServer(secret=t)),
    "TcpStore host": ("host", lambda t, g, s, x: oh.TcpStore(t, 1, timeout=0)),
    "TcpStore secret": ("secret", lambda t, g, s, x: oh.TcpStore("127.0.0.1", 1, secret=t, timeout=0)),
    "join name": ("name", lambda t, g, s, x: oh.Group.join(s, 0, 1, name=t)),
    "join share_by": ("share_by", lambda t, g, s, x: oh.Group.join(s, 0, 1, share_by=t)),
    "join device": ("device", lambda t, g, s, x: oh.Group.join(s, 0, 1, device=t)),
    "abort": ("reason", lambda t, g, s, x: g.abort(t)),
    "all_reduce op": ("op", lambda t, g, s, x: g.all_reduce(x, op=t)),
    "reduce_scatter op": ("op", lambda t, g, s, x: g.reduce_scatter(x, op=t)),
    "reduce op": ("op", lambda t, g, s, x: g.reduce(x, op=t)),
    "all_reduce algorithm": ("algorithm", lambda t, g, s, x: g.all_reduce(x, algorithm=t)),
    "all_gather algorithm": ("algorithm", lambda t, g, s, x: g.all_gather(x, algorithm=t)),
    "reduce_scatter algorithm": ("algorithm", lambda t, g, s, x: g.reduce_scatter(x, algorithm=t)),
    "all_to_all algorithm": ("algorithm", lambda t, g, s, x: g.all_to_all(x, algorithm=t)),
    **{f"{name} dtype": ("dtype", lambda t, g, s, x, name=name: getattr(g, name)(x, dtype=t))
       for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")},
    "send dtype": ("dtype", lambda t, g, s, x: g.send(x, 0, dtype=t)),
    "recv dtype": ("dtype", lambda t, g, s, x: g.recv(x, 0, dtype=t)),
    "all_to_all_v dtype": ("dtype", lambda t, g, s, x: g.all_to_all_v(x, [8], x.copy(), [8], dtype=t)),
    "symmetric_empty dtype": ("dtype", lambda t, g, s, x: oh.symmetric_empty(g, 3, t)),
    "symmetric_empty like": ("like", lambda t, g, s, x: oh.symmetric_empty(g, 3, like=t)),
    "topology json": ("json", lambda t, g, s, x: oh.topology(t)),
}
PATHS = {
    "FileStore": ("directory", lambda t, g, s, x: oh.FileStore(t)),
    "join tuning": ("tuning", lambda t, g, s, x: oh.Group.join(s, 0, 1, tuning=t)),
}
# Two lone surrogates: the second stands for no byte of a path.
WRONG = {"NUL": "a\0b", "NUL at the end": "a\0", "low surrogate": "a\udc80b", "high surrogate": "a\ud800b"}


def refuses(argument, text, group):
    name, call = {**TEXTS, **PATHS}[argument]
    x = np.ones(8, np.float32)
    store = oh.MemoryStore()
    store.set("a", b"old")
    with pytest.raises(ValueError) as info:
        call(text, group, store, x)
    assert type(info.value) is oh.InvalidArgument, info.value
    message = str(info.value)
    assert name in message and "\0" not in message
    assert (repr(text) in message) == (name != "secret"), message
    assert store.get("a", timeout=0) == b"old"
    if argument not in ("send dtype", "recv dtype"):  # which fail the group
        group.all_reduce(x)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("argument", TEXTS)
def test_text_that_the_c_api_cannot_take_is_refused(argument, wrong, alone):
    refuses(argument, WRONG[wrong], alone)


@pytest.mark.parametrize("argument", PATHS)
def test_paths_that_cannot_be_are_refused(argument, alone, tmp_path):
    for wrong in ("a\0b", "a\ud800b", b"a\0b", Path("a\0b")):
        refuses(argument, wrong, alone)
    with pytest.raises(TypeError):
        PATHS[argument][1](3, alone, oh.MemoryStore(), None)


def test_every_argument_that_is_text_is_in_the_tables():
    """By the signatures of the stub."""
    import ast

    tree = ast.parse((Path(oh.__file__).parent / "_core.pyi").read_text())
    found = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef):
            arguments = each.args.posonlyargs + each.args.args + each.args.kwonlyargs
            found |= {a.arg for a in arguments if a.annotation and {"str", "Path", "DType"} & {
                n.id for n in ast.walk(a.annotation) if isinstance(n, ast.Name)}}
    # Of functions of which the package passes the arguments on.
    found -= {"arg", "description"}
    assert found <= {name for name, _ in (*TEXTS.values(), *PATHS.values())}, found


NAMES = ["plain", "with space", "ü", "日本語", "\U0001f600", "line\nbreak", "'quotes\""]


@pytest.mark.parametrize("name", NAMES)
def test_other_text_arrives_whole(name):
    store = oh.MemoryStore()
    store.set(name, b"1")
    store.set(name + "2", b"2")
    assert store.get(name) == b"1" and oh.PrefixStore(store, name) is not None
    with oh.Group.join(store, 0, 1, name=name) as group:
        assert group.name == name
        group.abort(name)
        with pytest.raises(oh.Aborted) as info:
            group.barrier()
        assert name.splitlines()[0] in str(info.value)


def test_paths_may_be_any_bytes(tmp_path):
    directory = os.fsencode(tmp_path) + b"/\xff-\xc3\xbc"
    for path in (directory, os.fsdecode(directory), Path(os.fsdecode(directory))):
        oh.FileStore(path).set("key", b"value")
        assert os.path.isdir(directory)
        assert repr(oh.FileStore(path)).startswith("<onehop ")
    table = directory + b"/tuning.json"
    with pytest.raises(oh.Error) as info:  # there is none
        oh.Group.join(oh.MemoryStore(), 0, 1, tuning=table)
    assert "tuning.json" in str(info.value)
