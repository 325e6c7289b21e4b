"""How a program for people ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGUN = """
import os
import sys

sys.argv[0] = "-m"
import tools
import atexit


class Held:
    def __del__(self, write=os.write):
        write(1, b"taken apart\\n")


sys.held = Held()
atexit.register(print, "exits")
print("said")
"""


def ended(code, **options):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env["PYTHONPATH"] = str(ROOT)
    given = [sys.executable, "-c", BEGUN + code]
    return subprocess.run(given, env=env, text=True, check=False, timeout=60, **options)


@pytest.mark.parametrize(
    ("code", "said"),
    [("tools.done()", "said\nexits\n"), ("", "said\nexits\ntaken apart\n")],
)
def test_a_program_that_is_done_says_all_and_takes_nothing_apart(code, said):
    found = ended(code, stdout=subprocess.PIPE)
    assert found.returncode == 0
    assert found.stdout == said


@pytest.mark.parametrize("code", ["tools.done()", ""])
def test_what_nobody_reads_fails_as_ever(code):
    unread, written = os.pipe()
    os.close(unread)
    try:
        found = ended(code, stdout=written, stderr=subprocess.PIPE)
    finally:
        os.close(written)
    assert found.returncode == 120
    assert "BrokenPipeError" in found.stderr
