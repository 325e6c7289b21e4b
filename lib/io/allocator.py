"""Memory that a process frees stays with it: else glibc gives large blocks back, and every use of a new one faults.

A training whose temporary tensors have megabytes would spend a quarter of its time on page faults.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h


def keep_freed_memory(n_bytes: int = 1 << 30) -> bool:
    """Keep up to `n_bytes` of freed memory for later use; False, and nothing done, where the C library is not glibc."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = {M_MMAP_THRESHOLD: n_bytes, M_TRIM_THRESHOLD: n_bytes, M_TOP_PAD: n_bytes >> 4}
    return all(mallopt(option, value) == 1 for option, value in options.items())
