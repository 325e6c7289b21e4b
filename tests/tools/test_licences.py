"""Every package that is installed has its licence on the page, and digests of its files in the
lock.
"""

import re

from tests.pipeline.project import ROOT
from tools.licences import PIN


def test_every_package_of_the_lock_has_a_licence_on_the_page():
    listed = re.findall(
        r"^\| (\S+) \| (.+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE
    )
    named = {name: licence for name, licence in listed if name != "Package"}
    assert list(named) == [name for name, _ in PIN.findall((ROOT / "requirements.txt").read_text())]
    assert all(licence.strip() for licence in named.values())


def test_every_package_of_the_lock_has_digests():
    for file in ("requirements.txt", "requirements.cuda.txt", "requirements.pip.txt"):
        text = (ROOT / file).read_text()
        begun = re.findall(r"^\S+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
        assert len(PIN.findall(text)) == len(begun)
        assert PIN.findall(text)
