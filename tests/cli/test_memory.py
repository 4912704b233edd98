"""Freed memory is used again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from abaca.cli.memory import keep_memory

assert not int(sys.argv[1]) or keep_memory()

def work():
    held = [torch.ones(1 << 18) for _ in range(200)]  # a megabyte each

work(), work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work(), work(), work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_a_batch_uses_the_memory_of_the_one_before() -> None:
    def faults(keep: int) -> int:
        words = [sys.executable, "-c", PROGRAM, str(keep)]
        return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    assert faults(1) * 20 < faults(0)
