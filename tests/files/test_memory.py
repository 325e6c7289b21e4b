"""What is free is the least of what the machine, a limit, a container and MAX_MEMORY leave; more is
refused.
"""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lib.files import memory
from lib.files.files import InputError
from lib.files.memory import available_memory, check_disk, check_memory

ROOT = Path(__file__).parents[2]


def test_max_memory_bounds_what_is_free(monkeypatch):
    monkeypatch.delenv("MAX_MEMORY", raising=False)
    whole = available_memory()
    monkeypatch.setenv("MAX_MEMORY", "0.25")
    assert available_memory() == 250_000_000 < whole
    monkeypatch.setenv("MAX_MEMORY", "1e9")
    assert available_memory() > 250_000_000


@pytest.mark.parametrize("text", ["much", "4 GB", "inf", "nan"])
def test_max_memory_is_a_number(text, monkeypatch):
    monkeypatch.setenv("MAX_MEMORY", text)
    with pytest.raises(InputError, match=f"MAX_MEMORY: wanted a number of gigabytes, got '{text}'"):
        available_memory()


@pytest.mark.skipif(
    sys.platform != "linux", reason="the size of the address space is read from /proc"
)
def test_a_limit_of_the_address_space_bounds_what_is_free():
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from lib.files.memory import available_memory; print(available_memory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert 0.8 * 2**30 < int(done.stdout) < 2**30
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 1 << 30


def test_a_container_s_limit_bounds_what_is_free(monkeypatch):
    monkeypatch.setattr(memory, "_limits", lambda: [12345])
    assert available_memory() == 12345


def test_what_does_not_fit_is_refused_and_what_is_much_is_said(monkeypatch, capsys):
    monkeypatch.setattr(memory, "available_memory", lambda: 3 * 10**9)
    check_memory("samples", 5e8)
    assert capsys.readouterr().err == ""
    check_memory("samples", 2e9)
    assert capsys.readouterr().err == "samples: about 2 GB of memory\n"
    with pytest.raises(
        InputError, match=r"^samples: wanted about 4e\+12 GB of memory, got 3 GB free$"
    ):
        check_memory("samples", 4e21)


def test_a_disk_is_that_of_the_folder_that_is_there(tmp_path):
    check_disk(tmp_path / "new" / "folder", 1, "OUT")
    with pytest.raises(
        InputError, match=f"OUT: wanted 1e\\+09 GB of disk, got .* GB that are free in {tmp_path}"
    ):
        check_disk(tmp_path / "new" / "folder", 1e18, "OUT")
