"""The report is opened where a browser has a window, and an error of its stage ends the program."""

import subprocess
import sys
import webbrowser

import pytest

from tests.pipeline.project import ROOT
from tools import show


class Window(webbrowser.BaseBrowser):
    """A browser that notes what it is given."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def open(self, url, new=0, autoraise=True):
        self.shown.append(url)
        return True


def none():
    raise webbrowser.Error("could not locate runnable browser")


def test_a_page_opens_in_a_browser_with_a_window(monkeypatch, tmp_path):
    window = Window()
    monkeypatch.setattr(webbrowser, "get", lambda: window)
    assert show.is_opened(tmp_path / "report.html")
    assert window.shown == [(tmp_path / "report.html").as_uri()]


@pytest.mark.parametrize("get", [none, lambda: webbrowser.GenericBrowser("w3m")])
def test_no_browser_and_one_in_the_terminal_open_nothing(monkeypatch, tmp_path, get):
    monkeypatch.setattr(webbrowser, "get", get)
    assert not show.is_opened(tmp_path / "report.html")


def test_the_command_of_the_report_stage_is_run_and_its_error_ends_this(monkeypatch):
    asked = []

    def run(command, **options):
        asked.append((command, options["cwd"]))
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit) as ended:
        show.main()
    assert ended.value.code == 3
    (command, folder), *others = asked
    assert command[:3] == [sys.executable, "-m", "stages.report"]
    assert folder == ROOT
    assert not others
