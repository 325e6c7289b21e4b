"""The tables in git, of which measures are taken and figures are drawn."""

from pathlib import Path

from lib.files.tables import read_table
from lib.vision.tables.cut import PRUNE, TRUNCATE
from lib.vision.tables.trained import CELL, MATRIX, SPECTRA, STEPS
from lib.work.schemas import Schema, Table, schema

RANKS = schema(f"""
The ranks of a matrix of a training at a step that was saved.
{CELL}
{MATRIX}
norm            number   the Frobenius norm
stable_rank     number   the squared Frobenius norm over the squared operator norm
effective_rank  number   the exponential of the entropy of the singular values
numerical_rank  integer  the number of singular values above a share of the largest
rank_90         integer  the least rank that holds 90 % of the energy
rank_95         integer  the least rank that holds 95 % of the energy
rank_99         integer  the least rank that holds 99 % of the energy
""")
SHOWN = (
    SPECTRA.only("variant init_scale control matrix of step seed layer head")
    .also("n_singular_values  integer  the number of all")
    .also("singular_values    numbers  the leading ones, from the largest on")
)
HEAD = """\
matrix      text     the name of the product
control     text     how the training differs from the plain one
init_scale  number   the factor of the initial weights
seed        integer  the seed of the training"""
DIRECTIONS = schema(f"""
A direction of the last update of a head's product.
{HEAD}
layer           integer  the number of the layer, from 1 on
head            integer  the number of the head, from 1 on
singular_value  number   the last one of the direction
begun           number   the step at which it has a tenth of it
ended           number   the step at which it has nine tenths of it
""")
WHOLE_RANKS = schema("""
The last update of a whole matrix of a plain training, with all heads side by side.
variant      text     the name of the run
control      text     how the training differs from the plain one
init_scale   number   the factor of the initial weights
matrix       text     the name of the matrix
seed         integer  the seed of the training
layer        integer  the number of the layer, from 1 on
stable_rank  number   the squared Frobenius norm over the squared operator norm
""")
GROWTH = schema(f"""
The stable rank of a product's updates through a training, a mean over layers and heads.
{HEAD}
growth  number  its mean in the last third of the training over that in the first third
""")
EQUAL_LOSS = schema("""
The stable ranks of a product's updates under true and permuted labels, at equal training loss.
matrix      text     the name of the product
init_scale  number   the factor of the initial weights
seed        integer  the seed of both trainings
train_loss  number   the lowest loss to which both come down
learned     number   the stable rank under true labels, a mean over layers and heads
permuted    number   the stable rank under permuted labels, a mean over layers and heads
""")
SCALES = schema("""
An init scale that figures show.
use         text    what it is: the reference, or one of those along which ranks grow
init_scale  number  the factor of the initial weights
""")
MEASURED = {  # those of which measures are taken, and the others computed
    "training": STEPS,
    "ranks": RANKS,
    "truncate": TRUNCATE,
    "prune": PRUNE,
    "directions": DIRECTIONS,
}
DERIVED = {"growth": GROWTH, "equal_loss": EQUAL_LOSS}
DRAWN = {
    **MEASURED,
    "spectra": SHOWN,
    "whole_ranks": WHOLE_RANKS,
    **DERIVED,
    "scales": SCALES,
}
LATER = {"prune": "removed", "spectra": "n_singular_values"}  # columns that an early run lacks
MAY_LACK = {"whole_ranks"}  # which only a run has whose weights are kept


def read_drawn(schemas: dict[str, Schema], folder: Path) -> dict[str, Table]:
    """The tables of a run, the pipeline's or a published one.

    One that was published early lacks the columns of `LATER`, and one without weights the tables
    of `MAY_LACK`. Raises `InputError` where other columns or tables are missing.
    """
    found = {}
    for name, one in schemas.items():
        file = folder / f"{name}.parquet"
        if name in MAY_LACK and not file.is_file():
            continue
        if name in LATER and LATER[name] not in read_table(file):
            one = one.without(LATER[name])
        found[name] = one.read(file)
    return found
