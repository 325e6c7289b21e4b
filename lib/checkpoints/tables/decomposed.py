"""What the stages that decompose write: ranks of updates and products, and of rounded weights."""

from lib.work.schemas import schema

SPECTRA = schema("""
The update of a matrix, or the product of a head: at the base, or its update.
run              text     the name of the training
step             integer  the number of the step
layer            integer  the number of the layer, from 1 on; 0 where there is none
module           text     the name of the matrix or product
head             integer  the number of the head, from 1 on; 0 where there is none
offset           integer  the offset of rotary positions
of               text     whether it is the initial one or an update
rows             integer  of the matrix or product
cols             integer  of the matrix or product
norm             number   the Frobenius norm
stable_rank      number   the squared Frobenius norm over the squared operator norm
effective_rank   number   the exponential of the entropy of the singular values; NaN where some lack
numerical_rank   number   the number of singular values above a thousandth of the first; the same
rank_90          number   the least rank that holds 90 % of the energy; NaN where some values lack
rank_95          number   95 %
rank_99          number   99 %
base_norm        number   of the matrix at the base; NaN of a product
tail             number   the squares of the singular values that lack, summed
edge             number   of rounding: a singular value below it may be one; NaN of a product
rank_above_edge  number   the number of singular values above the edge; NaN of a product
method           text     by which it is decomposed
singular_values  numbers  from the largest on
errors           numbers  by how much each may be below the true one; none where all are known
""")
RANKED = SPECTRA.only(
    "run step module head of rank_above_edge singular_values rows cols norm base_norm"
)
EVOLVED = SPECTRA.only("run step layer module head offset of stable_rank")
ROUNDING = schema("""
A matrix of a snapshot of a fine-tune, as it is and stored in bfloat16.
module             text     the name of the matrix
relative_update    number   the norm of the update over that of the base
rank_90            integer  the least rank that holds 90 % of the update's energy
rank_90_stored     integer  the same of the stored update
above_edge         integer  the number of singular values above the edge of rounding
above_edge_stored  integer  the same of the stored update
noise_over_edge    number   the largest singular value of the noise of rounding, over the edge
run                text     the name of the fine-tune, with its seed
step               integer  the number of the step
""")
