"""What rises second in heads with full matrices: theory and flows, as followed and as drawn.

`case` is the line of the table of cases. Times are the flow's own; those in the limit are over
log(1 / init scale).
"""

from lib.work.schemas import schema

HEADS = schema("""
A head in the limit of small starts.
case           text     the line of the table
seed           integer  the seed of the head
sigma          number   the first singular value of G, minus the slope in W_VO at zero
sigma_2        number   the second one
kappa          number   the rate of W_KQ at the optimum of rank one: the first singular value there
tau            number   the rate of the second direction of W_VO there
kappa_pair     number   the rate of W_KQ at the saddle of the second pair
limit_first    number   when the first direction of W_VO rises
limit_keys     number   when W_KQ rises
limit_values   number   when the second direction of W_VO rises, if W_KQ has not
before         integer  the directions of W_VO that rise before W_KQ
crossing       number   log10 of the scale below which W_KQ rises before the second of these
""")
RISES = schema("""
A flow of a head from one scale until W_KQ has risen.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
first             number   when the first singular value of W_VO is at the threshold
keys              number   when that of W_KQ is; infinite if it never was
values            number   when the second of W_VO is; infinite if not before W_KQ
first_said        number   the first of these, as the start says
keys_said         number   that of W_KQ, along the way to the optimum of rank one
values_said       number   that of the second of W_VO, along that way
overlap           number   of the leading pair of W_KQ, once risen, with that of its slope there
overlap_pair      number   with that at the saddle of the second pair; zero if there is none
""")
COURSES = schema("""
A moment of a flow.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
time              number   the flow's own
sigma_keys        number   the first singular value of W_KQ
sigma_values      number   that of W_VO
sigma_values_2    number   the second one
""")
FOLDER = {"heads": HEADS, "rises": RISES, "courses": COURSES}

WAITS = schema("""
A head, and by how much W_KQ waits longer behind the first direction of W_VO from a smaller start.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the smaller scale; the other is the next larger of the table
added             number   the added wait over the added log(1 / scale)
added_said        number   what the optimum of rank one says: limit_keys - limit_first
added_pair        number   what the saddle of the second pair says: 1 / kappa_pair
""")
DRAWN = {"heads": HEADS, "rises": RISES, "added_waits": WAITS, "courses": COURSES}
