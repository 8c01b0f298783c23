"""Tables of words and patterns in several languages, in text files.

A line consists of a name or a language, a colon, and words or a pattern. `#` starts a comment. A name in angle
brackets, such as `<PLACE>`, is replaced with a part of a pattern that the calling module defines.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_PART = re.compile(r"<([A-Z_]+)>")


@cache
def table_lines(name: str) -> tuple[tuple[str, str], ...]:
    """Return the lines of a table, each split at its first colon."""
    lines = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    read = (line.partition(": ") for line in lines if not line.startswith("#"))
    return tuple((head, rest) for head, _, rest in read)


@cache
def table_words(name: str, language: str) -> tuple[str, ...]:
    return tuple(dict(table_lines(name)).get(language, "").split())


@cache
def word_set(*names: str) -> frozenset[str]:
    """Return the entries of some tables in `english.txt`."""
    tables = dict(table_lines("english"))
    return frozenset(entry.strip() for name in names for entry in tables[name].split(","))


@cache
def any_of(*names: str) -> str:
    """Return a regular expression that matches the entries of some English tables, longest first."""
    found = sorted(word_set(*names), key=lambda entry: (-len(entry), entry))
    return "|".join(re.escape(entry) for entry in found)


@cache
def english() -> dict[str, str]:
    """Return the regular expressions of all English tables, keyed by the table's name in capitals."""
    return {name.upper(): any_of(name) for name, _ in table_lines("english")}


@cache
def any_pattern(name: str, language: str | None = None) -> re.Pattern[str]:
    """Return a case-insensitive pattern that matches any pattern of a table, in one language or in all."""
    patterns = [pattern for own, pattern in table_lines(name) if language in (None, own)]
    return re.compile("|".join(patterns) or "(?!)", re.IGNORECASE)


def fill_pattern(pattern: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda name: parts[name[1]], pattern)
