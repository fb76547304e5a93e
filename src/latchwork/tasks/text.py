"""Bytes of real text, to be predicted one after another."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from latchwork.fields import settle
from latchwork.tasks import chance
from latchwork.tasks.registry import register
from latchwork.tasks.task import Batch, IntArray, Split, Stream, Task


@register
@dataclass(frozen=True)
class Text(Task):
    """Text: predict the next byte of a file or folder.

    The bytes of a file, or of all files in a folder in the order of their names; the target is the next byte.

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
        settle(self)
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
        text = self._bytes
        cut = int(len(text) * self.train_share)
        if not self._is_enough(len(text)):
            raise ValueError(
                f"{self.data} has {len(text):,} bytes, of which {self.train_share:.0%} train: too few for windows of "
                f"{self.window}, which need at least {self._least_bytes():,} bytes"
            )
        return {"train": text[:cut], "validation": text[cut:], "evaluation": text[cut:]}

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return _read(self.data)

    def _is_enough(self, size: int) -> bool:
        """Whether so many bytes have two windows to train on, wherever they start, and a byte to predict after them."""
        cut = int(size * self.train_share)
        return cut >= 2 * self.window + 1 and size - cut >= 2

    def _least_bytes(self) -> int:
        below = max(int((2 * self.window + 1) / self.train_share) - 1, int(1 / (1 - self.train_share)) - 1)
        return next(n for n in itertools.count(below) if self._is_enough(n))

    @property
    def source(self) -> Path:
        return self.data

    def fingerprint(self) -> dict[str, Any]:
        return {"bytes": len(self._bytes), "sha256": hashlib.sha256(self._bytes.tobytes()).hexdigest()}

    def facts(self, split: Split) -> dict[str, str]:
        facts = {"bytes": f"{len(self.parts[split]):,}"}
        return {**facts, "windows": f"{self.epoch_size(0):,} of {self.window} bytes"} if split == "train" else facts

    def epoch_size(self, wanted: int) -> int:
        return (len(self.parts["train"]) - 1) // self.window - 1

    def batch(self, split: Split, seed: int, samples: Sequence[int] | IntArray) -> Batch:
        text, numbers = self.parts[split], np.asarray(samples, dtype=np.int64)
        windows = (len(text) - 1) // self.window - 1
        if windows < 1:
            raise ValueError(
                f"the {split} part of {self.data} has {len(text):,} bytes; windows of {self.window} need at least "
                f"{2 * self.window + 1:,}"
            )
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
