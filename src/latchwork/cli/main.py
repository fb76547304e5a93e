"""Parse the command line, run the command, and turn errors into one line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

import latchwork
from latchwork.cli.bench import BENCH
from latchwork.cli.compare import Compare
from latchwork.cli.compile import Compile
from latchwork.cli.decompose import Decompose
from latchwork.cli.demo import Demo
from latchwork.cli.evaluate import Evaluate
from latchwork.cli.generate import Generate
from latchwork.cli.info import Info
from latchwork.cli.options import one_of
from latchwork.cli.reproduce import Reproduce
from latchwork.cli.run import Run
from latchwork.cli.settings import arch_in, with_settings
from latchwork.cli.sweep import Sweep
from latchwork.cli.task import task_commands
from latchwork.cli.train import train_commands
from latchwork.cli.view import View
from latchwork.models.architectures import CASCADE


def commands(arch: str = CASCADE) -> Any:
    """All commands; those of tasks are made of what is registered, with the options of this model."""
    parts = [
        Annotated[Demo, tyro.conf.subcommand("demo")],
        Annotated[
            train_commands(arch),
            tyro.conf.subcommand("train", description="Train a model and keep it in a run folder."),
        ],
        Annotated[Sweep, tyro.conf.subcommand("sweep")],
        Annotated[Evaluate, tyro.conf.subcommand("evaluate")],
        Annotated[Reproduce, tyro.conf.subcommand("reproduce")],
        Annotated[Compare, tyro.conf.subcommand("compare")],
        Annotated[View, tyro.conf.subcommand("view")],
        Annotated[Generate, tyro.conf.subcommand("generate")],
        Annotated[
            task_commands(),
            tyro.conf.subcommand("task", description="List the tasks, or show what one of them asks for."),
        ],
        Annotated[Compile, tyro.conf.subcommand("compile")],
        Annotated[Run, tyro.conf.subcommand("run")],
        Annotated[Decompose, tyro.conf.subcommand("decompose")],
        Annotated[
            BENCH,
            tyro.conf.subcommand(
                "bench", description="Measure speed and memory against limits and peers, in ratios within one run."
            ),
        ],
        Annotated[Info, tyro.conf.subcommand("info")],
    ]
    return one_of(parts)


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
        arguments = completed(typed)
        command = tyro.cli(
            commands(arch_in(arguments)),
            prog="latchwork",
            description="Recurrent networks with exact memory: train, evaluate, generate, view. --version tells which.",
            args=arguments,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        )
        return command.run()
    except KeyboardInterrupt:
        print("latchwork: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        print(f"latchwork: error: there is not enough memory: {str(error) or 'ask for less'}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, RuntimeError, OSError, ImportError, ArithmeticError, LookupError) as error:
        if os.environ.get("LATCHWORK_TRACEBACK"):
            raise
        # the last two come from numbers or files that no check has foreseen, and say little without their names
        kind = f"{type(error).__name__}: " if isinstance(error, (ArithmeticError, LookupError)) else ""
        print(f"latchwork: error: {kind}{error}", file=sys.stderr)
        return 1


def completed(typed: list[str]) -> list[str]:
    """The arguments with the settings of files, and with `list` where `latchwork task` names no task."""
    if typed[:1] == ["train"]:
        return with_settings(typed)
    if typed == ["task"] or (typed[:1] == ["task"] and typed[1].startswith("-") and typed[1] not in ("-h", "--help")):
        return ["task", "list", *typed[1:]]
    return typed


def console() -> None:
    """The `latchwork` script."""
    sys.exit(main())
