"""Values for the fields of dataclasses, where they come from files or callers and not from a type checker."""

from __future__ import annotations

import dataclasses
import numbers
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
    try:
        hints = get_type_hints(cls)
    except NameError:  # names that are imported for type checkers only
        return
    for name, value in values.items():
        if name in hints and not _fits(value, hints[name]):
            raise ValueError(f"{name} must be {_words(hints[name])}, got {value!r}")


def settle(instance: Any) -> None:
    """Check the fields of a frozen dataclass; integers and numbers of other libraries become Python's, as JSON needs.

    Raises: ValueError as `check_types`.
    """
    values = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    check_types(type(instance), values)
    for name, value in values.items():
        if isinstance(value, numbers.Real) and type(value) not in (bool, int, float):
            object.__setattr__(instance, name, int(value) if isinstance(value, numbers.Integral) else float(value))


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint not in _SCALARS:
        return True
    return isinstance(value, _SCALARS[hint][0]) and (hint is bool or not isinstance(value, bool))


def _words(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_words(part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    return _SCALARS[hint][1]
