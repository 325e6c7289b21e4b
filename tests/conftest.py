"""Every test computes with one thread, and every call into lib is checked against its types and shapes."""

import torch
from hypothesis import Phase, settings
from jaxtyping import install_import_hook
from threadpoolctl import threadpool_limits

install_import_hook("lib", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
torch.set_num_threads(1)
threadpool_limits(1)
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, phases=[Phase.generate, Phase.shrink]
)
settings.load_profile("repeatable")
