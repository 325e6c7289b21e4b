"""What trainings write: the scores of every step that was saved, and the spectra of their runs."""

from lib.matrices import tables as spectra
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
MATRIX = f"{spectra.MATRIX}\n{spectra.CLOCKS['step']}\n{spectra.PLACE}"
SPECTRA = schema(f"""
A matrix of a training at a step that was saved.
{CELL}
{MATRIX}
{spectra.VALUES}
""")
