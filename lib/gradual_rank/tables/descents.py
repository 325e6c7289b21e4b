"""What gradient descent in floating point does beside the flow, and what a flow conserves."""

from lib.work.schemas import schema

CROSSINGS = schema("""
A product passes the threshold in a descent.
form              text     of the weights that descend: plain, factors or exponential
share_of_limit    number   the learning rate over its limit
log10_init_scale  number   log10 of the scale of the start
seed              integer  the seed of the head
time              number   steps times the learning rate
coordinate        integer  the product
sign              integer  its sign
rises             truth    whether it rises; else it falls
""")
ENDS = schema("""
The end of a descent.
form              text     of the weights that descend: plain, factors or exponential
share_of_limit    number   the learning rate over its limit
log10_init_scale  number   log10 of the scale of the start
seed              integer  the seed of the head
learning_rate     number   the rate
drift             number   how far u² − v² has moved, as a share of the start's u² + v²
""")
DROP = schema("""
A product of the example joins, or is lost to rounding.
method            text     by which it is followed
log10_init_scale  number   log10 of the scale of the start; minus infinity in the limit
coordinate        integer  the product
sign              integer  its sign; 0 where it is lost
rescaled_time     number   when, over log(1 / init_scale)
lost              truth    whether it is lost
""")
CONSERVED = schema("""
A flow of u and v themselves, followed by a general method.
seed    integer  the seed of the head
rtol    number   the relative tolerance
decay   number   the rate at which v alone decays
drift   number   how far u² − v² has moved, as a share of the start's largest u² + v²
growth  number   how many times as large u² + v² has become
""")
FOLDER = {
    "events": CROSSINGS,
    "ends": ENDS,
    "drop": DROP,
    "conserved": CONSERVED,
}
