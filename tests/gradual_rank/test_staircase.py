"""Which init scales a figure of the stages shows."""

import math

import numpy as np
import pandas as pd

from lib.gradual_rank.figures.staircase import moving


def test_scales_from_which_no_product_is_seen_to_move_are_left_out():
    """From 1e-1 W_KQ moves after the time that is drawn, 1.35 times the last stage's; of each
    product one coordinate moves, and one rests.
    """
    stages = pd.DataFrame({"time": [0.0, 1.0], "next_time": [1.0, math.inf]})
    rows = [
        (-1.0, 1.0, [0.01, 0.0, 2.0, 0.0]),
        (-1.0, 1.4, [1.0, 0.0, 2.0, 0.0]),
        (-8.0, 1.0, [0.1, 0.0, 0.0, 0.0]),
        (-8.0, 1.4, [1.0, 0.0, 0.0, 0.0]),
    ]
    trajectory = pd.DataFrame(rows, columns=["log10_init_scale", "rescaled_time", "p"])
    assert set(moving(trajectory, stages, "W_KQ")["log10_init_scale"]) == {-8.0}
    assert set(moving(trajectory, stages, "W_VO")["log10_init_scale"]) == {-1.0}
    still = trajectory.assign(p=[np.zeros(4)] * 4)
    assert len(moving(still, stages, "W_KQ")) == 4
