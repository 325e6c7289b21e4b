"""What a plan of the example writes, measured on a text: plans, modules, losses, prunings."""

from lib.work.schemas import schema

RUN = "run  text  the name of the fine-tune, with its seed"
PLANS = schema(f"""
A plan: a rank for every module at a budget.
budget         integer   the uniform rank that costs as much
rule           text      by which the ranks are given
shuffle        integer   the number of the shuffle of the ranks, 0 for the ranks themselves
parameters     integer   of an adapter of these ranks
loss           number    of the tuned model with its updates cut to these ranks
share_lost     number    the share of the gain of the linear modules that is lost
share_noise    number    the noise of that share, two standard errors
ranks          integers  of every module
choosing_loss  number    of the base with the adapter, on the samples that choose a rule
loss_on_base   number    of the base with the adapter, on the measured samples
above_uniform  number    how far that is above the uniform one's
noise          number    of that difference, two standard errors
chosen         truth     whether the rule is chosen at this budget
kept           number    the share of the whole gain that the adapter keeps
kept_noise     number    the noise of that share, two standard errors
{RUN}
""")
MODULES = schema(f"""
A module of a fine-tune whose update an adapter can carry.
module      text     its name
tensor      text     the name of its weight
rows        integer  of its weight
cols        integer  of its weight
norm        number   the Frobenius norm of the update
base_norm   number   the Frobenius norm of the weight at the base
limit       integer  the rank up to which the update is known
by_columns  truth    whether the weight is stored transposed
earned      number   the part of the gain that is attributed to it
{RUN}
""")
LOSSES = schema(f"""
The losses of a fine-tune.
loss_tuned           number   of the tuned model
loss_without_linear  number   of the tuned model with the linear modules of the base
gain                 number   the difference of the two
attributed           number   the sum of what all modules earned
drop                 number   what it should be: the drop on the samples that attribute
loss_base            number   of the base
loss_ceiling         number   of the base with the whole update of the linear modules, uncut
ceiling              number   the share of the whole gain that this keeps
ceiling_noise        number   the noise of that share, two standard errors
n_labels_attributing integer  the number of labels on which losses are attributed
n_labels_choosing    integer  the number of labels that choose a rule
n_labels_measured    integer  the number of labels that are measured
n_samples            integer  the number of all samples
n_samples_measured   integer  the number of those that are measured
{RUN}
""")
PRUNING = schema(f"""
A removal of entries of a fine-tune.
what  text    the entries, of weights or updates, and the order in which they go
rate  number  the share of them that goes
loss  number  of what is left
{RUN}
""")
PLANNED = {"plans": PLANS, "modules": MODULES, "losses": LOSSES, "pruning": PRUNING}
