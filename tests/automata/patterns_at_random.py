"""Regular expressions at random, as text."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

ANCHORS = ["^", "$", r"\A", r"\Z", r"\b", r"\B"]
CATEGORIES = [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"]
REPEATS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}?", "{2,}", "{0}"]
GROUPS = ["(", "(?:", "(?i:", "(?-i:", "(?s:", "(?m:", "(?a:", "(?u:"]
AROUND = ["(?=", "(?!", "(?<=", "(?<!"]


def at_random(examples: int) -> settings:
    """The same examples in every run, however long one takes."""
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=slow)


def patterns(alphabet: str, *, context: bool = True, around: bool = True) -> st.SearchStrategy[str]:
    """Patterns about some letters, if wanted with anchors and boundaries (`context`) and with assertions (`around`)."""
    literal = st.sampled_from([letter.replace("\n", r"\n") for letter in alphabet])
    inside = st.lists(literal | st.sampled_from([*CATEGORIES, "a-k", "A-_"]), min_size=1, max_size=3)
    classes = st.builds("[{}{}]".format, st.sampled_from(["", "^"]), inside.map("".join))
    atoms = literal | literal | classes | st.sampled_from([".", *CATEGORIES, "()"])
    if context:
        atoms = atoms | st.sampled_from(ANCHORS)
    groups = st.sampled_from(GROUPS + AROUND * 2 if around else GROUPS)
    return st.recursive(atoms, lambda inner: _combined(inner, groups), max_leaves=8)


def _combined(inner: st.SearchStrategy[str], groups: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.builds("(?:{}){}".format, inner, st.sampled_from(REPEATS))
    grouped = st.builds("{}{})".format, groups, inner)
    several = st.lists(inner, min_size=2, max_size=3)
    return repeated | grouped | several.map("".join) | several.map("|".join)
