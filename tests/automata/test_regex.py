"""Automata of regular expressions, against Python's own matching."""

from __future__ import annotations

import contextlib
import re
import sys
import tracemalloc
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from languages import random_nfa, verdicts
from patterns_at_random import at_random, patterns

from latchwork.automata import DFA, OTHER, BudgetError, RegexError, equivalent, from_regex, minimize
from latchwork.automata.characters import Characters
from latchwork.automata.patterns import parse

FLAGS = [0, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.ASCII, re.IGNORECASE | re.MULTILINE | re.ASCII]


def assert_as_python(pattern: str, alphabet: str, longest: int, flags: int = 0) -> DFA:
    dfa = from_regex(pattern, alphabet, flags)
    match = re.compile(pattern, flags).fullmatch
    for word, verdict in verdicts(dfa, alphabet, longest):
        assert verdict == (match(word) is not None), (pattern, flags, word)
    return dfa


def compare(pattern: str, alphabet: str, longest: int, flags: int) -> None:
    """What Python refuses is refused, what it accepts is the same language."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            re.compile(pattern, flags)
        except re.error:
            with pytest.raises(RegexError):
                from_regex(pattern, alphabet, flags)
            return
        assert_as_python(pattern, alphabet, longest, flags)


@at_random(350)
@given(patterns("ab", context=False, around=False), st.sampled_from(FLAGS))
def test_random_patterns_of_two_letters(pattern, flags):
    compare(pattern, "ab", 6, flags)


@at_random(450)
@given(patterns("ab\n"), st.sampled_from(FLAGS))
def test_random_patterns_that_look_around(pattern, flags):
    compare(pattern, "ab\n", 5, flags)


@at_random(300)
@given(patterns("aA1_ "), st.sampled_from(FLAGS))
def test_random_patterns_of_words_and_cases(pattern, flags):
    compare(pattern, "aA1_ ", 4, flags)


@at_random(150)
@given(patterns("kKſs\u212a"), st.sampled_from(FLAGS))
def test_random_patterns_of_letters_with_more_than_two_cases(pattern, flags):
    compare(pattern, "kKſs\u212a", 3, flags)


@at_random(100)
@given(patterns("ab\n", around=False), st.sampled_from(FLAGS))
def test_both_ways_to_run_a_program_give_one_automaton(pattern, flags):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert from_regex(f"(?:{pattern})(?=)", "ab\n", flags) == from_regex(pattern, "ab\n", flags)


@at_random(100)
@given(
    patterns("aB\n"), st.sampled_from([0, re.IGNORECASE, re.MULTILINE, re.ASCII]), st.text("aAbB\n zé1_", max_size=6)
)
def test_the_default_alphabet_judges_every_word(pattern, flags, word):
    with contextlib.suppress(RegexError), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert from_regex(pattern, None, flags).accepts(word) == bool(re.fullmatch(pattern, word, flags))


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("ba*|a", ["a", "b", "ba", "baaa"], ["", "aa", "ab"]),
        ("(ab*)*", ["", "ab", "abb", "aab"], ["b", "bb", "ba"]),
        ("a{0}", [""], ["a", "b"]),
        ("()", [""], ["a", "b"]),
        ("a", ["a"], ["", "aa"]),
        (r"\.", ["."], ["", "a", ".."]),
        ("[^a]", ["b", "."], ["", "a", "bb"]),
    ],
)
def test_small_patterns_mean_what_python_means(pattern, accepted, rejected):
    dfa = assert_as_python(pattern, "ab.", 6)
    assert all(dfa.accepts(word) for word in accepted)
    assert not any(dfa.accepts(word) for word in rejected)


def test_a_word_is_judged_whole():
    dfa = from_regex("(a|b)*abb", "ab")
    assert dfa.verdicts("abba").tolist() == [False, False, False, True, False]
    assert dfa.n_states == 4


@pytest.mark.parametrize(
    "pattern",
    [
        "^a|b$",
        "a^b",
        "(?m)a$\n^b",
        "a$\n",
        "(a|\n)*$",
        r"\Aa\Z\n?",
        r"\B",
        r"\b",
        r"(?:\Ba|\bb)*",
        "a&b",
        "(?=.*a)(?=.*b)[ab]+",
        "(?!a)[ab]{2}",
        "((?=a(?!b))a|b)*",
        "[ab]*(?<=ab)",
        "(?:(?<!a)b|a)*",
        "(?:(?<=(?=ab)a)b|[ab&](?!b))*",
        "(?<!(?=a.*b)a)[ab]*(?=$|b)b?",
        "(?!)|a",
        "(?<!)b",
        "(?:|a)+b",
        "(?#comment)a",
        "(?x) a b # rest\n | b",
        "(?P<name>a)+b",
        r"\x61\u0062?\141",
        "[]ab]|[^]a]",
        "[&-]+",
        "a{,2}b{2,}",
        "(?:a{1,2}){2}",
        "{a}",
    ],
)
def test_traps_of_the_dialect_are_as_in_python(pattern):
    assert_as_python(pattern, "ab\n&", 5)


@pytest.mark.parametrize(
    ("pattern", "position", "word"),
    [
        (r"(a)\1", 3, "back-references"),
        (r"(?P<n>a)[(?P=n)]\\(?P=n)", 18, "back-references"),
        (r"(?x)(a) # \1 \1" + "\n" + r" [\1] \1", 22, "back-references"),
        (r"(a)\010\0\1", 9, "back-references"),
        (r"(a)?(?(1)b|c)", 4, "conditional"),
        ("b(?<=a|bc)", 1, "look-behind requires fixed-width"),
        ("(?<=a)[(?<=](?<!a*)", 12, "look-behind requires fixed-width"),
        ("\ta(b", 2, "unterminated"),
        ("a**", 2, "multiple repeat"),
        ("[b-a]", 1, "bad character range"),
        ("(?z)", 1, "unknown extension"),
    ],
)
def test_what_is_refused_is_refused_with_its_position(pattern, position, word):
    with pytest.raises(RegexError, match=word) as caught:
        from_regex(pattern, "abc")
    assert caught.value.position == position
    line, caret = str(caught.value).splitlines()[1:]
    begin = pattern.rfind("\n", 0, position) + 1
    assert line == "  " + pattern[begin:].splitlines()[0]
    assert caret.replace("\t", " ") == " " * (2 + position - begin) + "^"
    assert caret.count("\t") == pattern[begin:position].count("\t")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="not in the syntax")
@pytest.mark.parametrize(
    ("pattern", "position", "word"),
    [
        ("b(?>a*)", 1, "atomic"),
        ("ab*+", 2, "possessive"),
        (r"[a*+]\*+b{1,2}+", 9, "possessive"),
        ("(?x)a* b  #*+\n  a?+", 17, "possessive"),
    ],
)
def test_what_keeps_characters_is_refused_with_its_position(pattern, position, word):
    with pytest.raises(RegexError, match=word) as caught:
        from_regex(pattern, "abc")
    assert caught.value.position == position


def test_too_much_is_refused_before_it_takes_long():
    with pytest.raises(BudgetError, match="more than 20,000 states"):
        from_regex("(a|b)*a(a|b){30}", "ab")
    with pytest.raises(BudgetError, match="more than 20,000 positions"):
        from_regex("((a{1000}){1000}){1000}", "a")
    with pytest.raises(BudgetError, match="more than 1,000 positions"):
        from_regex("a{1000}", "a", budget=1000)
    with pytest.raises(RegexError, match="repetition number is too large"):
        from_regex("a{99999999999}", "a")
    with pytest.raises(RegexError, match="nested too deeply"):
        from_regex("(" * 5000 + ")" * 5000, "a")
    with pytest.raises((BudgetError, RegexError)):
        from_regex("(?:(?=(?:a|b)*a(?:a|b){12})(?:a|b)(?!(?:a|b)*b(?:a|b){12}))*", "ab", budget=300)
    # what each of twenty pairs of assertions may owe: 2^20 ways of owing something else
    pairs = "|".join(f".(?={chr(97 + i)}x)(?={chr(97 + i)}.y)" for i in range(20))
    tracemalloc.start()
    with pytest.raises(BudgetError, match="too much work"):
        from_regex(f".*(?<!(?:{pairs})).*", "abcxy", budget=200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300 << 20  # instead of gigabytes


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        ("a{1000}", 1002),
        ("a{10,1000}", 1002),
        ("(a{1,30}){1,30}", 902),
        (r"\b(a{1,30}){1,30}$", 902),
        ("((?<!b)a|(?<=a)b|(?=a)b){1,300}", 302),
        ("(?:(?:a*)*)*b", 3),
        ("(((a?){20}){20}){2}", 802),
        ("(?:){1000000000}", 2),
        (r"(?:\b){1000000000}a", 3),
    ],
)
def test_counted_repeats_are_made_in_reasonable_time(pattern, states):
    assert from_regex(pattern, "ab").n_states == states


def test_characters_that_can_not_come_leave_nothing():
    assert from_regex("abc|b", "ab") == from_regex("b", "ab")
    assert from_regex("", "").accepts("")
    assert from_regex("a", "").n_states == 1


def test_the_default_alphabet_is_what_the_pattern_tells_apart():
    assert from_regex("b+a").alphabet == ("a", "b", OTHER)
    assert from_regex("b+.").alphabet == ("\n", "b", OTHER)
    assert from_regex("[a-c]", flags=re.IGNORECASE).alphabet == (*"ABCabc", OTHER)
    assert from_regex("[^x]*").accepts("anything but it")
    assert from_regex(r"\d", flags=re.ASCII).alphabet == (*"0123456789", OTHER)
    assert from_regex(r"\d").accepts("٣")
    with pytest.raises(RegexError, match=r"\\w.* is .* characters, too many .*begin the pattern with"):
        from_regex(r"\w+")
    assert from_regex(r"\w+", flags=re.ASCII).accepts("word_1")


def test_other_must_not_hide_a_difference():
    dfa = from_regex("a[^b]*", "ab", other=True)
    assert dfa.alphabet == ("a", "b", OTHER)
    assert dfa.accepts("a x")
    assert not dfa.accepts("axb")
    with pytest.raises(RegexError, match="holds '0' but not all other characters that OTHER stands for"):
        from_regex(r"\d", "ab", other=True)
    with pytest.raises(RegexError, match="holds 'c' but not all"):
        from_regex("abc", "ab", other=True)
    with pytest.raises(ValueError, match="symbol 'x' at position 1"):
        from_regex("a[^b]*", "ab").accepts("ax")


@pytest.mark.parametrize("alphabet", [["ab"], [1], ["a", "a"], [[]], [""]])
def test_letters_are_single_characters(alphabet):
    with pytest.raises(ValueError, match=r"letter"):
        from_regex("a", alphabet)


def test_patterns_are_strings():
    with pytest.raises(TypeError, match=r"must be a string .* got b'a'"):
        from_regex(b"a", "a")
    with pytest.raises(RegexError, match="LOCALE"):
        from_regex("a", "a", re.LOCALE)


def test_strange_characters_are_characters():
    for letter in ("\x00", "\ud800", "\U0010ffff", "]", "\\", "^", "-"):
        dfa = from_regex(f"[^{re.escape(letter)}]{re.escape(letter)}", ["a", letter])
        assert dfa.accepts("a" + letter)
        assert not dfa.accepts(letter + "a")


def test_sets_are_counted_over_all_of_unicode():
    assert Characters(".", 0).few(10) == "\n"
    assert Characters(".", re.DOTALL).few(10) == ""
    assert Characters("[kK]", re.IGNORECASE).few(10) == "Kk\u212a"
    assert Characters(r"\w", 0).few(1000) is None


def test_flags_may_stand_in_the_pattern():
    assert parse("(?i)a").state.flags & re.IGNORECASE
    assert from_regex("(?i)a(?-i:b)", "aAbB") == from_regex("[aA]b", "aAbB")


@pytest.mark.parametrize("seed", range(10))
def test_equal_languages_give_equal_automata(seed):
    """By way of expressions for the languages of random automata, made by removing states."""
    dfa = minimize(random_nfa(seed, 4).determinize())
    again = from_regex(expression(dfa), "ab")
    assert again == dfa
    assert equivalent(again, dfa)


def expression(dfa: DFA) -> str:
    """A regular expression of an automaton's language."""
    end = dfa.n_states
    arcs: dict[tuple[int, int], str] = {(q, end): "" for q in range(end) if dfa.accepting[q]}
    for (q, a), target in zip(
        ((q, a) for q in range(end) for a in range(2)), dfa.transitions.ravel().tolist(), strict=True
    ):
        arcs[q, target] = f"{arcs[q, target]}|{dfa.alphabet[a]}" if (q, target) in arcs else str(dfa.alphabet[a])
    for gone in reversed(range(1, end)):
        loop = f"(?:{arcs[gone, gone]})*" if (gone, gone) in arcs else ""
        into = [(p, text) for (p, q), text in arcs.items() if q == gone != p]
        out = [(r, text) for (q, r), text in arcs.items() if q == gone != r]
        arcs = {pair: text for pair, text in arcs.items() if gone not in pair}
        for p, before in into:
            for r, after in out:
                way = f"(?:{before}){loop}(?:{after})"
                arcs[p, r] = f"{arcs[p, r]}|{way}" if (p, r) in arcs else way
    if (0, end) not in arcs:
        return "(?!)"
    return f"(?:{arcs.get((0, 0), '')})*(?:{arcs[0, end]})"
