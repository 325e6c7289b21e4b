"""Letters with an index become MathML, and nothing else of a text or a page does."""

import pytest

from lib.pages.maths import typeset, typeset_page

K = "<math><msub><mi>W</mi><mi>K</mi></msub></math>"
Q = "<math><msubsup><mi>W</mi><mi>Q</mi><mo>⊤</mo></msubsup></math>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("W_K W_Qᵀ's", f"{K} {Q}&#39;s"),
        ("of <W_K>, (W_K)", f"of &lt;{K}&gt;, ({K})"),
        ("dβ_2²", "<math><msubsup><mi>dβ</mi><mn>2</mn><mn>2</mn></msubsup></math>"),
        ("uᵀW_K", f"uᵀ{K}"),
        ("T_{k+1}", "<math><msub><mi>T</mi><mi>k+1</mi></msub></math>"),
        (
            "init_scale, x_long, low_rank_sparse, a_b_c",
            "init_scale, x_long, low_rank_sparse, a_b_c",
        ),
    ],
)
def test_a_letter_with_an_index_is_set_and_the_rest_is_escaped(text, shown):
    assert typeset(text) == shown


def test_code_formulas_and_attributes_of_a_page_stay_as_they_are():
    as_typed = '<a title="W_K" href="W_K.md"><code>W_K</code></a><math><mi>W_K</mi></math>'
    assert typeset_page(f"<p>W_K {as_typed} W_K</p><br/>W_K") == (
        f"<p>{K} {as_typed} {K}</p><br/>{K}"
    )
