"""What the tests of `make lora` share."""

import pytest
import yaml

from tests.checkpoints.checkpoints_made import MEASURE, PLAN, SPECTRA, TEXT, taught


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """A folder with a tiny base, its fine-tune, a text and params, which is copied."""
    folder = tmp_path_factory.mktemp("kept")
    taught("gpt2", folder)
    (folder / "my.txt").write_bytes(TEXT)
    params = {"spectra": SPECTRA, "plan": PLAN, "own": MEASURE}
    (folder / "params.yaml").write_text(yaml.safe_dump({"checkpoints": params}))
    return folder
