"""What is kept of vision transformers with normalised queries and keys, beside plain ones."""

from lib.vision.tables.drawn import RANKS
from lib.vision.tables.trained import STEPS

ATTENTION = "attention  text  plain, or qk_norm where queries and keys are normalised"
TRAINED = STEPS.without("variant").also(ATTENTION)
PRODUCTS = RANKS.only("matrix of step seed layer head norm stable_rank control init_scale").also(
    ATTENTION
)
TURNS = (
    RANKS.only("matrix seed layer head control init_scale")
    .also(ATTENTION)
    .also("turn   number  the step at which it has moved by a share of its norm; infinite if never")
    .also("moved  number  the norm of its last update over that at the start")
)
OF_QK_NORM = {"training": TRAINED, "products": PRODUCTS, "turns": TURNS}
