"""The measures of a published run are those of its tables in git, and are taken again from nothing
else.
"""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from lib.files.files import InputError
from tests.pipeline.project import ROOT
from tools import remeasure

DERIVED = ("growth", "equal_loss")
PUBLISHED = sorted(  # the data sets of the pipeline that are published
    path.parent.parent.name for path in (ROOT / "published").glob("*/tables/equal_loss.parquet")
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The params and what is published."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "published", tmp_path / "published")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", PUBLISHED)
def test_measures_are_made_again_from_the_tables_that_no_other_is_computed_from(project, name):
    folder, committed = Path("published") / name, ROOT / "published" / name
    for table in DERIVED:
        (folder / f"tables/{table}.parquet").unlink()
    for file in ("measures.csv", "headlines.json"):
        (folder / file).write_text("{}")
    remeasure.main(name)
    for file in ("measures.csv", "headlines.json"):
        assert (folder / file).read_text() == (committed / file).read_text()
    for table in DERIVED:
        found, wanted = (
            pd.read_parquet(one / f"tables/{table}.parquet") for one in (folder, committed)
        )
        pd.testing.assert_frame_equal(found, wanted)


def test_what_is_no_data_set_is_refused(project):
    with pytest.raises(
        InputError, match=r"wanted the section vision.absent.train.model, got .* at vision"
    ):
        remeasure.main("absent")
