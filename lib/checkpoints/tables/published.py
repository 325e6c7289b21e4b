"""The tables of published runs that the stage draws."""

from lib.work.schemas import schema

RULES = schema("""
A plan for a fine-tune of a base of an architecture.
kind           text     whether the fine-tune is gentle or large, or from scratch
budget         integer  the uniform rank that costs as much
rule           text     by which the ranks are given
shuffle        integer  the number of the shuffle of the ranks, 0 for the ranks themselves
parameters     integer  of an adapter of these ranks
share_lost     number   the share of the gain of the linear modules that is lost
choosing_loss  number   of the base with the adapter, on the samples that choose a rule
loss_on_base   number   of the base with the adapter, on the measured samples
above_uniform  number   how far that is above the uniform one's
noise          number   of that difference, two standard errors
chosen         truth    whether the rule is chosen at this budget
architecture   text     the name of the architecture
base           integer  the number of the base
""")
FITTED = schema("""
An adapter that is trained, and one of its ranks that is cut from the fine-tune.
budget         integer  the uniform rank that costs as much
rule           text     by which the ranks are given
parameters     integer  of both adapters
cut            number   the loss of the one that is cut
trained        number   the loss of the one that is trained
learning_rate  number   at which it is trained
loss_base      number   of the base
loss_tuned     number   of the fine-tune
architecture   text     the name of the architecture
base           integer  the number of the base
""")
TRAINED = schema("""
A training of an adapter.
model          text     the kind of the model
kind           text     whether the fine-tune is gentle or large
rule           text     by which the ranks are given
fine_tune      integer  the seed of the fine-tune
seed           integer  the seed of the training
n_steps        integer  the number of its steps
learning_rate  number   at which it is trained
part           text     whether it chooses the rate or is judged
parameters     integer  of the adapter
loss           number   the last one, on new text
""")
RUNTIMES = schema("""
An adapter in two programs.
adapter     text     its name
ranks       text     whether they are equal or mixed
parameters  integer  of the adapter
peft        number   its loss in peft
llama_cpp   number   its loss in llama.cpp
""")
PUBLISHED = {"rules": RULES, "fitted": FITTED, "trained": TRAINED, "runtimes": RUNTIMES}
