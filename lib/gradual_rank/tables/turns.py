"""What normalised heads do after their turn, with gains, pre-norm and decay: followed, and in git.

`case` is the line of the table of cases: how attention is made, and what decays.
"""

from lib.work.schemas import schema

HEADS = schema("""
A flow of a head from one scale; times are the flow's own, infinite where it comes to nothing.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
turn              number   when W_KQ, without its decay, has moved by half of its first norm
rise              number   when the first singular value of W_VO is at what counts as risen
gain_moved        number   when the gain has moved by the share of its start that counts
rank_at_turn      number   the stable rank of the update of W_KQ at the turn
rank_at_end       number?  and at the end
left              number?  how far W_KQ is from its end as values begin to rise, over that at first
""")
LIMITS = schema("""
What theory says of a head; infinite where it says nothing.
case            text     the line of the table
seed            integer  the seed of the head
sigma           number   the rate at which W_VO grows under uniform attention, σ₁(G)
sigma_2         number   the second singular value of that G, the rate of the second direction
growth          number   that under the attention of the limit in a stretch, less the decay
decay           number   the weight decay of W_V and W_O
turn            number   when W_KQ turns under its decay, from the limit flow without one
turn_undecayed  number   when it turns in the limit flow without decay
""")
DIRECTIONS = schema("""
A direction of the update of a product, as the flow ends; W_KQ is in units of its first norm.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
matrix            text     the product
direction         integer  by size at the end, from 1
last              number   the singular value at the end
begun             number   when it first had a tenth of that
ended             number   and nine tenths
""")
COURSES = schema("""
A moment of a flow of the first seed: singular values of both updates; W_KQ over its first norm.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
time              number   the flow's own
W_KQ_1            number   the first of W_KQ
W_KQ_2            number   the second
W_KQ_3            number?  the third, where there is one
W_VO_1            number   the first of W_VO
W_VO_2            number   the second
W_VO_3            number?  the third, where there is one
""")
FOLDER = {"heads": HEADS, "limits": LIMITS, "directions": DIRECTIONS, "courses": COURSES}

LAGS = schema("""
A head from one scale, and by how much the second direction of the update of a product is later.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
matrix            text     the product
lag               number   when the second direction has begun, less when the first has
""")
LAWS = schema("""
A number of a head over what a law says of it: one where the law holds.
law    text     the law, by the measure and case in which it is judged
seed   integer  the seed of the head
own    number   the number over what the law says
other  number   and over what its null says
""")
DRAWN = {"heads": HEADS, "limits": LIMITS, "courses": COURSES, "lags": LAGS, "laws": LAWS}
