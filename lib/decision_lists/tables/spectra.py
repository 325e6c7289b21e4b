"""The spectra of the flows whose snapshots are kept, as the stage of spectra writes them."""

from lib.matrices import tables
from lib.work.schemas import schema

SPECTRA = schema(f"""
A matrix of a flow at a snapshot, or its update.
law   text  the distribution of the sequences
task  text  the name of the task
{tables.MATRIX}
{tables.CLOCKS["time"]}
{tables.VALUES}
""").without("matrix")
