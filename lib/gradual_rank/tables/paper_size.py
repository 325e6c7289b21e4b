"""What descents at the paper's size do, in git: their `batches` are the seeds of their batches."""

from lib.work.schemas import schema

SPECTRA = schema("""
A look at a product of full matrices.
name              text     the descent
batches           integer  the seed of its batches
log10_init_scale  number   log10 of the scale of the start
step              integer  the step
time              number   steps times the learning rate
rescaled_time     number   over log(1 / init_scale)
matrix            text     W_KQ or W_VO
singular_values   numbers  from the largest on
""")
DIRECTIONS = schema("""
A direction of a product of full matrices.
name              text     the descent
batches           integer  the seed of its batches
log10_init_scale  number   log10 of the scale of the start
matrix            text     W_KQ or W_VO
direction         integer  its number by size
rise              number   when it first comes to the threshold; infinite where never
limit             number   when the first does, by the gradient at zero
finite            number   counted from the actual start
stepped           number   and with steps of this size
""")
LOSSES = schema("""
A look at the loss on all samples.
name              text     the descent
batches           integer  the seed of its batches
log10_init_scale  number   log10 of the scale of the start
step              integer  the step
time              number   steps times the learning rate
rescaled_time     number   over log(1 / init_scale)
loss              number   as a share of the loss at zero
""")
BATCHES = schema("""
An activation of the diagonal head; times are over log(1 / init_scale), infinite where never.
seed              integer  the seed of the head
coordinate        integer  the product
sign              integer  its sign
stage             integer  the stage of Algorithm 1 in which it joins
predicted         number   when, by Algorithm 1
log10_init_scale  number   log10 of the scale of the start
measured          number   when, on batches
flow              number   when, in the flow
name              text     the descent
batches           integer  the seed of its batches
""")
FOLDER = {"spectra": SPECTRA, "directions": DIRECTIONS, "losses": LOSSES, "batches": BATCHES}
