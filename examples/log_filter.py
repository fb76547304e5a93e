"""The lines of a web server's log whose request for something below /api failed, found by a compiled cascade.

    python examples/log_filter.py
    python examples/log_filter.py --lines 100000 --log access.log --filter failed.safetensors
    tail -f access.log | latchwork run failed.safetensors

The pattern becomes a network that provably does what the pattern says, on lines of every length. The log is made up.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from latchwork.automata import compare, compile, from_regex

FAILED = r'[0-9.]+ - - \[[^]]+\] "(GET|POST) /api/[^ "]* HTTP/[0-9.]+" 5[0-9][0-9] [0-9]+'
PATHS = ["/", "/index.html", "/api/users", "/api/orders?page=2", "/static/app.js", "/apis"]
BATCH = 1000


def log(lines: int, seed: int) -> Iterator[str]:
    """Lines in the common log format, one second apart."""
    chance = random.Random(seed)
    for second in range(lines):
        address = ".".join(str(chance.randrange(1, 255)) for _ in range(4))
        clock = f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        request = f"{chance.choice(['GET', 'POST'])} {chance.choice(PATHS)} HTTP/1.1"
        status = chance.choice([200, 200, 200, 304, 404, 500, 503])
        yield f'{address} - - [05/May/2026:{clock} +0000] "{request}" {status} {chance.randrange(10_000)}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100, help="lines of the log")
    parser.add_argument("--seed", type=int, default=0, help="of the log")
    parser.add_argument("--log", type=Path, help="a file to write the log to")
    parser.add_argument("--filter", type=Path, help="a file to write the compiled cascade to, for `latchwork run`")
    options = parser.parse_args()

    dfa = from_regex(FAILED)
    cascade = compile(dfa)
    if not compare(cascade, dfa).holds:
        raise SystemExit("the cascade is not the pattern")
    lines = list(log(options.lines, options.seed))
    if options.log is not None:
        options.log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if options.filter is not None:
        cascade.save(options.filter)
    for start in range(0, len(lines), BATCH):
        batch = lines[start : start + BATCH]
        for line, failed in zip(batch, cascade.judge(batch).tolist(), strict=True):
            if failed:
                print(line)


if __name__ == "__main__":
    main()
