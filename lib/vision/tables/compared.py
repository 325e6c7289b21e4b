"""The tables of several optimisers, which a published program writes and the stage draws."""

from lib.work.schemas import schema

RULE = """\
rule        text    the name of the optimiser
labels      text    of the training images: true, or permuted
init_scale  number  the factor of the initial weights
control     text    how the training differs from the plain one"""
TRAINED = schema(f"""
A step of a training at which its scores were saved.
seed           integer  the seed of the training
step           integer  its number; 0 is the start
test_accuracy  number   the share of the test images that is right
test_loss      number   the mean loss on the test images
train_loss     number   the mean loss in training since the step that was saved before, NaN at 0
{RULE}
""")
RANKS = schema(f"""
The updates of a product at a step, or Gaussian ones of their norm.
matrix       text     the name of the product
of           text     whether an update or a Gaussian one
step         integer  the number of the step
seed         integer  the seed of the training
stable_rank  number   the mean over layers and heads
{RULE}
""")
TRUNCATE = schema(f"""
A cut of all updates of a training, where it first has a certain test accuracy.
seed           integer  the seed of the training
step           integer  at which it has the accuracy
kind           text     which updates are cut: all
rank           integer  to which they are cut
test_loss      number   the mean loss on the test images
test_accuracy  number   the share of them that is right
{RULE}
""")
RATES = schema("""
A training by which the learning rate of an optimiser is chosen.
seed           integer  the seed of the training
train_loss     number   the last one
test_accuracy  number   the last one
rule           text     the name of the optimiser
init_scale     number   the factor of the initial weights
learning_rate  number   that was tried
""")
OF_OPTIMIZERS = {"trained": TRAINED, "ranks": RANKS, "truncate": TRUNCATE, "rates": RATES}
