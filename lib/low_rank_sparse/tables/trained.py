"""What trainings of configurations write: steps that were saved, and the losses of every step."""

from lib.low_rank_sparse.tables.scores import CELL, SCORES
from lib.work.schemas import schema

STEPS = schema(f"""
A step of a training at which its weights were saved.
step         integer  its number; 0 is the start
seed         integer  the seed of the training
loss         number   of the last batch, NaN at the start
fitted_step  integer  the first step with a loss below that of a fit, -1 where there is none
{SCORES}
{CELL}
""")
LOSSES = schema("""
A step of a training.
configuration  text     the name of the configuration
step           integer  the number of its batch, from 0 on
seed           integer  the seed of the training
loss           number   of the batch
""")
