"""The model card of an adapter that is cut from a fine-tune."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib.checkpoints.folders import is_expert
from lib.checkpoints.linear_modules import Rest


def card(
    row: Mapping[Any, Any],
    base: str,
    left: Sequence[str],
    rest: Rest | None,
    *,
    padded: int,
    whole: bool,
    of: str,
    share: float | None,
    opened: str,
    alone: Sequence[str] = (),
    alone_share: float | None = None,
    refused: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The model card: what the adapter is and is cut `of`, what it carries, what was measured."""
    article = "an" if of == "adapter" else "a"
    said = (
        "No text was given, and nothing was measured: how much of the gain it keeps is not known."
    )
    if not np.isnan(row["loss"]):
        said = (
            f"On samples that chose nothing, {base} with this adapter has a loss of "
            f"{row['loss_on_base']:.4g}; less that of one uniform rank of its size, it is "
            f"{row['above_uniform']:+.2g}, with a noise of {row['noise']:.1g}. "
            f"It keeps {row['kept']:.1%} (± {row['kept_noise']:.1%}) of the whole gain. "
            f"Cutting the linear layers so loses {row['share_lost']:.1%} of what their updates "
            "gained, all else as tuned."
        )
        if "accuracy" in row:
            said += f" Its accuracy is {row['accuracy']:.1%} (± {row['accuracy_noise']:.1%})."
    experts = any(map(is_expert, left))
    carries = f" It carries no {'expert, ' if experts else ''}embedding, head, norm or bias."
    missing = f" Tuned too and not carried: {', '.join(left)}." if left else ""
    if rest:
        what = "else was tuned" if whole else f"{base} lacks"
        carries = (
            f" It carries whole what {what}: {rest.n_parameters} parameters of "
            f"{len(rest.modules)} modules and of biases."
        )
    elif left:
        missing += " `modules_to_save` would train them."
    if experts:
        hold = "how much of the gain they hold was not measured"
        if share is not None:
            hold = f"with the base's, all else as tuned, {share:.1%} of the whole gain is lost"
        missing += f" The experts are held together and are no linear layers: {hold}."
    if alone and alone_share is not None:
        held = f"which hold {alone_share:.1%} of the whole gain"
        missing += f" The {of} alone has {', '.join(alone)}, {held}."
    for one in refused:
        lost = "" if one["share"] is None else f", which holds {one['share']:.1%} of the whole gain"
        missing += f" It does not adapt `{one['modules']}`{lost}: {one['why']}."
    return (
        f"# LoRA adapter cut from {article} {of} of {base}\n\n"
        f"Rule: {row['rule']}; {row['parameters']} parameters, those of a uniform rank "
        f"{row['budget']}{f', padded to rank {padded}' if padded else ''}. "
        f"{said}{carries}{missing}\n\n"
        f"With `base_model = {opened}`, a class of transformers, "
        "`PeftModel.from_pretrained(base_model, folder)` adds it; `plan.json` goes into "
        "`LoraConfig(**...)`.\n"
    )
