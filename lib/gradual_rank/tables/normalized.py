"""What heads do whose queries and keys are normalised, beside plain ones: as followed, and in git.

`case` is the line of the table of cases: how attention is made, on which labels.
"""

from lib.work.schemas import schema

HEADS = schema("""
A flow of a head from one scale; times are the flow's own, infinite where it comes to nothing.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
turn              number   when W_KQ has moved by half of the norm that it had at the start
rise              number   when the first singular value of W_VO is at what counts as risen
angle             number   by which W_K has turned when that is at its small value, in degrees
drift             number   the larger relative change of |W_K| and |W_Q| until the turn
stable_rank       number   of the update of W_KQ at the turn
rank_at_rise      number   of it when W_VO has risen
rank_at_start     number   the stable rank of W_KQ itself at the start
""")
LIMITS = schema("""
The flow of a head in the limit of small weights, in which no scale occurs.
case          text     the line of the table
seed          integer  the seed of the head
turn          number   when W_KQ has moved by half of its norm; infinite for plain attention
growth        number   the rate at which W_VO grows under the attention that was learned by then
start_growth  number   and under the attention at the start
""")
COURSES = schema("""
A moment of a flow of the first seed.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
time              number   the flow's own
turned            number   how far W_KQ is from its start, over the norm that it had there
sigma             number   the first singular value of W_VO
stable_rank       number   of the update of W_KQ
""")
FOLDER = {"heads": HEADS, "limits": LIMITS, "courses": COURSES}
