"""What flows under cross-entropy do, with weight decay and without: as followed, and in git.

`case` is the line of the table of cases: a linear classifier, or a diagonal head. `share` is the
decay, as a share of the largest with which anything rises; 0 is the control.
"""

from lib.work.schemas import schema

STAGES = schema("""
A stage of Algorithm 1; its times are over log(1 / init_scale).
case                 text     the line of the table
seed                 integer  the seed of the network
share                number   the decay
stage                integer  its number; 0 is the start
time                 number   when it begins
next_time            number   when the next begins; infinite where none does
strictness_products  number   how the loss grows with the squared distance in the products
g                    numbers  the gradient of the loss alone, negated, of every product
p                    numbers  every product on the plateau
""")
PLATEAUS = schema("""
The flow in the middle of a plateau of Algorithm 1.
case              text     the line of the table
seed              integer  the seed of the network
share             number   the decay
log10_init_scale  number   log10 of the scale of the start
stage             integer  the stage of Algorithm 1
p                 numbers  every product
""")
ENDS = schema("""
A flow at its end T, which is well after the last stage of Algorithm 1 with decay, and later.
case              text     the line of the table
seed              integer  the seed of the network
share             number   the decay
log10_init_scale  number   log10 of the scale of the start
error             number   of a product from Algorithm 1's last plateau with decay, the largest
size              number   the sum of the sizes of the products
size_later        number   the same at ten times T
size_last         number   the same at a hundred times T
""")
COURSES = schema("""
A look at a flow from the smallest scale.
case              text     the line of the table
seed              integer  the seed of the network
share             number   the decay
log10_init_scale  number   log10 of the scale of the start
rescaled_time     number   over log(1 / init_scale)
p                 numbers  every product
""")
FOLDER = {"stages": STAGES, "plateaus": PLATEAUS, "ends": ENDS, "courses": COURSES}
SUPPORTS = schema("""
The plateaus of a flow with decay at whose middle it has the support that is expected, as a share.
case                  text     the line of the table
seed                  integer  the seed of the network
log10_init_scale      number   log10 of the scale of the start
supports              number   that of Algorithm 1
supports_by_gradient  number   of as many products, by the size of their gradient at zero
supports_at_random    number   of as many of those that Algorithm 1 learns, in a random order
""")
DRAWN = {"stages": STAGES, "supports": SUPPORTS, "ends": ENDS, "courses": COURSES}
