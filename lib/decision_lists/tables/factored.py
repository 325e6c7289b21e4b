"""W_K and W_Q trained apart, beside W itself and beside the same lists of other tokens."""

from lib.work.schemas import schema

FACTORED = schema("""
A descent; a rise that did not come is NaN, and so is what is measured at one.
task              text     the name of the task
law               text     the distribution of the sequences
n_tokens          integer  L
seq_len           integer  n, the tokens of a sequence
of                text     factored, whole (W itself), or permuted (lists of other tokens)
length            integer  the longest list
n_heads           integer  the frequent tokens that head the lists
n_large           integer  the directions that are expected to be large
shared            truth    whether tokens share a head
sigma_1           number   the largest singular value of the negative gradient at W = 0
learning_rate     number   of gradient descent
seed              integer  of the start
log10_init_scale  number   log10 of the scale of the start
until             text     how far the descent goes: first rise, right, or next rise
first_rise        number   when the first direction of W has risen
next_rise         number   when the first direction beyond the expected ones has
right             number   when every sequence is right, infinite where never
singular_values   numbers  of W then, none where never
sigma_then        number   the largest singular value of the negative gradient then
fewest            number   the fewest directions of W that keep every sequence right
right_when_cut    number   the share of the positions that the expected directions have right
""")
STAIRCASES = schema("""
A look at a descent on W_K and W_Q.
time              number   the sum of the rates
singular_values   numbers  of W
task              text     the name of the task
log10_init_scale  number   log10 of the scale of the start
""")
FOLDER = {"factored": FACTORED, "staircases": STAIRCASES}
