"""What optimisers do with full matrices."""

from lib.work.schemas import schema

RUNS = schema("""
A training on many tokens.
optimizer          text     its name
teacher_rank       integer  the rank of the teacher
log10_init_scale   number   log10 of the scale of the start
seed               integer  the seed of the head
growth             number   per step and learning rate, at zero
square_change_KQ   number   how far the squares of P and Q have moved apart, for W_KQ
square_change_VO   number   the same for W_VO
root_change_KQ     number   how far their roots have moved apart, for W_KQ
root_change_VO     number   the same for W_VO
first_rise         number   when the first direction of W_VO rises, in the sum of the rates
order              number   Kendall's tau of size and earliness of the directions
separate           number   how far apart they are done
slope_least        number   the least growth of a singular value of W_V and W_O
slope_most         number   the largest
stable_rank_half   number   of W_VO where half of the loss is left
stable_rank_end    number   of W_VO at the end
""")
COURSES = schema("""
A look at a training on many tokens.
optimizer         text     its name
teacher_rank      integer  the rank of the teacher
log10_init_scale  number   log10 of the scale of the start
seed              integer  the seed of the head
step              integer  the step
time              number   the sum of the rates
W_KQ              numbers  its largest singular values
W_VO              numbers  its singular values
""")
FEW = schema("""
A training on few tokens, or on noisy targets.
seed               integer  the seed of the head
loss               number   at the end, as a share of the first
best_test_loss     number   the least on the path
last_test_loss     number   at the end
effective_rank_KQ  number   of W_KQ at the end
optimizer          text     its name
n_samples          integer  the sequences
noise              number   of the targets
""")
PATHS = schema("""
A look at a training on few tokens, or on noisy targets.
seed       integer  the seed of the head
step       integer  the step
time       number   the sum of the rates
loss       number   as a share of the first
test_loss  number   on other tokens, without noise
optimizer  text     its name
n_samples  integer  the sequences
noise      number   of the targets
""")
CONSERVED = schema("""
A training from uneven starts of P and Q.
optimizer         text     its name
seed              integer  the seed of the head
reached           truth    whether little of the loss is left
square_change_KQ  number   how far the squares of P and Q have moved apart, for W_KQ
square_change_VO  number   the same for W_VO
root_change_KQ    number   how far their roots have moved apart, for W_KQ
root_change_VO    number   the same for W_VO
""")
FOLDER = {
    "runs": RUNS,
    "courses": COURSES,
    "few": FEW,
    "paths": PATHS,
    "conserved": CONSERVED,
}
