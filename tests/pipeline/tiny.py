"""The whole pipeline made small: params for every family with which every stage takes seconds, and a run on them.

Derived from the committed params.yaml, so that a new key needs a line here only where it makes work. A new family adds
a function of its section to `FAMILIES`.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from project import Stage, checkout, commit, dvc, git, params_of, set_params, stages

Section = dict[str, Any]


def tiny(params: dict[str, Section]) -> dict[str, Section]:
    """The params with every family's seeds, steps, scales and sizes made small."""
    unknown = sorted(set(params) - set(FAMILIES))
    assert not unknown, f"{unknown}: wanted how to make the params of this family small in {__file__}, got nothing"
    return {name: FAMILIES[name](copy.deepcopy(section)) for name, section in params.items()}


def vision(section: Section) -> Section:
    for name in section["datasets"]:
        vision_dataset(section[name])
    return section


def vision_dataset(data: Section) -> None:
    """Two scales, of which one is the reference, two seeds, a few steps of a transformer of two small layers."""
    reference = data["evaluate"]["reference_scale"]
    scales = sorted([reference, min(data["evaluate"]["growth_scales"])])
    runs = [f"init_scale={reference:g}"]
    replace(data, "generate", n_test=1600)
    replace(data, "train", seeds=[0, 1], init_scales=scales, batch_size=16)
    replace(data, "train", n_steps=30, warmup_steps=3, snapshot_every=15)
    replace(data["train"], "model", d_model=8, n_heads=2, d_head=4, d_mlp=8, n_layers=2)
    replace(data, "truncate", runs=runs, n_images=16, ranks=[0, 1, 8])
    replace(data, "prune", runs=runs, n_images=16, rates=[0, 0.5])
    replace(data, "evaluate", growth_scales=scales, figure_singular_values=4)
    replace(data, "plot", trajectory_scales=scales, layer=2, head=1, lines=4)


def decision_lists(section: Section) -> Section:
    """Of every group the first settings and a seed, at the smallest sizes that its use allows; few steps and cases."""
    small = {"n_tokens": 5, "seq_len": 2}
    for group in section["generate"]["groups"]:
        spectral = group["name"] in section["flow"]["spectral"]["groups"]
        descent = group["name"] in section["descend"]["both"]
        if not descent:
            group["sizes"] = [{"n_tokens": 6, "seq_len": 2}] if spectral else [small]
        group |= {key: group[key][:1] for key in ("sizes", "list_lengths", "lists", "laws", "seeds")}
        group["laws"] = group["laws"][:1]
        group["n_heads"] = group["n_heads"][: 2 if spectral else 1]
    names = {group["name"] for group in section["generate"]["groups"]}
    flow, train = section["flow"], section["train"]
    flow["law"] |= {"scales": flow["law"]["scales"][-2:], "n_compared": 5, "rtol": 1e-7}
    flow["spectral"] |= {"n_snapshots": 4, "last_time": 10}
    flow["many"] |= {"sizes": flow["many"]["sizes"][:1], "list_lengths": [2]}
    flow["theorem"] |= {"rtol": 1e-6}
    section["descend"] |= {
        "attention_alone": [f"{group}-000" for group in flow["theorem"]["groups"]][:1],
        "both": sorted(names & set(section["descend"]["both"]))[:1],
    }
    train["joint"] |= {"seeds": train["joint"]["seeds"][:2], "n_steps": 8}
    train["starts"] |= {"seeds": [0], "starts": train["starts"]["starts"][:2], "n_steps": 8}
    train["alignment"]["n_steps"] = 8
    train["controls"]["n_steps"] = 4
    train["minibatch"] |= {"n_tokens": 8, "seq_len": 3, "n_steps": 4, "certify_every": 2, "batch_size": 8}
    section["certify"] |= {"n_chunks": 2, "chunk": 20, "list_lengths": [1], "longest_sequence": 5}
    section["certify"] |= {"monte_carlo_samples": [10, 100], "monte_carlo_repeats": 2}
    section["evaluate"] |= {"paths": section["descend"]["attention_alone"], "shown_task": "joint-000"}
    section["evaluate"]["shown_sequences"] = 2
    return section


def gradual_rank(section: Section) -> Section:
    """Two seeds of two tokens a head, few stages and scales, at coarse tolerances."""
    small = {"n_samples": 8, "seq_len": 2, "d_model": 2}
    replace(section["generate"], "small", seeds=[0, 1], **small)
    replace(section["generate"], "paper", n_samples=8, seq_len=2, d_model=3)
    coarse = {"rtol": 1e-3, "atol": 1e-2, "curvature_samples": 4}
    for problem in ("small", "paper"):
        replace(section["greedy"], problem, max_stages=3, log10_init_scales=[-4], **coarse)
        scales = [-4, -8] if problem == "small" else [-4]
        replace(section["flow"], problem, log10_init_scales=scales, n_snapshots=2, n_times=5, **coarse)
    replace(section, "descend", seeds=[0], log10_init_scale=-4, variants=section["descend"]["variants"][-1:])
    replace(section["descend"], "drop", log10_init_scale=-1, learning_rate=1, flow_log10_init_scales=[-4], rtol=1e-3)
    replace(section, "full_weights", seeds=[0, 1], log10_init_scales=[-2], learning_rate=0.2, rescaled_end=20, **small)
    replace(section, "full_weights", n_snapshots=3)
    replace(section, "assumptions", seeds=[0], log10_init_scale=-4, duration=20, n_path_times=3, **coarse)
    replace(section, "assumptions", n_random=1, n_rises=1, n_kicks=1)
    replace(section, "forecast", log10_init_scales=[-4], n_changed=1, rescaled_end=10, **coarse)
    replace(section, "compare", n_budgets=3)
    return section


def low_rank_sparse(section: Section) -> Section:
    """Two seeds of few neurons and steps; each sweep at two values, two labellings."""
    replace(section, "generate", seeds=[0, 1], n_train=40, n_test=20, d_model=8, n_patterns=6, seq_len=12, n_relevant=4)
    replace(section, "train", n_neurons=16, batch_size=10, snapshot_steps=[1, 2])
    for configuration in section["train"]["configurations"]:
        configuration |= {"n_steps": 6, "seeds": [0, 1]}
    replace(section, "truncate", ranks=[0, 1, 2, 8])
    replace(section, "prune", rates=[0, 0.25, 0.5], rates_of_large=[0, 0.5], rates_of_weights=[0, 0.5])
    replace(section, "prune", n_rescale_samples=10)
    replace(section, "adapt", batch_size=10)
    section["adapt"]["adaptations"] = section["adapt"]["adaptations"][:1]
    section["adapt"]["adaptations"][0] |= {"n_steps": 4, "ranks": [1], "seeds": [0, 1]}
    small = {
        "n_train": 40,
        "n_test": 20,
        "d_model": 12,
        "n_patterns": 10,
        "seq_len": 24,
        "n_neurons": 16,
        "batch_size": 10,
    }
    replace(section["sweep"], "base", **small)
    replace(section, "sweep", seeds=[0, 1], n_neurons_of_labellings=16, fitted_loss=10)
    easy = section["evaluate"]["easy_n_relevant"]
    values = {"n_relevant": [easy // 2, easy], "n_confusion": [0, 1], "noise": [0, 0.1], "n_patterns": [8, 10]}
    values |= {"n_neurons": [8, 16], "learning_rate": [0.5, 1]}
    for sweep in section["sweep"]["sweeps"]:
        sweep |= {"values": values[sweep["varies"]], "n_seeds": 2, "n_steps": 3}
    kept = ("1|1", "1|1|1", section["evaluate"]["grouped_labels"])
    section["sweep"]["labellings"] = [one for one in section["sweep"]["labellings"] if one["labels"] in kept]
    for labelling in section["sweep"]["labellings"]:
        labelling |= {"n_seeds": 2, "n_steps": 3}
    replace(section, "evaluate", early_step=1)
    replace(section, "plot", steps=[1, 2])
    return section


def replace(params: Section, section: str, **values: Any) -> None:
    """Set those values of a section that it has already: a key that is not in params.yaml has no tiny value."""
    if section in params:
        params[section] |= {key: value for key, value in values.items() if key in params[section]}


FAMILIES: dict[str, Callable[[Section], Section]] = {
    "decision_lists": decision_lists,
    "gradual_rank": gradual_rank,
    "low_rank_sparse": low_rank_sparse,
    "vision": vision,
}


@dataclass(frozen=True)
class TinyPipeline:
    """A repository of three commits: the project, its params made tiny, and what `dvc repro` then made."""

    folder: Path
    said: str  # by `dvc repro`
    status: str  # of git, before the last commit

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages(self.folder)


@lru_cache
def tiny_pipeline(folder: Path) -> TinyPipeline:
    """Run the pipeline on tiny params, once for every folder."""
    checkout(folder)
    set_params(folder, tiny(params_of(folder)))
    commit(folder, "Tiny params")
    said = dvc("repro", at=folder)
    status = git("status", "--porcelain", "--untracked-files=all", at=folder)
    commit(folder, "What dvc repro makes of them")
    return TinyPipeline(folder, said, status)
