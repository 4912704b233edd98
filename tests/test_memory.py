"""Freed memory is kept for the next batch, and given back when asked to."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

PROGRAM = """
import resource, sys
import torch
from abaca.memory import give_back, keep_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

assert not int(sys.argv[1]) or keep_memory()
before = resident()
held = [torch.ones(1 << 18) for _ in range(200)]  # a megabyte each
del held
freed = resident() - before
give_back()
print(freed, resident() - before)
"""

PLACES = """
import ctypes, sys, threading
from abaca.memory import share_memory

assert not int(sys.argv[1]) or share_memory()
gate = threading.Barrier(4)

def allocate():
    gate.wait()
    kept.append(ctypes.create_string_buffer(100_000))
    gate.wait()

kept = []
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def left(keep: int) -> list[int]:
    """Mebibytes that are still there after 200 were freed, and after they were given back."""
    words = [sys.executable, "-c", PROGRAM, str(keep)]
    return [int(word) for word in subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()]


def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    kept, given_back = left(1)
    assert kept > 150
    assert given_back < 50


def test_without_being_told_it_goes_at_once() -> None:
    assert left(0)[0] < 50


def test_threads_share_one_place_where_they_are_told_to() -> None:
    def places(share: int) -> int:
        words = [sys.executable, "-c", PLACES, str(share)]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.count("<heap nr=")

    assert places(1) == 1
    assert places(0) > 1
