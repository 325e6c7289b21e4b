"""The spectra of trainings, as the stage of spectra writes them."""

from lib.matrices import tables
from lib.work.schemas import schema

SPECTRA = schema(f"""
A matrix of a training at a step that was saved.
configuration  text  the name of the configuration
{tables.MATRIX}
{tables.CLOCKS["step"]}
{tables.PLACE}
{tables.VALUES}
""").without("layer", "head")
