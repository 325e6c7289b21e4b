"""The tables in git, of which the figures are drawn."""

from lib.low_rank_sparse.tables.adapted import ADAPT
from lib.low_rank_sparse.tables.cut import NEURONS, PRUNE, TRUNCATE
from lib.low_rank_sparse.tables.spectra import SPECTRA
from lib.low_rank_sparse.tables.swept import SAMPLES, SWEPT
from lib.low_rank_sparse.tables.trained import LOSSES, STEPS

DRAWN = {
    "training": STEPS,
    "losses": LOSSES,
    "spectra": SPECTRA.also("numerical_rank  integer  the singular values above a share"),
    "truncate": TRUNCATE,
    "prune": PRUNE,
    "neurons": NEURONS,
    "adapt": ADAPT,
    "sweep": SWEPT.also("""
n_batches  number  the number of the first batch that is fitted, from 1 on, NaN where none is
in_fit     truth   whether it counts for a power law
"""),
    "samples": SAMPLES,
}
