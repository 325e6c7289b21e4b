"""Intervals cover what they say, by simulation and by the binomial law."""

import math
import re

import numpy as np
import pytest

from lib.pages.statistics import interval, middle, of_mean, of_median
from tests.pipeline.project import ROOT

DRAWS = {"normal": (np.random.Generator.normal, 0, 0), "log-normal": None}
DRAWS["log-normal"] = (np.random.Generator.lognormal, 1, math.exp(0.5))


def table() -> dict[tuple[str, str, int], float]:
    """The coverage that docs/statistics.md states, by statistic, law and n."""
    lines = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    header, _, *cells = rows
    said = {}
    for n, *values in cells:
        for name, value in zip(header[1:], values, strict=True):
            statistic, law = name.split(", ")
            known = re.match(r"(\d+) %", value)
            said[statistic, law, int(n)] = int(known[1]) / 100 if known else math.nan
    return said


@pytest.mark.parametrize(("statistic", "law", "n"), table())
def test_an_interval_covers_what_the_page_says(statistic, law, n):
    draw, median, mean = DRAWS[law]
    samples = draw(np.random.default_rng(n), size=(4000, n))
    found = [interval(sample.tolist(), statistic) for sample in samples]
    truth = mean if statistic == "mean" else median
    covered = np.mean([low <= truth <= high for low, high in found])
    said = table()[statistic, law, n]
    if math.isnan(said):
        assert covered == 0
    else:
        assert covered == pytest.approx(said, abs=0.02)


def test_the_interval_of_a_median_is_made_of_values():
    """Among twelve values two or fewer are below the median in 1.9 %, three or fewer in 7.3 %."""
    assert of_median([1, 2, 3, 4, 5, 6, 7, 1000]) == (1, 1000)
    assert of_median([*range(1, 12), 1000]) == (3, 10)
    assert of_median([3, 1, 2, 6, 5, 4]) == (1, 6)


def test_below_six_numbers_a_median_has_no_interval():
    assert all(map(math.isnan, of_median([1, 2, 3, 4, 5])))


def test_the_interval_of_a_mean_is_students():
    low, high = of_mean([1, 2, 3, 4, 5, 6])
    assert (low + high) / 2 == pytest.approx(3.5)
    assert high - 3.5 == pytest.approx(2.570582 * math.sqrt(3.5 / 6), rel=1e-6)
    assert all(map(math.isnan, of_mean([1, 2, 3, 4, 5])))


def test_the_interval_of_a_share_stays_between_none_and_all():
    values = [0, 0, 0, 0, 0, 1]
    assert interval(values, "mean")[0] < 0
    assert interval(values, "mean", share=True)[0] == 0
    assert interval([1, 1, 1, 1, 1, 0], "mean", share=True)[1] == 1
    assert all(map(math.isnan, interval([0, 1], "mean", share=True)))


def test_what_is_not_known_makes_no_interval_and_no_middle():
    assert all(map(math.isnan, of_median([1, 2, 3, 4, 5, math.nan])))
    assert math.isnan(middle([1, math.nan], "mean"))
    assert math.isnan(middle([], "median"))
