"""Build the site of README, docs and an API reference from the docstrings: `make docs`, then open
site/index.html.

The pages are the files of the repository, at their places, so that their links hold; a link to a
file that is no page leads to a copy of it. A link that leads nowhere stops the build. Formulas
and letters with an index become MathML, which a browser draws itself.
"""

import html
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lib.pages.maths import typeset_page

ROOT = Path(__file__).parents[1]
FAMILIES = (
    "gradual_rank",
    "optimisers",
    "adapter_start",
    "qk_norm",
    "momentum",
    "second_event",
    "cross_entropy",
    "own_loss",
    "low_rank_sparse",
    "decision_lists",
    "vision",
    "checkpoints",
)
PAGES = {
    "Home": "README.md",
    "Families": [f"docs/{name}.md" for name in FAMILIES],
    "Two models that somebody trained": "docs/real_models.md",
    "Does it work with my model?": "docs/architectures.md",
    "Claims": "docs/claims.md",
    "Working with it": [
        f"docs/{name}.md"
        for name in (
            "architecture",
            "changing_things",
            "sweeps",
            "comparing",
            "statistics",
            "data_sets",
            "many_machines",
            "beyond_one_machine",
            "faults",
            "licences",
            "add_a_family",
        )
    ]
    + ["CONTRIBUTING.md", "CHANGELOG.md"],
}
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MATHS = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def main(site: Path = ROOT / "site") -> None:
    """Write the site into a folder, which it replaces."""
    from mkdocs.commands.build import build  # pyright: ignore[reportMissingImports]
    from mkdocs.config import load_config  # pyright: ignore[reportMissingImports]

    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)

    with TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        for name in listed(PAGES):
            copied(ROOT / name, pages)
        shutil.copy(ROOT / "tools" / "site.css", pages)
        modules = sorted(ROOT.glob("lib/*/*.py"))
        named = [
            path.relative_to(ROOT).with_suffix("") for path in modules if path.stem != "__init__"
        ]
        reference: dict[str, list[str]] = {}
        for module in named:
            page = f"api/{module.parent.name}/{module.name}.md"
            (pages / page).parent.mkdir(parents=True, exist_ok=True)
            (pages / page).write_text(
                f"# {module.name}\n\n::: {'.'.join(module.parts)}\n", encoding="utf-8"
            )
            reference.setdefault(module.parent.name, []).append(page)
        nav = [{title: found} for title, found in PAGES.items()]
        nav.append({"API": [{concept: found} for concept, found in reference.items()]})
        os.chdir(ROOT)  # where the docstrings are read
        config = load_config(
            str(ROOT / "tools" / "site.yml"),
            docs_dir=str(pages),
            site_dir=str(site),
            nav=nav,
            strict=True,
            hooks=[str(Path(__file__))],
        )
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    print(f"the site is {site / 'index.html'}")


def listed(pages: Any) -> list[str]:
    """Every page that the navigation names."""
    if isinstance(pages, str):
        return [pages]
    return [
        name
        for part in (pages.values() if isinstance(pages, dict) else pages)
        for name in listed(part)
    ]


def copied(path: Path, pages: Path) -> None:
    """Copy a page to its place, and the files to which it links, except for other pages."""
    target = pages / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        linked = (path.parent / link).resolve()
        if linked.is_file() and linked.suffix != ".md" and linked.is_relative_to(ROOT):
            beside = pages / linked.relative_to(ROOT)
            beside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(linked, beside)


def on_page_content(content: str, **_: object) -> str:
    """Return the page with every formula, and every letter with an index, as MathML; this is a hook
    of MkDocs.
    """
    from latex2mathml.converter import convert  # pyright: ignore[reportMissingImports]

    def drawn(formula: re.Match[str]) -> str:
        block = formula[1] == "div"
        maths = convert(html.unescape(formula[2]), display="block" if block else "inline")
        return f'<div style="overflow-x: auto">{maths}</div>' if block else maths

    return typeset_page(MATHS.sub(drawn, content))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
