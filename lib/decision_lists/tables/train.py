"""Trainings beyond the theorems: W and V from many starts, V alone, and minibatches."""

from lib.work.schemas import schema

COURSE = schema("""
A look at a descent on W and V.
step            integer  the step
loss            number   of the law
accuracy        number   the share of the positions that are right
cosine          number   of V and P
centred_cosine  number   of V and P without the means of their columns
argmax_right    number   the share of the columns of V with the right label on top
certified_all   truth    whether every sequence is certified right, with repeats, too
task            text     the name of the task
start           text     the kind of W and V at the start
seed            integer  of the start
law             text     the distribution of the sequences
n_tokens        integer  L
length          integer  the longest list
""")
ALIGNMENT = schema("""
A look at a descent on V from 0 under uniform attention.
step            integer  the step
loss            number   of the law
along_P         number   the mean of the inner product of V's gradient and P so far
along_wrong_P   number   the same for a wrong P
argmax_wrong    number   the share of the columns of V with a wrong P's label on top
least_rate      number   what `along_P` is at least at V = 0
accuracy        number   the share of the positions that are right
cosine          number   of V and P
centred_cosine  number   of V and P without the means of their columns
argmax_right    number   the share of the columns of V with the right label on top
task            text     the name of the task
law             text     the distribution of the sequences
length          integer  the longest list
repeats         truth    whether tokens may repeat
""")
MINIBATCH = schema("""
A look at a training by minibatches.
step            integer  the step
loss            number   of the batch
certified_sets  truth    whether every sequence of distinct tokens is certified right
certified_all   truth    whether every sequence is, with repeats, too
seed            integer  of the training
n_tokens        integer  L
batch_size      integer  the sequences of a step
""")
FOLDER = {"joint": COURSE, "starts": COURSE, "alignment": ALIGNMENT, "minibatch": MINIBATCH}
