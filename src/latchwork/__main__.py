"""`python -m latchwork`."""

from latchwork.cli.main import console

console()
