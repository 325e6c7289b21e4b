"""What the trainings of sweeps come to, and how many samples they need."""

from lib.low_rank_sparse.tables.scores import SCORES
from lib.work.schemas import schema

OF_MATRIX = """\
{0}_energy           number?   of its update: the share of the squares in the k leading directions
{0}_energy_2         number?   in the two leading ones
{0}_gap              number?   its singular value k + 1 over the k-th
{0}_gap_2            number?   its third over its second
{0}_next             number?   its singular value k + 1
{0}_singular_values  numbers?  from the largest on"""
OF_MATRICES = "\n".join(OF_MATRIX.format(matrix) for matrix in ("W_Q", "W_K", "W_V", "W_O"))
TRAININGS = schema(f"""
A training of a sweep with k label-relevant patterns; what no sweep looks at, the table lacks.
sweep            text     the name of the sweep
varies           text     the parameter that varies
value            number   the value of it, or k where labels vary
seed             integer  the seed of the training
n_train          integer  the training samples
n_test           integer  the new samples
d_model          integer  the width
n_patterns       integer  all patterns
seq_len          integer  the tokens of a sample
n_relevant       integer  the label-relevant ones of them
n_confusion      integer  the confusion tokens
noise            number   of the tokens
init_scale       number   of W_O at the start
value_error      number   of W_V at the start
query_key_error  number   of W_Q and W_K at the start
batch_size       integer  the samples of a batch
learning_rate    number   the step size
labels           text     the label-relevant patterns of each class
permuted         truth    whether the labels of the training samples are
n_outputs        integer  the outputs of the model
readout          text     tied, or untied
n_neurons        integer  the neurons
n_steps          integer  the largest number of steps
fitted_step      integer  the first step with a loss below that of a fit, -1 where there is none
{SCORES}
hinge_at_rank_2             number?  the hinge loss where all updates are cut to rank 2
hinge_at_rank_below         number?  to rank k - 1
hinge_at_rank_k             number?  to rank k
hinge_in_random_directions  number?  with all updates in k random directions
{OF_MATRICES}
small_share                 number  the share of small neurons
large_over_small            number  the mean norm of the large ones over that of the small
""")
SWEPT = TRAININGS.whole()
SAMPLES = schema("""
A number of label-relevant tokens.
sweep       text     the name of the sweep
n_relevant  integer  the label-relevant tokens
seq_len     integer  all tokens
seed        integer  the seed of the trainings
n_needed    number   the training samples that are needed, NaN where the most do not suffice
""")
