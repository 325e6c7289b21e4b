"""A page as a reader's browser shows it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@contextmanager
def opened(page: Path, width: int = 1280, scheme: str = "light", beside: str = "") -> Iterator[Any]:
    """The page in a browser without a network; all that it asks for must be in it, or in the folder `beside` it.

    Nothing may be written to the console.
    """
    from playwright.sync_api import sync_playwright

    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        view.context.set_offline(True)
        view.on("console", lambda message: said.append(message.text))
        view.on("pageerror", lambda error: said.append(str(error)))
        view.on("request", lambda request: asked.append(request.url))
        view.goto(page.as_uri())
        yield view
        browser.close()
    own = (f"{page.parent.as_uri()}/{beside}/",) if beside else ()
    assert [url for url in asked if url != page.as_uri() and not url.startswith(("data:", *own))] == []
    assert said == []
