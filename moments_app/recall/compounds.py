"""Words within words, in languages that write compounds as one: who asks of a Termin means the Zahnarzttermin as well.

No list of words is needed: what a person said tells which words there are. A word that nothing has is taken for a part
of longer ones, or for a longer one of which parts are known.
"""

from collections.abc import Iterable, Iterator, Mapping

from sessions_app import lexemes

COMPOUNDING = ("da", "de", "fi", "hu", "nl", "no", "sv")
LAST, FIRST = 4, 5  # letters that the last part of a compound has at least, which says what it is; and the first one
REST = 3  # letters that are left for another part, at least


def patterns(stems: Iterable[str]) -> list[str]:
    """Return what compounds that begin or end with one of these stems are LIKE; more than those, by their lengths.

    Args:
        stems: that words are indexed under, with the marks of their languages.
    """
    found = _of_compounding(stems)
    return [like for language, bare in found for like in (f"{language}:{bare}%", f"{language}:%{bare}")]


def parts(stems: Iterable[str]) -> list[str]:
    """Return the stems that the first or the last part of some words may have, if these are compounds."""
    found: list[str] = []
    for language, bare in _of_compounding(stems):
        found += [f"{language}:{bare[:end]}" for end in range(FIRST, len(bare) - REST + 1)]
        found += [f"{language}:{bare[start:]}" for start in range(REST, len(bare) - LAST + 1)]
    return found


def shared(by_language: Mapping[str, Iterable[str]], stems: Iterable[str]) -> dict[str, int]:
    """Return which of known stems are parts of some others, or have them as parts; each with the letters of the part.

    Args:
        by_language: stems that texts are indexed under.
        stems: of a word that none of the texts has.
    """
    found: dict[str, int] = {}
    for language, asked in _of_compounding(stems):
        for stem in by_language.get(language, ()):
            if letters := _part(lexemes.marked(stem)[1], asked):
                found[stem] = max(letters, found.get(stem, 0))
    return found


def _part(one: str, other: str) -> int:
    """Return the letters of the part where the longer of two stems of a language is a compound of the other; else 0."""
    part, whole = sorted((one, other), key=len)
    is_first = len(part) >= FIRST and whole.startswith(part)
    is_last = len(part) >= LAST and whole.endswith(part)
    return len(part) if (is_first or is_last) and len(whole) >= len(part) + REST else 0


def _of_compounding(stems: Iterable[str]) -> Iterator[tuple[str, str]]:
    return (stem for stem in map(lexemes.marked, stems) if stem[0] in COMPOUNDING and len(stem[1]) >= LAST)
