"""The tasks: lists, labels, and a law over sequences."""

from lib.work.schemas import schema

TASKS = schema("""
A task.
name         text        its group, and its number there
group        text        the group of settings
n_tokens     integer     L
seq_len      integer     n, the tokens of a sequence
repeats      truth       whether tokens may repeat in a sequence
lists        integerss   the list of each token
permutation  integers    the label of each token
probability  numbers     of each class of sequences, in the order of `classes_of`
law          text        the distribution of the sequences
use          text        the experiment in which the task takes part
""")
