"""`latchwork generate`."""

from __future__ import annotations

import codecs
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from latchwork.runs.run import Run
from latchwork.tasks import Text


@dataclass
class Generate:
    """Continue a prompt with a model of text; the text streams to standard output in constant memory."""

    run_folder: tyro.conf.Positional[Path]
    """The folder of the run."""
    prompt: str = "\n"
    """What to continue."""
    length: int = 500
    """Bytes to write; 0 goes on until interrupted."""
    temperature: float = 0.8
    """Below 1 prefers likely bytes; 0 always takes the likeliest."""
    top_k: int | None = None
    """Draw from the k likeliest bytes only."""
    top_p: float | None = None
    """Draw from the likeliest bytes that together have this probability."""
    seed: int | None = None
    """Of the draws; by default another one every time."""

    def run(self) -> int:
        run = Run.open(self.run_folder)
        if not isinstance(run.task, Text):
            raise ValueError(
                f"{run.path} is a model of {run.task.name}, not of text; train one with `latchwork train text`"
            )
        if self.length < 0:
            raise ValueError(f"length must be 0 or more, got {self.length}")
        prompt = self.prompt.encode("utf-8", errors="surrogateescape")
        if not prompt:
            raise ValueError("prompt must have at least one character")
        model, _ = run.trained_cascade()
        generator = torch.Generator()
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        tokens = model.generate(
            torch.tensor([list(prompt)]),
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            generator=generator,
        )
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        sys.stdout.write(self.prompt)
        for token in tokens if self.length == 0 else itertools.islice(tokens, self.length):
            sys.stdout.write(decode(bytes([int(token)])))
            sys.stdout.flush()
        sys.stdout.write(decode(b"", final=True) + "\n")
        return 0
