"""What a plan writes: plans, modules, losses, least budgets, prunings.

What is measured on a text alone, on the samples of a classifier, or of what only some models have,
a table may lack.
"""

from lib.work.schemas import schema

RUN = "run  text  the name of the fine-tune, with its seed"
PLANS = schema(f"""
A plan: a rank for every module at a budget.
budget          integer   the uniform rank that costs as much
rule            text      by which the ranks are given
shuffle         integer   the number of the shuffle of the ranks, 0 for the ranks themselves
parameters      integer   of an adapter of these ranks
loss            number    of the tuned model with its updates cut to these ranks
share_lost      number    the share of the gain of the linear modules that is lost
share_noise     number?   the noise of that share, two standard errors
ranks           integers  of every module
choosing_loss   number?   of the base with the adapter, on the samples that choose a rule
loss_on_base    number?   of the base with the adapter, on the measured samples
above_uniform   number?   how far that is above the uniform one's
noise           number?   of that difference, two standard errors
chosen          truth?    whether the rule is chosen at this budget
kept            number?   the share of the whole gain that the adapter keeps
kept_noise      number?   the noise of that share, two standard errors
accuracy        number?   of the base with the adapter, a classifier
accuracy_noise  number?   the noise of that, two standard errors
{RUN}
""")
ON_BASE = PLANS.only("choosing_loss loss_on_base above_uniform noise chosen kept kept_noise")
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
earned      number   the part of the gain that is attributed to it; NaN without a text
{RUN}
""")
LOSSES = schema(f"""
The losses of a fine-tune; without a text there is only a gain that is NaN.
loss_tuned              number?   of the tuned model
loss_without_linear     number?   of the tuned model with the linear modules of the base
gain                    number    the difference of the two
attributed              number?   the sum of what all modules earned
drop                    number?   what it should be: the drop on the samples that attribute
loss_base               number?   of the base
loss_ceiling            number?   of the base with the whole update of the linear modules, uncut
ceiling                 number?   the share of the whole gain that this keeps
ceiling_noise           number?   the noise of that share, two standard errors
accuracy_tuned          number?   of a classifier: of the tuned model
accuracy_noise_tuned    number?   the noise of it, two standard errors
accuracy_base           number?   of the base
accuracy_noise_base     number?   the noise of it
accuracy_ceiling        number?   of the base with the whole update
accuracy_noise_ceiling  number?   the noise of it
loss_without_experts    number?   with the base's experts, where a module holds several
left                    texts?    the modules that no plan has, those of all layers under one name
losses_left             numbers?  with the base's in place of each
alone                   texts?    what the tuned model alone has
loss_without_alone      number?   without it
n_labels_attributing    integer?  the number of labels on which losses are attributed
n_labels_choosing       integer?  the number of labels that choose a rule
n_labels_measured       integer?  the number of labels that are measured
n_samples               integer?  the number of all samples
n_samples_measured      integer?  the number of those that are measured
{RUN}
""")
BUDGETS = schema(f"""
A budget that the search of a rule's least one tried; none without a text.
rule        text     by which the ranks are given
parameters  integer  of an adapter of these ranks
share_lost  number   the share of the gain of the linear modules that is lost
least       truth    whether it is the least budget that loses at most the share looked for
{RUN}
""")
PRUNING = schema(f"""
A removal of entries of a fine-tune; none without a text.
what  text    the entries, of weights or updates, and the order in which they go
rate  number  the share of them that goes
loss  number  of what is left
{RUN}
""")
FOLDER = {
    "plans": PLANS,
    "modules": MODULES,
    "losses": LOSSES,
    "budgets": BUDGETS,
    "pruning": PRUNING,
}
ADAPTED = {"plans": PLANS, "modules": MODULES, "losses": LOSSES}  # what adapters are made of
OF_ALL = LOSSES.without(
    "accuracy_tuned",
    "accuracy_noise_tuned",
    "accuracy_base",
    "accuracy_noise_base",
    "accuracy_ceiling",
    "accuracy_noise_ceiling",
    "loss_without_experts",
    "left",
    "losses_left",
    "alone",
    "loss_without_alone",
)
EXAMPLE = {
    "plans": PLANS.without("accuracy", "accuracy_noise").whole(),
    "modules": MODULES,
    "losses": OF_ALL.whole(),
    "pruning": PRUNING,
}
