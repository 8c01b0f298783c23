"""Find parts of compound words, in languages that write compounds as one word: "Termin" also finds "Zahnarzttermin".

There is no word list: the words in the person's texts are the known words. A word that occurs in no text is taken for a
part of longer known words, or for a compound of shorter ones.
"""

from collections.abc import Iterable, Iterator, Mapping

from sessions_app import lexemes

COMPOUNDING = ("da", "de", "fi", "hu", "nl", "no", "sv")
LAST, FIRST = 4, 5  # minimum letters of a compound's last part, which carries the meaning, and of its first part
REST = 3  # minimum letters of the rest of the compound


def patterns(stems: Iterable[str]) -> list[str]:
    """Return LIKE patterns of compounds that begin or end with one of these stems.

    They also match words that are too short.

    Args:
        stems: stems as they are indexed, prefixed with their language.
    """
    found = _of_compounding(stems)
    return [like for language, bare in found for like in (f"{language}:{bare}%", f"{language}:%{bare}")]


def parts(stems: Iterable[str]) -> list[str]:
    """Return the stems that could be the first or last parts of these stems, if they are compounds."""
    found: list[str] = []
    for language, bare in _of_compounding(stems):
        found += [f"{language}:{bare[:end]}" for end in range(FIRST, len(bare) - REST + 1)]
        found += [f"{language}:{bare[start:]}" for start in range(REST, len(bare) - LAST + 1)]
    return found


def shared(by_language: Mapping[str, Iterable[str]], stems: Iterable[str]) -> dict[str, int]:
    """Return the known stems that contain a searched stem or are part of one, with the number of letters of the part.

    Args:
        by_language: the stems of indexed texts, by language.
        stems: the stems of a word that occurs in no text.
    """
    found: dict[str, int] = {}
    for language, asked in _of_compounding(stems):
        for stem in by_language.get(language, ()):
            if letters := _part(lexemes.marked(stem)[1], asked):
                found[stem] = max(letters, found.get(stem, 0))
    return found


def _part(one: str, other: str) -> int:
    """Return the number of letters of the shorter stem if the longer one is a compound of it; else 0."""
    part, whole = sorted((one, other), key=len)
    is_first = len(part) >= FIRST and whole.startswith(part)
    is_last = len(part) >= LAST and whole.endswith(part)
    return len(part) if (is_first or is_last) and len(whole) >= len(part) + REST else 0


def _of_compounding(stems: Iterable[str]) -> Iterator[tuple[str, str]]:
    return (stem for stem in map(lexemes.marked, stems) if stem[0] in COMPOUNDING and len(stem[1]) >= LAST)
