"""What heads with full matrices do, and their spectra, as the shared stage writes these."""

from lib.work.schemas import schema

RISES = schema("""
The first direction of W_VO rises.
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of its start
time              number   when, in steps times the learning rate
limit             number   by the largest singular value of the gradient at zero
finite            number   counted from the actual start
stepped           number   and with steps of this size
""")
SPECTRA = schema("""
A matrix of a training at a snapshot.
learning_rate     number   of the training
log10_init_scale  number   log10 of the scale of its start
variant           text     the name of the training
matrix            text     the name of the matrix
of                text     whether of the weights or of their update
step              integer  of the snapshot
seed              integer  the seed of the head
layer             integer  the number of the layer
head              integer  the number of the head
singular_values   numbers  from the largest on
""")
