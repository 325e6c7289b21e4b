"""The tables in git, of which figures are drawn."""

from lib.decision_lists.tables import (
    certify,
    check,
    control,
    descend,
    factored,
    flow,
    scales,
    train,
)
from lib.work.schemas import schema

LAST = train.COURSE.only("task start seed step accuracy certified_all n_tokens").also(
    "first_certified_all  number  the first step of the run at which that was so, NaN for none"
)
LATE = schema("""
A flow at the theorem's scale that goes on to the bound.
task             text    the name of the task
law              text    the distribution of the sequences
rescaled_time    number  the bound times c²
slope            number  the exponent of the loss in time over the last decade
loss_times_time  number  the loss at the bound, times c² t
limit            number  what that is in the limit
""")
LEMMAS = schema("""
A bin of the logarithm of the ratio of a lemma's sides.
bin     integer  its number, 20 a decade
size    integer  its cases
min     number   the least ratio
lemma   integer  1 or 2
cases   integer  all cases of the lemma
""")
SPECTRA = schema("""
The update of W at a snapshot of a flow.
task             text     the name of the task
law              text     the distribution of the sequences
time             number   of the flow
singular_values  numbers  of W
numerical_rank   integer  the singular values above `rtol` of the largest
expected_rank    integer  the heads of lists, and under a uniform law all but one
early            truth    whether the rank is judged there
rtol             number   the share of the largest singular value
""")
WEIGHTS = schema("""
An entry of W.
query  integer  its column
key    integer  its row
row    integer  where it is drawn
place  integer  the place of the key in the query's list, 0 outside of it
W      number   the entry
""")
ATTENTION = schema("""
The attention of a token to another in a sequence.
sequence   integer  its number
query      integer  the token that attends
star       integer  the token that determines its label
key        integer  the token that is attended to
attention  number   the attention
when       text     before or after training
""")
DRAWN = {
    "alignment": train.ALIGNMENT.only(
        "task step along_P along_wrong_P least_rate accuracy cosine centred_cosine argmax_right "
        "argmax_wrong length repeats"
    ),
    "attention": ATTENTION,
    "both": descend.BOTH.only(
        "task noise law seq_len length preconditions delta epsilon n_steps earliest margin "
        "curvature_growth"
    ),
    "controls": control.CONTROLS,
    "courses": descend.COURSES.only("task noise step loss step_times_curvature"),
    "factored": factored.FACTORED.only(
        "task of seed log10_init_scale until n_heads n_large shared sigma_1 learning_rate "
        "first_rise next_rise right sigma_then fewest right_when_cut"
    ).also("numerical_rank  number  of W when every sequence is right first"),
    "feasible": check.FEASIBLE.also("closed_form  integer  the least n that is derived"),
    "joint": LAST,
    "late": LATE,
    "law": scales.LAW.without("n_tokens"),
    "lemmas": LEMMAS,
    "lengths": certify.LENGTHS,
    "paths": flow.PATHS,
    "repeats": flow.REPEATS.without("n_tokens"),
    "spectra": SPECTRA,
    "staircases": factored.STAIRCASES.only("task log10_init_scale time singular_values"),
    "starts": LAST,
    "theorem": flow.THEOREM.without("gamma").also(
        "late_limit  number  what the loss times c² t is in the limit"
    ),
    "trained": certify.TRAINED,
    "weights": WEIGHTS,
}
