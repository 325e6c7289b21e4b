"""What heads under weight decay do. A decay is a share of the largest with which anything rises."""

from lib.work.schemas import schema

STAGES = schema("""
A stage of Algorithm 1 with decay; its times are over log(1 / init_scale).
stage      integer  its number; 0 is the start
time       number   when it begins
n_dropped  integer  the products that leave
p          numbers  every product on the plateau
seed       integer  the seed of the head
share      number   the decay
""")
RISES = schema("""
A product with a sign; times are over log(1 / init_scale), infinite where it never joins.
coordinate        integer  the product
sign              integer  the sign
measured          number   when it rises in the flow
predicted         number   when it joins in Algorithm 1 with decay
height            number   its largest plateau there
seed              integer  the seed of the head
share             number   the decay
log10_init_scale  number   log10 of the scale of the start
""")
HEADS = schema("""
A flow of a diagonal head to its rest.
first_rise        number   when the first product rises, in the flow's own time
expected          number   when growth at zero says so
rank              integer  the products at rest that are above the threshold
rest_error        number   the distance from rest, as a share of the decay
ridge_error       number   the distance from rest under decay of the products themselves
product_error     number   the largest error of Algorithm 1's last plateau
seed              integer  the seed of the head
share             number   the decay
log10_init_scale  number   log10 of the scale of the start
""")
COURSES = schema("""
A look at a flow.
rescaled_time     number   over log(1 / init_scale)
p                 numbers  every product
seed              integer  the seed of the head
share             number   the decay
log10_init_scale  number   log10 of the scale of the start
""")
FULL = schema("""
A descent of full matrices, to where what can rise has risen, or to rest.
seed              integer  the seed of the head
share             number   the decay
log10_init_scale  number   log10 of the scale of the start
to_rest           truth    whether it goes to rest
first_rise        number   when the first direction of W_VO rises, in steps times the rate
expected          number   when growth at zero says so
loss              number   at the end, as a share of the first
rank_KQ           integer  the directions of W_KQ above the threshold
on_KQ             number   how far what has risen is from rest, as a share of the decay
off_KQ            number   how far the rest is
rank_VO           integer  the same of W_VO
on_VO             number   the same of W_VO
off_VO            number   the same of W_VO
""")
FOLDER = {
    "stages": STAGES,
    "rises": RISES,
    "heads": HEADS,
    "courses": COURSES,
    "full": FULL,
}
