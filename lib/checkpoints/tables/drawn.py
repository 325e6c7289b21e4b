"""The tables in git of the example, of which measures are taken and figures are drawn."""

from lib.checkpoints.tables.decomposed import ROUNDING
from lib.checkpoints.tables.planned import EXAMPLE
from lib.work.schemas import schema

MODEL = "model  text  the kind of the model"
HEADS = schema(f"""
An update of a product of a head in a training from scratch.
{MODEL}
step         integer  the number of the step, from the first on
layer        integer  the number of the layer, from 1 on
head         integer  the number of the head, from 1 on
module       text     the name of the product
offset       integer  the offset of rotary positions
stable_rank  number   the squared Frobenius norm over the squared operator norm
text         text     on which it was trained: language, or the same text permuted
""")
DRAWN = {
    **{name: one.also(MODEL) for name, one in EXAMPLE.items()},
    "rounding": ROUNDING.also(MODEL),
    "heads": HEADS,
}
