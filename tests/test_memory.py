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
