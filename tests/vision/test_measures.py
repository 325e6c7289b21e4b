"""What measures read off the types and the controls of tables.

The numbers are tested where they are made: in stages/test_evaluate.py, and for several optimisers
in test_digits_optimizers.py.
"""

import numpy as np
import pandas as pd
import pytest

from lib.vision.measures import PERMUTED, apart, plain_typed


def test_tables_of_single_precision_keep_the_init_scales_that_were_written():
    found = plain_typed(
        pd.DataFrame({"init_scale": np.float32([0.1, 1]), "control": pd.Categorical(["none", "a"])})
    )
    assert found["init_scale"].tolist() == [0.1, 1.0]
    assert found["control"].tolist() == ["none", "a"]
    assert str(found["control"].dtype) != "category"


@pytest.mark.parametrize(
    ("control", "wanted"),
    [
        ("learning_rate=0.1,scaled=x", ("", "learning_rate=0.1,scaled=x")),
        (
            f"{PERMUTED},optimizer=muon,learning_rate=0.01,muon_of=heads,scaled=x",
            ("muon heads", f"{PERMUTED},scaled=x"),
        ),
    ],
)
def test_a_control_is_taken_apart_into_its_optimiser_and_the_rest(control, wanted):
    assert apart(control) == wanted
