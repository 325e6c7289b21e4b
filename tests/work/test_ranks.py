"""What the environment says of ranks is refused where no ranks could compute alike."""

import pytest

from lib.files.files import InputError
from lib.work.ranks import launch


@pytest.mark.parametrize(
    ("variables", "device", "message"),
    [
        ({"LAB_RANKS": "3"}, "cpu", "LAB_RANKS: wanted a divisor of the param parts, 4, got 3"),
        ({"LAB_RANKS": "8"}, "cpu", "LAB_RANKS: wanted a divisor of the param parts, 4, got 8"),
        ({"LAB_RANKS": "0"}, "cpu", "LAB_RANKS: wanted a number of processes, got '0'"),
        ({"LAB_RANKS": "two"}, "cpu", "LAB_RANKS: wanted a number of processes, got 'two'"),
        ({"LAB_RANKS": "2"}, "cuda:1", "device: wanted cpu or cuda for 2 ranks, got cuda:1"),
        (
            {"LAB_RANKS": "2", "LAB_WORKERS": "ray:auto"},
            "cpu",
            "LAB_RANKS: wanted no LAB_WORKERS beside it, got 'ray:auto'",
        ),
        (
            {"TORCHELASTIC_RUN_ID": "by hand", "RANK": "1", "WORLD_SIZE": "3"},
            "cpu",
            "LAB_RANKS: wanted a divisor of the param parts, 4, got 3",
        ),
    ],
)
def test_ranks_that_could_not_compute_alike_are_refused(monkeypatch, variables, device, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message):
        launch(4, device)


@pytest.mark.parametrize("said", [None, "", "1"])
def test_without_ranks_this_process_computes(monkeypatch, said):
    monkeypatch.delenv("LAB_RANKS", raising=False)
    if said is not None:
        monkeypatch.setenv("LAB_RANKS", said)
    assert launch(4, "cuda:1") is False
