"""What trainings write: the scores of every step that was saved, and the spectra of their runs."""

from lib.work.schemas import schema

CELL = """\
control     text    how the training differs from the plain one: none, or labels=permuted and such
init_scale  number  the factor of the initial weights
variant     text    the name of the run: its init scale and its control"""
SCORES = """\
test_loss      number  the mean loss on the test images
test_accuracy  number  the share of them that is right"""
STEPS = schema(f"""
A step of a training at which its scores were saved.
seed           integer  the seed of the training
step           integer  its number; 0 is the start
test_accuracy  number   the share of the test images that is right
test_loss      number   the mean loss on the test images
train_loss     number   the mean loss in training since the step that was saved before, NaN at 0
{CELL}
""")
MATRIX = """\
matrix  text     the name of the matrix or product
of      text     whether it is initial, an update, or a Gaussian one of the update's norm
step    integer  the number of the step
seed    integer  the seed of the training
layer   integer  the number of the layer, from 1 on
head    integer  the number of the head, from 1 on; 0 where there are none"""
SPECTRA = schema(f"""
A matrix of a training at a step that was saved.
{CELL}
{MATRIX}
singular_values  numbers  from the largest on
""")
