"""The columns that several tables of this family share."""

CELL = """\
configuration  text  the name of the configuration
labels         text  of the training samples: given, or permuted
readout        text  tied, or untied"""
SEED = "seed  integer  the seed of the training"
MARGINS = """\
hinge         number  the mean hinge loss on new samples
accuracy      number  the share of new samples with a margin above zero
margin        number  the mean margin of new samples
least_margin  number  the least"""
SCORES = f"""\
{MARGINS}
attention              number  on label-relevant tokens, the mean over all queries
attention_of_relevant  number  the mean over label-relevant queries"""
