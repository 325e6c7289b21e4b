r"""Train beyond the theorems: W and V from many starts, V under uniform attention, minibatches.

Gradient descent here takes steps of `step_per_token` · n_tokens: a column's gradient is of the
order of 1 / n_tokens.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from lib.decision_lists.attention import initial_weights
from lib.decision_lists.lists import Task, read_tasks, used_for
from lib.decision_lists.runs import publish
from lib.decision_lists.tables.train import FOLDER
from lib.decision_lists.trainings import course_of_both, course_of_minibatches, course_of_values
from lib.files.params import Count, Interval, Positive, Seeds, Steps, read_cases, read_params
from lib.files.runs import clear_runs
from lib.training.devices import generator, use_threads
from lib.training.gradient_descent import Weights
from lib.training.sgd import saved_steps
from lib.work.cells import Course, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there

Scale = Annotated[float, Interval("[0, 1e6]")]
Size = Annotated[int, Interval("[1, 4096]")]


@dataclass(frozen=True)
class Start:
    """A kind of W_0 and V_0: Gaussian, W against the lists, V a multiple of P or of a wrong P."""

    name: str
    W: Literal["gaussian", "reverse order"]
    W_scale: Scale
    V: Literal["gaussian", "P", "-P", "wrong P"]
    V_scale: Scale


@dataclass(frozen=True)
class Joint(Seeds):
    init_scale: Positive
    n_steps: Steps


@dataclass(frozen=True)
class Starts(Seeds):
    n_steps: Steps


@dataclass(frozen=True)
class Minibatch(Seeds):
    n_tokens: Size
    seq_len: Size
    list_length: Size
    init_scale: Positive
    batch_size: Annotated[int, Interval("[1, 1000000]")]
    learning_rate: Positive
    n_steps: Steps
    certify_every: Count

    def __post_init__(self) -> None:
        if max(self.seq_len, self.list_length, 2) > self.n_tokens:
            raise ValueError(
                f"n_tokens: wanted at least 2, seq_len and list_length, got {self.n_tokens}"
            )


@dataclass(frozen=True)
class Train:
    step_per_token: Positive
    every: Count
    joint: Joint
    starts: Starts
    alignment_steps: Steps
    minibatch: Minibatch


def main(section: str, tasks: Path, starts: Path, trained: OutFolder, runs: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Train)
    cases = read_cases(starts, Start)
    listed = read_tasks(tasks)
    joint = used_for(listed, "joint")
    small = params.joint.init_scale
    gaussian = Start("small Gaussian", "gaussian", small, "gaussian", small)
    of_joint = product(joint, [gaussian], params.joint.seeds)
    of_starts = product(used_for(listed, "starts"), cases, params.starts.seeds)
    jobs = {
        "joint": [(train_joint, *one, params) for one in of_joint],
        "starts": [(train_start, *one, params) for one in of_starts],
        "alignment": [(align, task, params) for task in used_for(listed, "alignment")],
        "minibatch": [(minibatch, seed, params.minibatch) for seed in params.minibatch.seeds],
    }
    found = spread_cells(jobs, label=section, unit="run")
    write_tables_there(FOLDER, found, trained)
    clear_runs(runs)
    n_seeds = params.joint.n_seeds
    for i, task in enumerate(joint):
        courses = found["joint"][i * n_seeds : (i + 1) * n_seeds]
        publish(runs, task, params.joint.seeds, courses, init_scale=small)


def train_joint(task: Task, start: Start, seed: int, params: Train) -> Course:
    """A descent on W and V for all steps: its course and its saved states."""
    n_steps = params.joint.n_steps
    saved = saved_steps(n_steps, n_steps)
    course, states = course_of_both(
        task,
        drawn(task, start, seed),
        seed,
        step_size=params.step_per_token * task.n_tokens,
        n_steps=n_steps,
        every=params.every,
        saved=saved,
    )
    return Course({"joint": course.assign(**about(task, start, seed))}, states)


def train_start(task: Task, start: Start, seed: int, params: Train) -> Tables:
    """A descent on W and V until all is right: its course."""
    course, _ = course_of_both(
        task,
        drawn(task, start, seed),
        seed,
        step_size=params.step_per_token * task.n_tokens,
        n_steps=params.starts.n_steps,
        every=params.every,
    )
    return {"starts": course.assign(**about(task, start, seed))}


def drawn(task: Task, start: Start, seed: int) -> Weights:
    """W_0 and V_0."""
    return initial_weights(vars(start), task, generator(seed, "start", task.name, start.name))


def about(task: Task, start: Start, seed: int) -> dict[str, Any]:
    """The task and the start of a course."""
    found = {"task": task.name, "start": start.name, "seed": seed, "law": task.law}
    return found | {"n_tokens": task.n_tokens, "length": task.longest}


def align(task: Task, params: Train) -> Tables:
    """A descent on V from 0 under uniform attention."""
    course = course_of_values(task, params.step_per_token * task.n_tokens, params.alignment_steps)
    of = {"task": task.name, "law": task.law, "length": task.longest, "repeats": task.repeats}
    return {"alignment": course.assign(**of)}


def minibatch(seed: int, params: Minibatch) -> Tables:
    """A training by minibatches of fresh uniform subsets."""
    course = course_of_minibatches(
        seed,
        n_tokens=params.n_tokens,
        seq_len=params.seq_len,
        list_length=params.list_length,
        init_scale=params.init_scale,
        batch_size=params.batch_size,
        learning_rate=params.learning_rate,
        n_steps=params.n_steps,
        certify_every=params.certify_every,
    )
    of = {"seed": seed, "n_tokens": params.n_tokens, "batch_size": params.batch_size}
    return {"minibatch": course.assign(**of)}


if __name__ == "__main__":
    run(main)
