"""`latchwork demo`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from latchwork.cli.display import say
from latchwork.cli.evaluate import Evaluate
from latchwork.cli.train import described, train_and_report
from latchwork.evaluation.extrapolate import check_extent
from latchwork.nn.config import CascadeConfig
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run
from latchwork.tasks import Latching


@dataclass
class Demo:
    """Watch a cascade learn to latch in about a minute, then hold without an error over a million steps."""

    out: Path = Path("runs/demo")
    """The run folder; an earlier demo in it is replaced."""
    seed: int = 0
    """Of the weights and the data."""
    length: int = 1 << 20
    """Steps over which the state has to be held."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        clock = time.perf_counter()
        evaluation = Evaluate(self.out, length=self.length, json=self.json)
        check_extent(evaluation.length, evaluation.chunk, evaluation.sequences, evaluation.seed)
        recipe = Recipe(seed=self.seed, validation_sequences=200, validate_every=50, steps=1000)
        run = Run(self.out, Latching(16), CascadeConfig.small(), recipe)
        if (self.out / "config.json").exists():
            if _but_for_the_seed(Run.open(self.out)) != _but_for_the_seed(run):
                raise ValueError(f"{self.out} holds another run; choose another folder with --out")
            run.remove()
        run.create()
        say("Latching(16): the first of up to a million tokens has to be named at every later step.")
        say(described(run))
        status = train_and_report(run, resume=False)
        if status:
            return status
        status = evaluation.run()
        if status:
            return status
        say(f"the whole demo took {time.perf_counter() - clock:.0f} s; open {run.report} in a browser")
        return status


def _but_for_the_seed(run: Run) -> dict:
    return replace(run, recipe=replace(run.recipe, seed=0)).to_dict()
