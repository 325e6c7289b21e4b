"""A page as a reader's browser shows it."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

READABLE = 4.5  # the contrast that WCAG 2.2 asks of texts (1.4.3)
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@contextmanager
def opened(page: Path, width: int = 1280, scheme: str = "light", beside: str = "") -> Iterator[Any]:
    """The page in a browser without a network; all that it asks for must be in it, or in the folder
    `beside` it.

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
    assert [
        url for url in asked if url != page.as_uri() and not url.startswith(("data:", *own))
    ] == []
    assert said == []


TEXTS = """() => {
    const paper = e => {
        while (e && getComputedStyle(e).backgroundColor === "rgba(0, 0, 0, 0)") e = e.parentElement;
        return e ? getComputedStyle(e).backgroundColor : "none";
    };
    const written = e => [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
    const texts = [...document.querySelectorAll("body *:not(svg, svg *)")].filter(written);
    return [document.body, ...texts].map(e => [getComputedStyle(e).color, paper(e)]);
}"""


def colours_of_texts(view: Any) -> list[tuple[str, str]]:
    """The colour of a text and that behind it, each pair once; the first pair is the page's own."""
    return list(dict.fromkeys((ink, paper) for ink, paper in view.evaluate(TEXTS)))


def contrast(a: str, b: str) -> float:
    """(L₁ + 0.05) / (L₂ + 0.05), L₁ ≥ L₂ the colours' luminances: 1 to 21, WCAG 2.2."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of an opaque colour `rgb(r, g, b)`, WCAG 2.2."""
    found = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour)
    assert found, f"wanted an opaque colour rgb(r, g, b), got {colour!r}"
    shares = [int(part) / 255 for part in found.groups()]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
