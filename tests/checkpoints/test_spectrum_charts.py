"""Where the page of `make lora` draws the spectra of the largest updates."""

import numpy as np
import pandas as pd
import pytest

from lib.checkpoints.figures.size_charts import ROOM, WIDE
from lib.checkpoints.figures.spectrum_charts import spectrum_charts
from tests.checkpoints.checkpoints_tables import rows

SPAN = WIDE - 2 * ROOM


def spectra(names: dict[str, int]) -> pd.DataFrame:
    """A row for each module, with the layer of its name."""
    shared = {"of": "update", "head": 0, "step": 1, "run": "tuned", "edge": 0.1}
    return pd.DataFrame(
        [
            shared | {"module": name, "layer": layer, "norm": i + 1.0, "singular_values": [10.0, 1]}
            for i, (name, layer) in enumerate(names.items())
        ]
    )


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"a.weight": 0, "b.weight": 0}, ["b", "a"]),  # no name holds a number
        ({"wte.weight": 0, "h.0.weight": 1}, ["h.0"]),
        ({f"h.{i}.weight": i + 1 for i in range(5)}, ["h.4", "h.3", "h.2", "h.1"]),
    ],
)
def test_the_largest_updates_of_layers_are_drawn_or_of_all_where_none_is_in_a_layer(names, shown):
    assert [chart.module for chart in spectrum_charts(spectra(names))] == shown


def test_values_stand_upwards_by_their_logarithm_above_the_edge_with_a_tick_at_powers_of_ten():
    [chart] = spectrum_charts(spectra({"h.0.weight": 1}))
    [one] = chart.spectra
    middle = WIDE // 2  # 1 lies midway between 10 and the edge, 0.1
    assert one.values == [(ROOM, ROOM), (WIDE - ROOM, middle)]
    assert one.most == []
    assert chart.edge == WIDE - ROOM
    assert [(tick.place, tick.text) for tick in chart.sizes] == [
        (WIDE - ROOM, "0.1"),
        (middle, "1"),
        (ROOM, "10"),
    ]
    assert [(tick.place, tick.text) for tick in chart.numbers] == [(ROOM, "1")]


def test_values_that_may_be_below_the_true_ones_have_a_band_up_to_these():
    table = spectra({"h.0.weight": 1, "h.1.weight": 2})
    table["errors"] = [[], [90.0, 9.0]]
    last, first = spectrum_charts(table)
    assert first.spectra[0].most == []
    [one] = last.spectra
    assert [y for _, y in one.most] == [ROOM, ROOM + round(SPAN / 3)]  # 100 and 10
    assert [y for _, y in one.values] == [ROOM + round(SPAN / 3), ROOM + round(2 * SPAN / 3)]


def test_what_an_adapter_adds_has_no_edge_and_a_value_of_zero_is_not_drawn():
    table = spectra({"h.0.weight": 1}).assign(edge=0.0)
    table["singular_values"] = [[1.0, 0.0]]
    [chart] = spectrum_charts(table)
    assert chart.edge is None
    assert len(chart.spectra[0].values) == 1


@pytest.mark.parametrize(
    ("steps", "wanted"), [([0], ["tuned"]), ([300], ["step 300"]), ([0, 20], ["step 0", "step 20"])]
)
def test_spectra_are_named_by_their_step_where_they_have_one(steps, wanted):
    sizes = {"layers.0.up.weight": 18, "layers.0.down.weight": 20}
    table = rows(step=steps, module=tuple(sizes)).assign(run="mine", layer=1, head=0, of="update")
    table["norm"] = table["step"] + table["module"].map(sizes)
    table["edge"] = table["step"] + 0.2
    table["singular_values"] = [np.array([1.0, 0.5]) * norm for norm in table["norm"]]
    chart = spectrum_charts(table)[0]
    assert chart.module == "layers.0.down"
    assert [one.name for one in chart.spectra] == wanted
    assert chart.spectra[-1].shade == 100
    heights = [one.values[0][1] for one in chart.spectra]
    assert heights == sorted(heights, reverse=True)  # the larger norm of the later step is higher
