"""What is predicted of a problem from its start alone."""

from lib.work.schemas import schema

STAGES = schema("""
A stage of Algorithm 1 in one head; its times are over log(1 / init_scale).
seed                 integer   the seed of the head
stage                integer   its number; 0 is the start
time                 number    when it begins
next_time            number    when the next begins; infinite where none does
gap                  number    the lead of the next product over the second candidate
coordinate           integer   the product that joins; -1 at the start
sign                 integer   the sign with which it joins
loss                 number    on the plateau, as a share of the loss at zero
residual             number    the largest gradient that is left on the support
n_active             integer   the products on the support
dropped              integers  the products that leave the support
n_dropped            integer   how many leave
learning_rate_limit  number    the largest rate at which descent does not diverge on the plateau
strictness_products  number    how the loss grows with the squared distance in the products
strictness_weights   number    the constant c of Assumption 4.3
g                    numbers   the gradient, negated, of every product
charge               numbers   the charge of every product when the stage begins
p                    numbers   every product on the plateau
support              truths    whether each is on the support
""")
EVENTS = schema("""
A product passes the threshold.
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of its start
time              number   when, in the flow's own time
coordinate        integer  the product
sign              integer  its sign
rises             truth    whether it rises; else it falls
""")
FORECAST = schema("""
A product of an adapter passes the threshold.
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of its start
source            text     who says so: forecast, measured, or limit (Algorithm 1)
end               number   the end of what was followed
time              number   when, in the flow's own time
coordinate        integer  the product
sign              integer  its sign
rises             truth    whether it rises; else it falls
""")
LIMIT = EVENTS.without("log10_init_scale")  # of an adapter in the limit, which knows no scale
FOLDER = {"stages": STAGES, "events": EVENTS}
