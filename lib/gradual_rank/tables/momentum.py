"""When heads of optimisers with a memory rise first: as followed, and as drawn from git.

`case` is the line of the table of cases: a rule, its rates, its memories and its ε.
"""

from lib.work.schemas import schema

RISES = schema("""
A descent of a head from one scale until its first direction has risen.
case              text     the line of the table
rule              text     sgd, nesterov or adam
learning_rate     number   after any warm-up
beta              number   the momentum, or beta_1 of Adam
beta_2            number   of Adam
eps               number   of Adam
warmup            integer  steps over which the rate rises from zero
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
sigma             number   the first singular value of G, minus the slope in W_VO at zero
sigma_2           number   the second one
joint             number   the square of w along the first one, before the start is scaled
rise              number   the step at which W_VO is at the threshold; infinite if it never is
growth            number   of log |w| a step along the first direction, in the middle third
growth_2          number   of it along the second direction
second            number   the second singular value of W_VO over the first at the rise
""")
COURSES = schema("""
A moment of a descent of the first seed.
case              text     the line of the table
seed              integer  the seed of the head
log10_init_scale  number   log10 of the scale of the start
step              integer  the number of steps
value             number   the first singular value of W_VO
""")
FOLDER = {"rises": RISES, "courses": COURSES}

WAITS = RISES.also("""
forecast      number  the step of the rise that the start alone says; not of Adam
added         number  steps by which the rise is later than from the second smallest scale
added_law     number  those that the root says
added_memory  number  those that one number under Adam says
efolds        number  by how much log(1 / scale) is larger than at the second smallest scale
""")
DRAWN_COURSES = COURSES.also("""
expected  number  the value that the start alone says
""")
ROOTS = schema("""
A point of a line that the root gives, to be drawn.
seed   integer  the seed of the head by momentum; -1 for Adam, whose line is that of every head
place  number   the momentum beta, or the strength of Adam's step, learning rate * sigma / epsilon
wait   number   the wait over that of plain descent, or Adam's steps for a factor of ten
""")
DRAWN = {"waits": WAITS, "courses": DRAWN_COURSES, "roots": ROOTS}
