"""What gradient flow of a problem does; EVENTS of it are as those that are predicted."""

from lib.gradual_rank.tables.predictions import EVENTS
from lib.work.schemas import schema

TIMES = schema("""
A look at the flow of one head: curves are of one seed of a problem, plateaus of every seed.
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of its start
time              number   in the flow's own time
rescaled_time     number   over log(1 / init_scale)
loss              number   as a share of the loss at zero
p                 numbers  every product
charge            numbers  the charge of every product
""")
PLATEAUS = TIMES.without("charge").also("""
stage             integer  the stage of Algorithm 1 in whose middle it is
charge            numbers  the charge of every product
""")
TWINS = schema("""
A head among those of a common frame, in the middle of the first plateau.
seed              integer  the seed of the heads
log10_init_scale  number   log10 of the scale of their start
head              integer  its number
share             number   its share of what the first stage learns
predicted         number   the share that its start says
""")
FOLDER = {"times": TIMES, "plateaus": PLATEAUS, "events": EVENTS, "grown": EVENTS, "twins": TWINS}
