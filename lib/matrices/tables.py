"""The columns of the table of spectra that the spectral stage writes for every family.

It begins with what tells a family's runs apart; then come `MATRIX`, the clock of the runs, `PLACE`
and `VALUES`, of which a family that reads it makes its schema.
"""

from collections.abc import Mapping

MATRIX = """\
matrix  text  the name of the matrix or product
of      text  whether it is initial, an update, or a Gaussian one of the update's norm"""
CLOCKS = {
    "step": "step  integer  the number of the step",
    "time": "time  number  of the flow",
}
PLACE = """\
seed   integer  the seed of the run; 0 where it has none
layer  integer  the number of the layer, from 1 on; 0 where there are none
head   integer  the number of the head, from 1 on; 0 where there are none"""
VALUES = "singular_values  numbers  from the largest on"
KINDS = {bool: "truth", int: "number", float: "number"}  # of what tells runs apart, or a text


def spectra_of(cell: Mapping[str, object], clock: str) -> str:
    """What a row is and its columns, a line each, for runs that are told apart by such a cell."""
    own = [f"{name} {KINDS.get(type(value), 'text')} of the run" for name, value in cell.items()]
    lines = ["A matrix of a run at a snapshot.", *own, MATRIX, CLOCKS[clock], PLACE, VALUES]
    return "\n".join(lines)
