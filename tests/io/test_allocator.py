"""With the allocator set, large tensors that come and go fault once, not each time."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from lib.io.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    for _ in range(10):
        tensors = [torch.zeros(10_000_000) for _ in range(2)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print(faults() - first)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_is_used_again_without_faults():
    found = {
        how: int(subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "leave")
    }
    assert found["keep"] < 1000
    assert found["leave"] > 10 * max(found["keep"], 100), "or this setting is no longer needed"
