"""The descents on W and V again, with the steps of V summed up apart, and draws of noise."""

from lib.work.schemas import schema

FOLLOWED = schema("""
A descent on W and V, with the steps of V summed up apart.
task            text    the name of the task
noise           text    the kind of noise in V, beside cP, at the start
followed_steps  number  until every sequence is right, infinite where never
largest_step    number  the largest of an entry of V at P
moved           number  how far an entry of V at P has moved at most
stands_still    truth   whether float64 would leave every such entry where it is
""")
DRAWS = schema("""
A draw of uniform noise in V.
task         text     the name of the task
seed         integer  of the draw
share        number   the first loss over log n
least_share  number   what that has to exceed
met          truth    whether constants are left that meet every condition
""")
FOLDER = {"followed": FOLLOWED, "draws": DRAWS}
