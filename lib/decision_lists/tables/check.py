"""Random cases of both lemmas, and the least n for which part 2 can be met."""

from lib.work.schemas import schema

LEMMA = schema("""
A random case of a lemma.
derivative  number  the side that is bounded
bound       number  the bound from below
""")
FEASIBLE = schema("""
A length of lists.
length   integer  m
least_n  integer  the least n at which some ε meets the conditions
""")
FOLDER = {"lemma_1": LEMMA, "lemma_2": LEMMA, "feasible": FEASIBLE}
