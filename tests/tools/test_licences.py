"""Every package that is installed has its licence on the page, and digests of its files in the
lock.
"""

import re
import tomllib

from tests.pipeline.project import ROOT
from tools.environment import MADE_OF, SMALL_PARTS, plain
from tools.licences import PIN

BEGUN = r"^\S+==\S+(?: ; [^\\\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}"


def test_every_package_of_the_lock_has_a_licence_on_the_page():
    listed = re.findall(
        r"^\| (\S+) \| (.+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE
    )
    named = {name: licence for name, licence in listed if name != "Package"}
    assert list(named) == [name for name, _ in PIN.findall((ROOT / "requirements.txt").read_text())]
    assert all(licence.strip() for licence in named.values())


def test_every_package_of_the_lock_has_digests():
    files = sorted({file for made_of in MADE_OF.values() for file in made_of if "requ" in file})
    assert sorted(files) == sorted(
        path.relative_to(ROOT).as_posix()
        for path in (*ROOT.glob("requirements*.txt"), *ROOT.glob("benchmarks/requirements*.txt"))
    )
    for file in files:
        text = (ROOT / file).read_text()
        begun = re.findall(BEGUN, text, re.MULTILINE)
        assert len(PIN.findall(text)) == len(begun)
        assert PIN.findall(text)


def test_an_extra_has_what_pyproject_says_and_nothing_that_the_lock_has():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    locked = versions("requirements.txt")
    for extra in MADE_OF.keys() - {"installed", *SMALL_PARTS}:
        [file] = MADE_OF[extra]
        found = versions(file)
        assert not found.keys() & locked.keys(), file
        for wanted in extras[extra]:
            name, version = wanted.split("==")
            assert version in found[plain(name)]


def versions(file):
    """Every version of each package in a lock: one may be of some Pythons, another of others."""
    found = {}
    for name, version in PIN.findall((ROOT / file).read_text()):
        found.setdefault(plain(name), []).append(version)
    return found
