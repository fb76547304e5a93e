"""Bytes of real text, to be predicted one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from latchwork.tasks import chance
from latchwork.tasks.task import Batch, IntArray, Split, Stream, Task


@dataclass(frozen=True)
class Text(Task):
    """The bytes of a file, or of all files in a folder in the order of their names; the target is the next byte.

    The text is split by position: the first part trains, the rest is measured in one pass with the state carried.
    An epoch cuts the training part into windows that do not overlap, starting at another byte each time.
    """

    data: Path
    """File or folder of text."""
    window: int = 512
    """Length of a training sequence in bytes."""
    train_share: float = 0.9
    """Share of the bytes, from the start, that trains."""

    name: ClassVar[str] = "text"
    measure: ClassVar[Literal["accuracy", "bits per byte"]] = "bits per byte"
    fresh_epochs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.train_share < 1:
            raise ValueError(f"train_share must be between 0 and 1, got {self.train_share}")
        object.__setattr__(self, "data", Path(self.data).resolve())  # a run may be opened from another folder
        if self.window < 1:
            raise ValueError(f"window must be at least 1 byte, got {self.window}")

    @property
    def vocab_size(self) -> int:
        return 256

    @property
    def n_outputs(self) -> None:
        return None

    @property
    def token_names(self) -> list[str]:
        """Printable ASCII as itself, the other bytes as \\x and two hexadecimal digits."""
        return [chr(b) if 33 <= b < 127 else f"\\x{b:02x}" for b in range(256)]

    @cached_property
    def parts(self) -> dict[Split, NDArray[np.uint8]]:
        """The training and the held-out bytes."""
        text = _read(Path(self.data))
        cut = int(len(text) * self.train_share)
        if cut < 2 * self.window + 1 or len(text) - cut < 2:
            raise ValueError(
                f"{self.data} has {len(text)} bytes, of which {self.train_share:.0%} train: "
                f"too few for windows of {self.window}"
            )
        return {"train": text[:cut], "validation": text[cut:], "evaluation": text[cut:]}

    def epoch_size(self, wanted: int) -> int:
        return (len(self.parts["train"]) - 1) // self.window - 1

    def batch(self, split: Split, seed: int, samples: Sequence[int] | IntArray) -> Batch:
        text, numbers = self.parts[split], np.asarray(samples, dtype=np.int64)
        windows = (len(text) - 1) // self.window - 1
        if windows < 1:
            raise ValueError(f"the {split} part of {self.data} is shorter than two windows of {self.window} bytes")
        epochs, positions = np.divmod(numbers, windows)
        shifts = chance.below(
            chance.words(chance.derive(chance.derive(np.uint64(0), seed), epochs), 0, 1)[:, 0], self.window
        )
        starts = positions * self.window + shifts
        chunk = text[starts[:, None] + np.arange(self.window + 1)].astype(np.int64)
        return Batch(chunk[:, :-1], chunk[:, 1:])

    def streams(self, split: Split, seed: int, sequences: int, chunk: int) -> Iterator[Stream]:
        yield self._pass(split, chunk)

    def _pass(self, split: Split, chunk: int) -> Stream:
        text = self.parts[split]
        for first in range(0, len(text) - 1, chunk):
            piece = text[None, first : first + chunk + 1].astype(np.int64)
            yield Batch(piece[:, :-1], piece[:, 1:])


def _read(path: Path) -> NDArray[np.uint8]:
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.is_file())
        if not files:
            raise ValueError(f"{path} is a folder without files")
    elif path.is_file():
        files = [path]
    else:
        raise ValueError(f"there is no file or folder {path}")
    return np.concatenate([np.fromfile(f, dtype=np.uint8) for f in files])
