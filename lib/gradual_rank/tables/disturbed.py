"""What comes back after disturbances."""

from lib.work.schemas import schema

RETURNS = schema("""
A disturbance of a flow.
seed            integer  the seed of the head
point           integer  the number of the point at which it is disturbed
kind            text     of the point: random, or rise
time            number   of the point, in the flow's own time
noise           text     balanced, independent, or everywhere
ratio_products  number   the distance of the products that is left at the end, over the first
ratio_weights   number   the same of the weights
""")
PATHS = schema("""
A look at a flow that was disturbed.
seed           integer   the seed of the head
point          integer   the number of the point at which it is disturbed
kind           text      of the point: random, or rise
time           number    of the point, in the flow's own time
noise          text      balanced, independent, or everywhere
after          number    the time since then
coordinates    integers  the products that were disturbed
p              numbers   these products
p_undisturbed  numbers   the same, of the flow that was not disturbed
""")
KICKS = schema("""
A stage that begins near the plateau before it.
seed   integer  the seed of the head
stage  integer  its number
noise  text     none, balanced, or independent
error  number   the largest error of a product at its end
""")
FOLDER = {
    "returns": RETURNS,
    "paths": PATHS,
    "kicks": KICKS,
}
