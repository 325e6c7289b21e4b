"""The tables in git of the first epochs of a long training, on true and on permuted labels."""

from lib.vision.tables.drawn import DIRECTIONS, RANKS, SHOWN
from lib.vision.tables.trained import STEPS

TIMED = STEPS.also("cpu_seconds  number  those of the process until the scores were saved")
OF_BEGINNING = {"training": TIMED, "ranks": RANKS, "spectra": SHOWN, "directions": DIRECTIONS}
