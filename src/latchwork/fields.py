"""Values for the fields of dataclasses, where they come from files or callers and not from a type checker."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SCALARS: dict[Any, tuple[type | tuple[type, ...], str]] = {
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a string"),
    Path: ((str, Path), "a path"),
    type(None): (type(None), "None"),
}


def check_types(cls: type, values: Mapping[str, Any]) -> None:
    """Compare values with the types of the fields of these names.

    Fields of integers, numbers, truth values, strings, paths, literals and unions of them are checked, others are
    not.

    Raises: ValueError that names the first field with a value of another type.
    """
    hints = _hints(cls)
    for name, value in values.items():
        if name in hints and not _fits(value, hints[name]):
            raise ValueError(f"{name} must be {_words(hints[name])}, got {value!r}")


def settle(instance: Any) -> None:
    """Check the fields of a frozen dataclass; numbers become Python's, as JSON needs, and 0 of a number becomes 0.0, so
    that equal settings read the same.

    Raises: ValueError as `check_types`, and for integers that are too large for a number.
    """
    cls: type = type(instance)
    values = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    check_types(cls, values)
    hints = _hints(cls)
    for name, value in values.items():
        if isinstance(value, numbers.Integral) and not isinstance(value, bool) and float not in _parts(hints.get(name)):
            object.__setattr__(instance, name, int(value))
        elif isinstance(value, numbers.Real) and not isinstance(value, bool):
            try:
                object.__setattr__(instance, name, float(value))
            except OverflowError:
                most = sys.float_info.max
                raise ValueError(f"{name} must be a number of at most {most:.1e}, got a larger one") from None


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError:  # names that are imported for type checkers only
        return {}


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union; of any other type the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    if len(parts := _parts(hint)) > 1:
        return any(_fits(value, part) for part in parts)
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint not in _SCALARS:
        return True
    return isinstance(value, _SCALARS[hint][0]) and (hint is bool or not isinstance(value, bool))


def _words(hint: Any) -> str:
    if len(parts := _parts(hint)) > 1:
        return " or ".join(_words(part) for part in parts)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    return _SCALARS[hint][1]
