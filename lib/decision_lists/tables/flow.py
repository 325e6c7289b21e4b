"""What gradient flow on W does at V = cP, at the theorem's scale c or on sequences with repeats."""

from lib.work.schemas import schema

THEOREM = schema("""
A flow at the theorem's scale; a time that did not come is NaN.
task               text     the name of the task
n_tokens           integer  L
seq_len            integer  n, the tokens of a sequence
length             integer  M, the longest list
law                text     the distribution of the sequences
gamma              number   the constant of the bound
scale              number   c
bound              number   the time by which the theorem has every sequence right
at_once            truth    whether the first velocity makes every sequence right
first_time         number   when every sequence is right first
perfect_at_bound   number   1 where all is right at the bound, else 0, NaN where it ended before
lost               integer  how often a sequence became wrong again
lost_time          number   when that was so last
regained_time      number   when all was right again last
largest_attention  number   the most of a token until all was right, times n: uniform is 1
""")
PATHS = schema("""
A look at a flow at the theorem's scale.
time      number  of the flow
loss      number  of the law
accuracy  number  the share of the positions that are right
margin    number  the least lead, in cW, of the token that determines the label
task      text    the name of the task
""")
REPEATS = schema("""
A flow where tokens repeat; NaN where it is never right.
task               text     the name of the task
law                text     the distribution of the sequences
n_tokens           integer  L
seq_len            integer  n, the tokens of a sequence
length             integer  M, the longest list
first_time         number   when every sequence is right
largest_W          number   the largest entry of W then
attention_to_star  number   the mean attention to the token that determines the label then
""")
MANY = schema("""
A flow at the theorem's scale on uniform subsets of many tokens.
n_tokens    integer  L
seq_len     integer  n, the tokens of a sequence
length      integer  M, the length of every list
bound       number   the time by which the theorem has every sequence right
first_time  number   when every sequence is right first, NaN where never
at_once     truth    whether the first velocity makes every sequence right
""")
FOLDER = {
    "theorem": THEOREM,
    "gamma": THEOREM,
    "paths": PATHS,
    "repeats": REPEATS,
    "many": MANY,
}
