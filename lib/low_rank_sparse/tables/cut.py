"""What is left of trained models whose updates are cut or whose neurons are removed."""

from lib.low_rank_sparse.tables.scores import CELL, MARGINS, SCORES, SEED
from lib.work.schemas import schema

TRUNCATE = schema(f"""
A cut of the updates of a training.
kind  text     which updates are cut, or the null
rank  integer  to which they are cut
{SCORES}
{CELL}
{SEED}
""")
DIRECTIONS = schema(f"""
A span of patterns, beside the two leading directions of the update of W_K.
span       text    its name
alignment  number  the mean squared cosine of the two directions with it
{CELL}
{SEED}
""")
PRUNE = schema(f"""
A removal of units of a training.
what     text    the units: neurons, those of one group, or rows of W_V
order    text    in which they go
rate     number  the share of them that goes
weights  number  the share of all neurons that stays
{MARGINS}
rescaled_hinge  number  the hinge loss where a factor gives back the mean margin in training
{CELL}
{SEED}
""")
NEURONS = schema(f"""
The neurons of a training, by the norms of the rows of W_O.
threshold     number   Otsu's, between small and large norms
small_share   number   the share of small ones
small_norm    number   the mean of the small ones
large_norm    number   the mean of the large ones
bimodality    number   Sarle's coefficient
initial_norm  number   the mean at the start
cosine        number   of a large neuron with the value of its pattern, NaN where untied
norms         numbers  of every neuron
{CELL}
{SEED}
""")
