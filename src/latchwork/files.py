"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace a file by new content (UTF-8, line ends as they are) in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file by new content in one step; of two that write it at a time one comes last, whole."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_writable(option: str, file: Path) -> None:
    """Refuse a file that cannot be written, before there is anything to write; a new one is empty afterwards.

    Raises: OSError that names `option`.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
    except OSError as error:
        raise OSError(f"{option} {str(file)!r} cannot be written: {error.strerror}") from error
