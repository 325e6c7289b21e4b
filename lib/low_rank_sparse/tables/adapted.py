"""What adapters learn in place of the matrices."""

from lib.low_rank_sparse.tables.scores import SCORES
from lib.work.schemas import schema

ADAPT = schema(f"""
A training of adapters.
configuration  text     the name of the configuration
rank           integer  of the adapters
seed           integer  the seed of the training
fitted_step    integer  the first step with a loss below that of a fit, -1 where there is none
{SCORES}
""")
