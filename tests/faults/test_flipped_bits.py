"""A bit that flips in a table is refused, or it changes nothing that is read.

A table is read by the names of its columns: they stand in the one part of a Parquet file that no
checksum covers. Bits of runs, data sets and scratch are flipped where those are tested.
"""

import pandas as pd

from lib.files.files import InputError
from lib.files.tables import read_table, write_table


def test_a_flipped_bit_in_a_table_is_refused_or_changes_nothing(tmp_path):
    rows = {
        "step": [1, 2, 3],
        "loss": [0.5, 0.25, 0.125],
        "name": ["a", "b", "c"],
        "list": [[1.0], [2.0, 3.0], []],
    }
    path = tmp_path / "table.parquet"
    write_table(pd.DataFrame(rows), path)
    whole = read_table(path)
    data = path.read_bytes()
    refused = 0
    for place in range(0, 8 * len(data), 23):
        content = bytearray(data)
        content[place // 8] ^= 1 << place % 8
        path.write_bytes(content)
        try:
            found = read_table(path, list(rows))
        except InputError as error:
            assert str(error).startswith(f"{path}: wanted ")
            refused += 1
        else:
            pd.testing.assert_frame_equal(found, whole)
    assert refused > 0.5 * 8 * len(data) / 23
