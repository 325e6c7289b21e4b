"""What is kept of vision transformers whose attention starts small, trained by gradient descent."""

from lib.work.schemas import schema

FOLLOWED = schema("""
A state of a training that is followed until keys have turned and values have risen.
attention   text     plain, or qk_norm where queries and keys are normalised
labels      text     true or permuted
steps       text     whole, or halved where no step is longer than half of the others'
init_scale  number   the factor of W_Q, W_K, W_V and W_O at the start
seed        integer  the seed of weights, images and permuted labels
step        integer  the number of steps that were made
time        number   the sum of their lengths
loss        number   the training loss
keys        number   the largest move of W_K W_Qᵀ over its norm at the start, of all heads
values      number   the largest norm of the update of W_V W_Oᵀ, of all heads
drift       number   the largest change of |W_K| or |W_Q| over its value at the start, of all heads
rate        number   the largest singular value of minus the gradient by W_V W_Oᵀ, of all heads
""")
OF_DESCENT = {"followed": FOLLOWED}
