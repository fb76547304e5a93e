"""Parse the command line, run the command, and turn errors into one line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Union

import tyro

import latchwork
from latchwork.cli.bench import BENCH
from latchwork.cli.demo import Demo
from latchwork.cli.evaluate import Evaluate
from latchwork.cli.generate import Generate
from latchwork.cli.info import Info
from latchwork.cli.settings import with_settings
from latchwork.cli.sweep import Sweep
from latchwork.cli.train import TRAIN

Command = Union[  # noqa: UP007  (tyro reads the annotations of its members)
    Annotated[Demo, tyro.conf.subcommand("demo")],
    Annotated[TRAIN, tyro.conf.subcommand("train", description="Train a model and keep it in a run folder.")],
    Annotated[Sweep, tyro.conf.subcommand("sweep")],
    Annotated[Evaluate, tyro.conf.subcommand("evaluate")],
    Annotated[Generate, tyro.conf.subcommand("generate")],
    Annotated[
        BENCH,
        tyro.conf.subcommand(
            "bench", description="Measure speed and memory against limits and peers, in ratios within one run."
        ),
    ],
    Annotated[Info, tyro.conf.subcommand("info")],
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 after an error, 2 for bad usage, 130 after Ctrl-C."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # some terminals have ASCII only
    if typed == ["--version"]:
        print(f"latchwork {latchwork.__version__}")
        return 0
    try:
        command = tyro.cli(
            Command,
            prog="latchwork",
            description="Recurrent networks with exact memory: train, evaluate, generate. --version tells which.",
            args=with_settings(typed) if typed[:1] == ["train"] else typed,
            config=(tyro.conf.FlagConversionOff, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        )
        return command.run()
    except KeyboardInterrupt:
        print("latchwork: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, TypeError, RuntimeError, OSError, ImportError, ArithmeticError, LookupError) as error:
        if os.environ.get("LATCHWORK_TRACEBACK"):
            raise
        # the last two come from numbers or files that no check has foreseen, and say little without their names
        kind = f"{type(error).__name__}: " if isinstance(error, (ArithmeticError, LookupError)) else ""
        print(f"latchwork: error: {kind}{error}", file=sys.stderr)
        return 1


def console() -> None:
    """The `latchwork` script."""
    sys.exit(main())
