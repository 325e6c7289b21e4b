"""How a program for people ends, and what it never loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.lora_made import working_in

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


@pytest.mark.slow
def test_without_a_text_no_library_of_others_is_loaded(kept, tmp_path):
    code = (
        "import sys; from pathlib import Path; from tools import lora; "
        "lora.main(*map(Path, ('base', 'tuned', 'out'))); print(*sys.modules)"
    )
    with working_in(kept, tmp_path / "made") as at:
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=at, env=env, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"torch", "transformers", "peft"} <= loaded
    assert not {"dvc", "sklearn", "ray", "torchvision", "IPython"} & loaded
