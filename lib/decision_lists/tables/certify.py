"""For which sequences the weights of runs are certified, and how few entries that takes."""

from lib.work.schemas import schema

TRAINED = schema("""
The last W of a run.
task           text     the name of the task
seed           integer  of the start
list_entries   integer  the entries of the lists
kept_in_gauge  integer  the fewest entries of W, less the medians of its columns, that are right
kept_raw       integer  the fewest entries of W itself that are right
""")
LENGTHS = schema("""
W at a time of a flow.
time     number   of the flow
longest  integer  the longest sequences for which W is certified
task     text     the name of the task
law      text     the distribution of the sequences
seq_len  integer  n, the tokens of a sequence in training
""")
FOLDER = {"trained": TRAINED, "lengths": LENGTHS}
