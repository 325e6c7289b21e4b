"""What gradient flow on W does at V = cP, at other scales c than the theorem's."""

from lib.work.schemas import schema

LAW = schema("""
A flow at a scale; the limit has the scale infinity.
task               text     the name of the task
law                text     the distribution of the sequences
n_tokens           integer  L
seq_len            integer  n, the tokens of a sequence
scale              number   c
at_once            truth    whether the first velocity makes every sequence right
rescaled_time      number   when every sequence is right, times c², NaN where never
path_error         number   the largest distance of W from the limit's, as a share of that
attention_to_star  number   the mean attention to the token that determines the label then
""")
FOLDER = {"law": LAW}
