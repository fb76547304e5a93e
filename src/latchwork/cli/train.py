"""`latchwork train`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from latchwork.cli.display import IS_MAIN, Bar, interruptible, print_json, say, set_threads
from latchwork.cli.options import checked, one_of, task_command, unchecked
from latchwork.evaluation.measure import percent
from latchwork.evaluation.report import write_report
from latchwork.memory import keep_freed
from latchwork.models.architectures import ARCHITECTURES, CASCADE, ModelConfig, architecture
from latchwork.nn.config import CascadeConfig
from latchwork.runs.recipe import Recipe
from latchwork.runs.recipes import defaults
from latchwork.runs.run import Run
from latchwork.runs.settings import assigned
from latchwork.tasks import TASKS, Task
from latchwork.training.loop import End, Resumed, Step, Validation, first_says, make_accelerator, train


@dataclass(kw_only=True)
class _Train:
    """Train a model on a task; the fields are set by `task_command`."""

    task: Any
    model: Any
    recipe: Any
    config: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """Read settings from a TOML, YAML or JSON file with sections task, model and recipe, such as the config.json of a
    run. May be given several times; later files, then --set, then other flags count."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """One setting, as in --set recipe.lr=0.003. May be given several times."""
    out: Path | None = None
    """The run folder; by default runs/TASK-SEED (runs/TASK-ARCH-SEED of a baseline), with a number where that
    exists."""
    threads: int | None = None
    """Threads to compute with; by default PyTorch's choice."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        set_threads(self.threads)
        task, model, recipe = checked(self.task), checked(self.model), checked(self.recipe)
        task.batch("train", 0, [0])  # unreadable data is an error before there is a folder
        accelerator = make_accelerator()
        path = first_says(self.out or free_folder(task, model, recipe))
        run = Run(path, task, model, recipe)
        description = described(run)  # and so is an absent library
        if accelerator.is_main_process:
            run.create()
        accelerator.wait_for_everyone()
        say(description)
        return train_and_report(run, resume=False, as_json=self.json)


@dataclass
class Resume:
    """Go on with a run from its newest whole checkpoint."""

    run_folder: tyro.conf.Positional[Path]
    """The folder of the run."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change the recipe from here on, as in --set recipe.steps=2000 to train a finished run further. May be given
    several times."""
    threads: int | None = None
    """Threads to compute with; by default PyTorch's choice."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        set_threads(self.threads)
        run = Run.open(self.run_folder)
        settings = assigned(self.set)
        if other := sorted(settings.keys() - {"recipe"}):
            raise ValueError(f"only the recipe of a run can be changed, not its {other[0]}")
        if settings:
            run = run.changed(settings["recipe"])
        say(described(run))
        return train_and_report(run, resume=True, as_json=self.json)


def train_commands(arch: str = CASCADE) -> Any:
    """One command for every task that is registered, with the options of this model, and `resume`."""
    tasks = [_train_command(task, arch) for task in TASKS.values()]
    return one_of([*tasks, Annotated[Resume, tyro.conf.subcommand("resume")]])


def _train_command(task: type[Task], arch: str) -> Any:
    model, recipe = map(unchecked, defaults(task.name, arch))
    fields = [("arch", _ARCH, arch), ("model", type(model), model), ("recipe", type(recipe), recipe)]
    return task_command(_Train, task, "train", fields)


_ARCH: Any = Annotated[
    Literal[tuple(ARCHITECTURES)],
    tyro.conf.arg(help="What is trained. It has options of its own: --arch mamba --help shows those of Mamba."),
]


def free_folder(task: Task, model: ModelConfig, recipe: Recipe) -> Path:
    """The first of runs/TASK-SEED, runs/TASK-SEED-2, … that does not exist; of a baseline runs/TASK-ARCH-SEED, …"""
    size = f"-{task.size}" if hasattr(task, "size") else ""
    arch = "" if isinstance(model, CascadeConfig) else f"-{architecture(model)}"
    base = Path("runs") / f"{task.name}{size}{arch}-seed{recipe.seed}"
    number, path = 1, base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def train_and_report(run: Run, *, resume: bool, as_json: bool = False) -> int:
    """Train with progress, write the report, say what is where; returns the exit status."""
    keep_freed()
    result: dict[str, Any] = {"run": str(run.path)}
    end, began = End(0, "stopped"), -1
    with interruptible("stopping after this step; Ctrl-C again stops at once and keeps the last checkpoint") as stop:
        bar: Bar | None = None
        try:
            for event in train(run, resume=resume, stop=stop):
                if isinstance(event, Step):
                    if bar is None:
                        bar = Bar("training", event.total).__enter__()
                    bar.update(event.step, f"loss {event.loss:.4f} · {event.tokens_per_second:,.0f} tokens/s")
                elif isinstance(event, Resumed):
                    for complaint in event.complaints:
                        say(f"passed over a checkpoint: {complaint}")
                    say(f"going on after step {event.step:,}")
                    began = event.step
                elif isinstance(event, Validation):
                    say(_validation_line(run, event))
                    result.update(event.score.to_dict())
                else:
                    end = event
        finally:
            if bar is not None:
                bar.__exit__()
    result.update(step=end.step, reason=end.reason)
    if as_json:
        print_json(result)
    if IS_MAIN:
        report(run)
    if end.reason == "stopped":
        say(f"stopped at step {end.step:,}; go on with `latchwork train resume {run.path}`")
        return 130
    say(f"{_REASONS[end.reason]} after {end.step:,} updates; the best model is {run.best().path}")
    if began == end.step:
        say(f"nothing was left to do; {_MORE[end.reason].format(run=run.path)}")
    return 0


_REASONS = {
    "perfect": "every validation answer is right",
    "patience": "the validation loss has not fallen for a while: stopped",
    "time": "the time for updates is over: stopped",
    "finished": "finished",
}


_MORE = {
    "perfect": "to go on all the same: `latchwork train resume {run} --set recipe.stop_when_perfect=False`",
    "patience": "to go on all the same: `latchwork train resume {run} --set recipe.patience=None`",
    "time": "to go on all the same: `latchwork train resume {run} --set recipe.minutes=None`",
    "finished": "to train further: `latchwork train resume {run} --set recipe.steps=N`",
}


def described(run: Run) -> str:
    """What is trained on what, and what answering the commonest label would score.

    Raises: ValueError where no step is scored; ImportError where the library of the model is not installed.
    """
    task = ", ".join(f"{k} {v}" for k, v in dataclasses.asdict(run.task).items())  # type: ignore[call-overload]
    text = f"{run.task.name} ({task}) · {run.count_parameters():,} parameters · run folder {run.path}"
    if run.task.measure == "accuracy":
        shares = run.task.label_distribution("train", run.recipe.seed)
        if not shares.any():
            raise ValueError("no step of the first 256 training sequences is scored: there is nothing to learn")
        some = shares[shares > 0]
        text += f"\nlabels in training: {len(some)} classes occur, commonest {some.max():.1%}, rarest {some.min():.1%}"
    return text


def report(run: Run) -> None:
    """Write the report, or say why there is none: what has been trained or measured is there all the same."""
    try:
        say(f"report: {write_report(run)}")
    except (ImportError, ValueError, OSError) as error:
        say(f"no report: {error}")


def _validation_line(run: Run, event: Validation) -> str:
    score = event.score
    if run.task.measure == "accuracy":
        what = f"accuracy {percent(score.correct, score.scored)} (floor {score.floor:.1%}) · loss {score.loss:.4f}"
    else:
        what = f"{score.bits:.4f} bits per byte"
    best = " · best" if event.is_best else ""
    return (
        f"step {event.step:,} · epoch {event.epoch:.2f} · validation {what} · measured in {event.seconds:.1f} s{best}"
    )
