"""What is left of trained models whose updates are cut, or whose parts are removed."""

from lib.vision.tables.trained import CELL, SCORES
from lib.work.schemas import schema

TRUNCATE = schema(f"""
A cut of the updates of a training.
kind  text     which updates are cut: those of a matrix, or all
rank  integer  to which they are cut
{SCORES}
{CELL}
seed  integer  the seed of the training
""")
PRUNE = schema(f"""
A removal of parts of a training.
what        text    the parts: weights, neurons or heads
order       text    in which they go: the smallest first, the largest first, or at random
rate        number  the share of them that was asked for
removed     number  the share that was removed
{SCORES}
parameters  number  the share of the parameters that is left
flops       number  the share of the operations that is left
{CELL}
seed        integer  the seed of the training
""")
