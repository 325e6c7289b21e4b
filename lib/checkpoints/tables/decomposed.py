"""What the stages that decompose write: ranks of updates and products, and of rounded weights."""

from lib.work.schemas import schema

SPECTRA = schema("""
An update of a matrix, or a product of a head, of which evaluate reads the stable rank.
run          text     the name of the training
step         integer  the number of the step
layer        integer  the number of the layer, from 1 on; 0 where there is none
module       text     the name of the matrix or product
head         integer  the number of the head, from 1 on; 0 where there is none
offset       integer  the offset of rotary positions
of           text     whether it is the initial one or an update
stable_rank  number   the squared Frobenius norm over the squared operator norm
""")
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
