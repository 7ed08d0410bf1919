# SPDX-License-Identifier: Apache-2.0
"""Programs that end while their threads are inside calls of onehop."""
import subprocess
import sys

import pytest

PROLOGUE = """
import threading, time
import numpy as np
import onehop as oh

class Table:
    def __init__(self):
        self.values, self.lock = {}, threading.Lock()
    def set(self, key, value):
        self.values[key] = value
    def get(self, key):
        return self.values[key]
    def check(self, keys):
        return all(key in self.values for key in keys)
    def add(self, key, amount):
        with self.lock:
            self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
            return int(self.values[key])
    def compare_set(self, key, expected, desired):
        with self.lock:
            current = self.values.get(key, b"")
            if current == expected:
                self.values[key] = current = desired
            return current
    def delete_key(self, key):
        return self.values.pop(key, None) is not None

def sleep():
    for _ in range(60000):
        time.sleep(0.001)  # takes the GIL each time

class Slow(Table):
    def check(self, keys):
        sleep()
    def set(self, key, value):
        sleep()

class Array:
    def __getattr__(self, name):
        if name == "__cuda_array_interface__":
            sleep()
        raise AttributeError(name)

def two_ranks():
    store, groups = oh.MemoryStore(), [None, None]
    def join(r):
        groups[r] = oh.Group.join(store, r, 2, timeout=60)
    threads = [threading.Thread(target=join, args=(r,)) for r in range(2)]
    for each in threads: each.start()
    for each in threads: each.join()
    return groups

"""

# Calls that another thread waits in. Two ranks are made for those that use `g`, rank 0 of them.
WAITING = {
    "get": "oh.MemoryStore().get('key', timeout=60)",
    "wait": "oh.MemoryStore().wait(['key'], timeout=60)",
    "get of a prefix": "oh.PrefixStore(oh.MemoryStore(), 'p').get('key', timeout=60)",
    "get of a Python store": "oh.PyStore(Table()).get('key', timeout=60)",
    "get of a Python store that sleeps": "oh.PyStore(Slow()).get('key', timeout=60)",
    "set of a Python store that sleeps": "oh.PyStore(Slow()).set('key', b'')",
    "joining": "oh.Group.join(oh.MemoryStore(), 0, 2, timeout=60)",
    "joining over a Python store": "oh.Group.join(oh.PyStore(Table()), 0, 2, timeout=60)",
    "joining over a Python store that sleeps": "oh.Group.join(oh.PyStore(Slow()), 0, 2, timeout=60)",
    "barrier": "g.barrier()",
    "all_reduce": "g.all_reduce(np.ones(1000))",
    "all_gather_object": "g.all_gather_object('x')",
    "recv": "g.recv(np.ones(1000), 1)",
    "allocate": "g.allocate(4096)",
    "split": "g.split(0)",
    "reading an array that sleeps": "g.all_reduce(Array())",
    "barrier of a buffer": "b.barrier()",
    "wait_signal": "b.wait_signal(1)",
}
BUFFERS = """
groups = two_ranks()
buffers = [None, None]
def allocate(r):
    buffers[r] = groups[r].allocate(4096)
threads = [threading.Thread(target=allocate, args=(r,)) for r in range(2)]
for each in threads: each.start()
for each in threads: each.join()
g, b = groups[0], buffers[0]
"""
ENDING = """
def call():
    {call}
def waits():
    try:
        call()
    except oh.Error:
        pass  # the group has been left
for _ in range(3 if {many} else 1):
    threading.Thread(target=waits, daemon=True).start()
time.sleep(0.2)  # the threads are about to wait; one that comes too late ends as well
"""
WITHOUT_LEAVING = """
import atexit
from onehop import _group
atexit.unregister(_group._leave_all)
"""


def ends(program):
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("leaving", [True, False], ids=["left", "not left"])
@pytest.mark.parametrize("name", WAITING)
def test_a_program_ends_while_a_daemon_thread_waits(name, leaving):
    call = WAITING[name]
    needs_group = call.startswith(("g.", "b."))
    ends(PROLOGUE + ("" if leaving else WITHOUT_LEAVING) + (BUFFERS if needs_group else "") +
         ENDING.format(call=call, many=not needs_group))


# The deleter of DLPack tensors, which other threads may call at any time.
DELETERS = """
import ctypes, gc, sys
group = oh.Group.join(oh.MemoryStore(), 0, 1)
memory = group.allocate(64).local
python = ctypes.PyDLL(None)  # keeps the GIL
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
kept = []
def tensor():
    capsule = memory.__dlpack__()
    address = python.PyCapsule_GetPointer(capsule, b"dltensor")
    name = b"used_dltensor"
    kept.append((capsule, name))
    python.PyCapsule_SetName(capsule, name)
    return ctypes.c_void_p(ctypes.c_void_p.from_address(address + 56).value), ctypes.c_void_p(address)
"""


def test_a_tensor_may_be_deleted_after_the_interpreter_has_ended():
    ends(PROLOGUE + DELETERS + """
for _ in range(10):
    deleter, address = tensor()
    assert python.__cxa_atexit(deleter, address, None) == 0
""")


def test_threads_of_no_interpreter_may_take_the_gil_as_it_ends():
    ends(PROLOGUE + DELETERS + """
sys.setswitchinterval(1000)
thread = ctypes.c_ulong()
for _ in range(30):
    deleter, address = tensor()
    assert python.pthread_create(ctypes.byref(thread), None, deleter, address) == 0
""")
