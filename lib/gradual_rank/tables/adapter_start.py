"""When adapters learn their directions. Times are in the flow's own unit: steps times A's rate."""

from lib.work.schemas import schema

LEARNED = schema("""
A direction of an adapter that begins at B = 0, or, in controls, elsewhere.
case              text     of the table of adapters
seed              integer  of the draw
log10_init_scale  number   log10 of what the entries of A at the start are, times the root of d
rank              integer  of the adapter
ratio             number   the learning rate of B over that of A
pace              number   κ, the scaling times the root of that ratio
direction         integer  its place among the singular values of the first gradient, from 0
sigma             number   that singular value
a_squared         number   the squared length of A v at the start
counted           number   what the directions before it leave of that
measured          number   when half of its target is learned
forecast          number   the same by the start alone
alone             number   by the start alone, without the other directions
small             number   the same, as if the update changed no gradient
equal             number   alone, as if every A v were equally long
shuffled          number   the forecast with the singular value of the direction before it
""")
COURSES = schema("""
A look at a direction in the flow of the first seed.
case              text     of the table of adapters
log10_init_scale  number   log10 of the scale of A
rank              integer  of the adapter
ratio             number   the learning rate of B over that of A
direction         integer  its place among the singular values of the first gradient
target            number   where it ends alone
time              number   of the flow
learned           number   of the direction, by the update of W
expected          number   when the forecast has learned as much; infinite beyond the target
""")
ORDERS = schema("""
An adapter whose directions have nearly one σ, with Kendall's tau of its order and of forecasts.
seed              integer  of the draw
log10_init_scale  number   log10 of the scale of A
rank              integer  of the adapter
order             number   with the forecast's order
order_alone       number   with that of the directions alone
order_sigma       number   with that of decreasing σ
""")
FOLDER = {"learned": LEARNED, "courses": COURSES}
DRAWN = {
    "learned": LEARNED,
    "course": COURSES.only("direction target time learned expected"),
    "orders": ORDERS,
}
