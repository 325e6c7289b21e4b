"""Write the code that each stage imports into its deps in dvc.yaml, and change nothing else: `make
deps`.

A command may run several modules, one after another. A stage that has no dep of code yet gets its
deps, too. `deps` is a list of paths between brackets; those that are no code come first.
"""

import re
from pathlib import Path
from textwrap import fill

from ruamel.yaml import YAML

from lib.files.files import InputError
from lib.files.sources import closure
from tools.imports import dep, is_code

ROOT = Path(__file__).parents[1]
STAGE = re.compile(
    r"^  ([\w.-]+):\n((?:(?:    .*)?\n)+)", re.MULTILINE
)  # a key, and all that is indented below it
DEPS = re.compile(r"^    deps:.*\n(?:      .*\n)*", re.MULTILINE)
MODULE = re.compile(r"\bpython -m (stages\.[\w.]+)")


def with_deps(text: str, root: Path) -> str:
    """The text of a dvc.yaml in which each stage's deps of code are what its modules import, in
    order.
    """

    def rewritten(stage: re.Match[str]) -> str:
        modules = MODULE.findall(stage[0])
        deps = DEPS.search(stage[0])
        if not modules or not deps:
            return stage[0]
        listed = YAML(typ="safe").load(deps[0])["deps"]
        if (
            "#" in deps[0]
            or not isinstance(listed, list)
            or not all(isinstance(path, str) for path in listed)
        ):
            raise InputError(
                f"{stage[1]}: wanted deps that are a list of paths without comments, got {listed!r}"
            )
        others = [path for path in listed if not is_code(path)]
        code = {
            dep(path)
            for module in modules
            for path in closure(module.replace(".", "/") + ".py", root)
        }
        return stage[0].replace(
            deps[0], f"    deps: {_in_brackets(others, [path for path in code if path])}\n"
        )

    return STAGE.sub(rewritten, text)


def _in_brackets(*groups: list[str]) -> str:
    """A YAML list of paths on as few lines as hold it, each group sorted and begun on a line of its
    own.
    """
    quoted = [
        [f'"{path}"' if "{" in path else path for path in sorted(group)]
        for group in groups
        if group
    ]
    wide = {"width": 119, "break_long_words": False, "break_on_hyphens": False}
    lines = [
        fill(", ".join(group), initial_indent=" " * 11, subsequent_indent=" " * 11, **wide)
        for group in quoted
    ]
    return "[" + ",\n".join(lines).lstrip() + "]"


def main() -> None:
    path = ROOT / "dvc.yaml"
    before = path.read_text(encoding="utf-8")
    after = with_deps(before, ROOT)
    if after != before:
        path.write_text(after, encoding="utf-8")
        print("dvc.yaml: the deps of stages are those of their code again")


if __name__ == "__main__":
    main()
