"""What the extractive engine knows of languages, as data: `english.txt`, `first_person.txt`, `lasting.txt`."""

import re
from functools import cache
from pathlib import Path

_HEADING = re.compile(r"^\[(.+)\]$")


@cache
def _tables() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in (Path(__file__).parent / "english.txt").read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            name = heading[1]
        elif line and not line.startswith("#"):
            # An entry may go on in the next line.
            found[name] = [f"{found.get(name, [''])[0]} {line}".strip()]
    return {name: tuple(dict.fromkeys(_entries(text))) for name, [text] in found.items()}


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def entries(name: str) -> tuple[str, ...]:
    """Return the entries of a table, in its order.

    Raises:
        KeyError: There is no such table.
    """
    return _tables()[name]


@cache
def word_set(*names: str) -> frozenset[str]:
    """Return the entries of several tables together."""
    return frozenset(entry for name in names for entry in entries(name))


@cache
def any_of(*names: str) -> str:
    """Return the entries of tables as alternatives of a regular expression, the longest first."""
    found = sorted(word_set(*names), key=lambda entry: (-len(entry), entry))
    return "|".join(re.escape(entry) for entry in found)


@cache
def first_person(language: str) -> frozenset[str]:
    """Return the words by which people speak of themselves; none of a language that isn't listed."""
    return frozenset(_by_language("first_person.txt").get(language, ()))


@cache
def lasting(language: str) -> tuple[str, ...]:
    """Return the beginnings of words by which people say what stays true of them; none of a language not listed."""
    return _by_language("lasting.txt").get(language, ())


@cache
def _by_language(name: str) -> dict[str, tuple[str, ...]]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    listed = (line.split(": ", 1) for line in lines if not line.startswith("#"))
    return {language: tuple(words.split()) for language, words in listed}
