"""What gradient descent does as the theorems have it: W alone, and W and V together."""

from lib.work.schemas import schema

DESCENT = schema("""
A descent until every sequence is right.
task                  text     the name of the task
law                   text     the distribution of the sequences
n_tokens              integer  L
seq_len               integer  n, the tokens of a sequence
length                integer  m, the longest list
step_size             number   the inverse of the largest curvature on the way
n_steps               integer  until every sequence is right
curvature_growth      number   the largest curvature on the way, over that at the start
step_times_curvature  number   the step size times that largest curvature
on_a_finer_grid       number   the step size times the largest curvature between the looks
""")
ALONE = DESCENT.also("""
bound   number  the steps by which every sequence is right, twice the flow's time over the step size
margin  number  of the certificate for every sequence
""")
BOTH = DESCENT.also("""
noise          text    the kind of noise in V, beside cP, at the start
preconditions  truth   whether every condition of part 2 is met
delta          number  δ
epsilon        number  ε
earliest       number  the earliest T, in steps
margin         number  of the certificate, or the least lead where the law leaves out sequences
""")
COURSES = schema("""
A look at a descent on W and V.
step                  integer  the step
loss                  number   of the law
step_times_curvature  number   the step size times the curvature
task                  text     the name of the task
noise                 text     the kind of noise in V, beside cP, at the start
""")
FOLDER = {"alone": ALONE, "both": BOTH, "courses": COURSES, "general": BOTH}
