"""Letters with an index, set as MathML, which a browser draws itself."""

import re

from markupsafe import Markup, escape

SYMBOL = re.compile(
    r"(?:(?<!\w)|(?<=ᵀ))(d?[α-ωΑ-Ω]|[^\W\d_])_([A-Za-z]{1,2}|\d|\{[\w+−-]+\})(ᵀ|²|\*)?(?!\w)"
)
RAISED = {"ᵀ": "<mo>⊤</mo>", "²": "<mn>2</mn>", "*": "<mo>*</mo>"}
TAG = re.compile(r"(<[^>]*>)")
AS_TYPED = ("code", "math", "pre", "script", "style", "svg", "title")


def typeset(text: str) -> Markup:
    """A plain text as HTML, in which W_K, W_Qᵀ and p_2² are a letter with its index."""
    return Markup(_set(str(escape(text))))  # noqa: S704 (it is escaped)


def typeset_page(page: str) -> str:
    """A piece of HTML in which the texts outside of code and formulas are typeset."""
    parts = TAG.split(page)
    within: list[str] = []
    for place, part in enumerate(parts):
        if place % 2 == 0:
            parts[place] = part if within else _set(part)
            continue
        name = re.match(r"</?([\w-]+)", part)
        if name is None or name[1] not in AS_TYPED or part.endswith("/>"):
            continue
        if not part.startswith("</"):
            within.append(name[1])
        elif within and within[-1] == name[1]:
            within.pop()
    return "".join(parts)


def _set(text: str) -> str:
    return SYMBOL.sub(_symbol, text)


def _symbol(found: re.Match[str]) -> str:
    below = found[2].strip("{}")
    index = f"<mn>{below}</mn>" if below.isdigit() else f"<mi>{below}</mi>"
    if found[3]:
        inside = f"<msubsup><mi>{found[1]}</mi>{index}{RAISED[found[3]]}</msubsup>"
    else:
        inside = f"<msub><mi>{found[1]}</mi>{index}</msub>"
    return f"<math>{inside}</math>"
