"""The tables in git, of which figures are drawn: of heads, of optimisers and under weight decay.

The tables of descents at the paper's size are in `paper_size`.
"""

from lib.gradual_rank.tables import (
    decay,
    descents,
    disturbed,
    flows,
    full,
    optimizers,
    predictions,
    signs,
)
from lib.work.schemas import schema

PROBLEM = "problem  text  the name of the problem"

ERRORS = schema("""
A flow of one head beside Algorithm 1; what is not known is NaN.
seed                   integer  the seed of the head
log10_init_scale       number   log10 of the scale of its start
log_scale              number   log(1 / init_scale)
time_error_median      number   of Algorithm 1's activation times, as a share of each
time_error_max         number   the largest
order_agreement        number   Kendall's tau of the two orders
finite_error_median    number   of the times that the finite-scale form predicts
finite_error_max       number   the largest
plateau_loss_error     number   in the middle of a plateau, the median over plateaus
plateau_product_error  number   the largest of a product there, the median over plateaus
final_product_error    number   on the last plateau that lasts
same                   number   the share of the plateaus with Algorithm 1's support
constant               number   of the charges' error, over log(1 / init_scale)
duration               number   of the first rise, in the flow's own time
ratio                  number   that over the duration from the smallest scale
wait_ratio             number   the wait before it, over that from the smallest scale
""").also(PROBLEM)
DEPARTED = schema("""
A product leaves the support.
seed        integer  the seed of the head
stage       integer  the stage of Algorithm 1
coordinate  integer  the product
pull        number   by which the gradient holds it, over the largest gradient at zero
""").also(PROBLEM)
RANKS = schema("""
A budget of time of a head.
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of its start
rescaled_time     number   the budget, over log(1 / init_scale)
measured          number   the rank in the flow
finite            number   by the finite-scale form
limit             number   by Algorithm 1
""")
FORECAST = schema("""
A budget of time of an adapter.
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of its start
time              number   the budget, in the flow's own time
forecast          number   the rank by the finite-scale form
measured          number   in the flow
limit             number   by Algorithm 1
""")
FULL_RATIOS = schema("""
A head with full matrices, from the smallest scale where nothing else is said.
seed                   integer  the seed of the head
first_rise_limit       number   the error of the first rise by the gradient at zero, at its worst
first_rise_finite      number   counted from the actual start, at the worst of the scales
first_rise_stepped     number   and with steps of this size
first_stable_rank_VO   number   of W_VO at the first rise
final_stable_rank_KQ   number   of W_KQ at the end
final_stable_rank_VO   number   of W_VO at the end
second_over_first_VO   number   the second rise of W_VO over the first
first_KQ_over_first_VO number   the first rise of W_KQ over that of W_VO
""")
FULL_WEIGHTS = schema("""
The update of a product of full matrices at a snapshot.
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of its start
matrix            text     W_KQ or W_VO
step              integer  of the snapshot
singular_values   numbers  from the largest on
rescaled_time     number   over log(1 / init_scale)
""")
PROBLEMS = schema("""
A problem.
name      text     of it
n_seeds   integer  how many heads it has
d_model   integer  the width
drawn     truth    whether the figures by scale show it
n_heads   number   the heads of a layer of a Transformer
n_layers  number   its layers
frames    text     of its heads: own, common, or standard
studied   truth    whether it is the one that is disturbed and descended
""")
HEADS = {
    "charges": flows.TIMES.without("time", "loss", "p").also(PROBLEM),
    "conserved": descents.CONSERVED,
    "departed": DEPARTED,
    "descents": descents.ENDS.also("time_error  number  the median of its activation times"),
    "drop": descents.DROP,
    "errors": ERRORS,
    "forecast": FORECAST,
    "full_ratios": FULL_RATIOS,
    "full_weights": FULL_WEIGHTS,
    "kicks": disturbed.KICKS,
    "path_ends": disturbed.PATHS.without("p", "p_undisturbed").also(
        "distance  number  the largest of a product from the flow that was not disturbed"
    ),
    "paths": disturbed.PATHS,
    "problems": PROBLEMS,
    "ranks": RANKS,
    "returns": disturbed.RETURNS,
    "rises": full.RISES,
    "stages": predictions.STAGES.without("residual", "g", "support").also(PROBLEM),
    "trajectories": flows.TIMES.without("time", "charge").also(PROBLEM),
    "twins": flows.TWINS.also(PROBLEM),
}
OPTIMIZERS = {
    "changes": signs.CHANGES,
    "conserved": optimizers.CONSERVED,
    "courses": optimizers.COURSES.without("seed", "teacher_rank", "W_KQ"),
    "descent": signs.PATHS.without("seed"),
    "diagonal": signs.DIAGONAL,
    "distances": signs.PATHS.without("p").also("""
distance  number  the largest of a product from sign flow
passed    truth   whether a product has passed zero by then
"""),
    "events": signs.EVENTS,
    "few": optimizers.FEW,
    "first_rises": signs.RISES,
    "flow": signs.PATHS.without("seed", "log10_init_scale"),
    "noisy_paths": optimizers.PATHS.without("n_samples", "noise"),
    "optimizers": optimizers.RUNS,
    "slopes": signs.SLOPES,
}
UNDECAYED = "undecayed  number  the same without decay, of `expected`"
DECAY = {
    "course": decay.COURSES,
    "full_rests": decay.FULL.without("first_rise", "expected", "to_rest"),
    "full_rises": decay.FULL.without("on_KQ", "off_KQ", "on_VO", "off_VO", "to_rest").also(
        UNDECAYED
    ),
    "heads": decay.HEADS.also(UNDECAYED),
    "joins": decay.RISES.also("without  number  when it joins without decay"),
    "plateaus": decay.STAGES,
}
