"""The spectra of the flows whose snapshots are kept, as the stage of spectra writes them."""

from lib.work.schemas import schema

SPECTRA = schema("""
A matrix of a flow at a snapshot, or its update.
law              text     the distribution of the sequences
task             text     the name of the task
of               text     initial, update, or gaussian
time             number   of the flow
singular_values  numbers  from the largest on
""")
