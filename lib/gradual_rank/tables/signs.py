"""What sign descent, Adam and gradient descent do with diagonal heads, beside their flows."""

from lib.work.schemas import schema

CHANGES = schema("""
Sign descent, up to where a gradient first changes its sign.
seed                  integer  the seed of the head
log10_init_scale      number   log10 of the scale of the start
predicted             number   when the ray says so
predicted_coordinate  integer  of which product
measured              number   when it does
measured_coordinate   integer  of which product
ray_error             number   how far the descent is from the ray until then
""")
EVENTS = schema("""
An event of sign flow.
seed        integer  the seed of the head
time        number   when
coordinate  integer  the product
kind        text     what it does
""")
PATHS = schema("""
A look at the products of a head.
method            text     flow, roots or weights
log10_init_scale  number   log10 of the scale of the start; minus infinity from zero
seed              integer  the seed of the head
time              number   the sum of the rates
p                 numbers  every product
""")
SLOPES = schema("""
Early steps of Adam.
seed      integer  the seed of the head
beta_2    number   the memory of its squares
slope_KQ  number   how fast the roots of the products of W_KQ grow, in the median
slope_VO  number   the same of W_VO
""")
DIAGONAL = schema("""
A descent, or a flow, of a diagonal head.
optimizer         text     its name
log10_init_scale  number   log10 of the scale of the start
seed              integer  the seed of the head
rank_early        integer  the products that are learned where a tenth of the loss is gone
order             number   Kendall's tau of size and earliness of the products
order_VO          number   the same of W_VO
lengths_kept      number   the share of |u| − |v| that is kept
squares_kept      number   the share of u² − v² that is kept
""")
RISES = schema("""
A product is learned first.
optimizer         text     the optimiser
log10_init_scale  number   log10 of the scale of the start
seed              integer  the seed of the head
first_rise        number   when, in the sum of the rates; infinite where none is
""")
FOLDER = {
    "changes": CHANGES,
    "events": EVENTS,
    "paths": PATHS,
    "slopes": SLOPES,
    "diagonal": DIAGONAL,
    "rises": RISES,
}
