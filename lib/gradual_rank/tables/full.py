"""What heads with full matrices do, and their spectra, as the shared stage writes these."""

from lib.matrices import tables as spectra
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
SPECTRA = schema(f"""
A matrix of a training at a snapshot.
learning_rate     number   of the training
log10_init_scale  number   log10 of the scale of its start
variant           text     the name of the training
{spectra.MATRIX}
{spectra.CLOCKS["step"]}
{spectra.PLACE}
{spectra.VALUES}
""")
